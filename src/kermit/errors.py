"""What can go wrong by a user's hand, each with a message that says where, what is allowed and what to do.

The command line prints these without a traceback and exits with code 2; anything else is a defect of ours.
"""


class KermitError(Exception):
    """Base of every error that a user can cause and mend."""


class CanvasError(KermitError, ValueError):
    """A canvas, a slot or an insertion that cannot be."""


class DataError(KermitError, ValueError):
    """Input text that is broken; the message names the file and the line."""


class RecipeError(KermitError, ValueError):
    """A recipe with a wrong key or value; the message gives the key's path and the nearest known name."""


class ModelError(KermitError, ValueError):
    """A model or checkpoint that cannot do what was asked of it."""


class ServingError(KermitError, ValueError):
    """Settings that a service cannot run with, or a place where it cannot listen."""


class DecodingError(KermitError, ValueError):
    """Decoding settings that contradict each other or the model."""
