"""The configuration of a KERMIT model: its trunk, any bidirectional encoder, and its insertion head."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from kermit.canvas import SpecialTokens, Termination
from kermit.canvas.blank_room import BlankRoom
from kermit.engines.engine import LEFT_TO_RIGHT


class KermitConfig(PreTrainedConfig):  # type: ignore[misc]
    """The configuration of `KermitModel` and the models built on it.

    Args:
        trunk_config: the configuration of a bidirectional encoder of transformers.
        slot_vector: the states that make a slot's vector: ``right``, that of the token on its right (the paper), or
            ``both``, those of both neighbours (the Insertion Transformer).
        cached_context: whether given tokens attend only to given tokens, so that they are encoded once per generation
            (`kermit.canvas.context`); if false, every token attends to every token (the paper).
        blank_token_id: the token that marks a blank inside given text; only with cached_context.
        blank_width: number of positions that each blank has room for; only with cached_context.
        position_limit: number of positions that a segment may use, for trunks with a table of positions; if a segment
            has too many blanks for it, each gets less room. None for no limit.
        copy_width: width of the vectors that a slot compares to find tokens of its canvas to copy; 0 to predict every
            token from the vocabulary (the paper).
        termination: ``slot`` or ``sequence``.
        positions: ``restart`` in each segment, so that the first content token of either is at 1, or ``continue``.
        cls_token_id: the id of ``[CLS]``.
        sep_token_id: the id of ``[SEP]``.
        pad_token_id: the id of padding.
        end_of_slot_token_id: the id of end-of-slot, a token of its own.
        never_generated: further ids that are never content, such as ``[MASK]``.
        predicts_completion: whether slots also predict if one token completes them, so that parallel decoding can end
            without a round that finds nothing more to insert.
        label_smoothing: the share of each slot's target that is spread over the vocabulary in training.
        languages: the user's names for X and Y, such as ``{"x": "en", "y": "de"}``.
        factorizations: names of the factorizations that the model was trained with; None if unknown.
        orders: names of the order priors that the model was trained with; None if unknown.
        strategy: the default decoding strategy; None for the first that the model supports.
        termination_penalty: the default termination penalty for translation, chosen on validation text.
        keep_insertion_head: whether a classifier keeps the insertion head, so that its checkpoint can generate.
        classifier_dropout: the dropout before a classifier's last layer.
    """

    model_type = "kermit"
    sub_configs_defaults = {"trunk_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")}  # noqa: RUF012

    trunk_config: Any = None
    slot_vector: str = "right"
    cached_context: bool = False
    blank_token_id: int | None = None
    blank_width: int = 16
    position_limit: int | None = None
    copy_width: int = 0
    termination: str = "slot"
    positions: str = "restart"
    cls_token_id: int = 1
    sep_token_id: int = 2
    pad_token_id: int = 0
    end_of_slot_token_id: int = 3
    never_generated: Any = ()
    predicts_completion: bool = False
    label_smoothing: float = 0.0
    languages: Any = None
    factorizations: Any = None
    orders: Any = None
    strategy: str | None = None
    termination_penalty: float = 0.0
    keep_insertion_head: bool = True
    classifier_dropout: float = 0.1
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        allowed: dict[str, tuple[str, ...]] = {
            "slot_vector": ("right", "both"),
            "positions": ("restart", "continue"),
            "termination": tuple(Termination),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name} must be one of {', '.join(values)}, not {getattr(self, name)!r}")
        self.termination = str(Termination(self.termination))
        for name in ("copy_width", "blank_width"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)!r}")
        if self.cached_context:
            self._check_cached_context()
        elif self.predicts_completion:
            raise ValueError("predicts_completion needs cached_context: true")
        if not _all_are(int, self.never_generated):
            raise ValueError(f"never_generated must be a list of ids, not {self.never_generated!r}")
        self.never_generated = sorted(self.never_generated)
        self._check_languages()
        if self.factorizations is not None and not _all_are(str, self.factorizations):
            raise ValueError(f"factorizations must be a list of names, or null, not {self.factorizations!r}")
        if self.orders is not None and not _all_are(str, self.orders):
            raise ValueError(f"orders must be a list of names, or null, not {self.orders!r}")
        if LEFT_TO_RIGHT in (self.orders or ()) and not self.cached_context:
            raise ValueError("orders: left_to_right needs cached_context: true")

    def _check_languages(self) -> None:
        """Complete the names of X and Y; raise if they are no names or the same."""
        self.languages = self.languages or {"x": "x", "y": "y"}
        named = isinstance(self.languages, dict) and set(self.languages) == {"x", "y"}
        if not named or not _all_are(str, tuple(self.languages.values())):
            raise ValueError(f"languages must name x and y, as {{'x': 'en', 'y': 'de'}}, not {self.languages!r}")
        if self.languages["x"] == self.languages["y"]:
            name = self.languages["x"]
            raise ValueError(
                f"languages: x and y have the same name, {name}; use different names, such as {name} and {name}2"
            )

    def _check_cached_context(self) -> None:
        """Raise if other settings contradict cached context."""
        needed = {"slot_vector": "both", "positions": "restart", "termination": Termination.SLOT, "copy_width": 0}
        for name, value in needed.items():
            if getattr(self, name) != value:
                raise ValueError(f"cached_context needs {name}: {value}, not {getattr(self, name)}")
        if self.blank_token_id is None:
            raise ValueError("cached_context needs blank_token_id, the token that marks a blank")
        limit = self.position_limit
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ValueError(f"position_limit must be 1 or more, or null, not {limit!r}")

    @property
    def blank_room(self) -> BlankRoom:
        """The positions that each blank reserves for inserted tokens."""
        return BlankRoom(self.blank_width, self.position_limit)

    @property
    def vocab_size(self) -> int:
        """Number of rows of the embedding."""
        return int(self.trunk_config.vocab_size)

    @vocab_size.setter
    def vocab_size(self, size: int) -> None:
        self.trunk_config.vocab_size = size

    @property
    def hidden_size(self) -> int:
        """The width of the trunk."""
        return int(self.trunk_config.hidden_size)

    @property
    def specials(self) -> SpecialTokens:
        """The ids that frame a canvas or are never content, including the blank marker."""
        marker = set() if self.blank_token_id is None else {self.blank_token_id}
        return SpecialTokens(
            self.cls_token_id,
            self.sep_token_id,
            self.pad_token_id,
            self.end_of_slot_token_id,
            frozenset(self.never_generated) | marker,
        )


def _all_are(kind: type, values: object) -> bool:
    """Return whether `values` is a collection whose items are all of the given type."""
    collections = (list, tuple, set, frozenset)
    return isinstance(values, collections) and all(type(value) is kind for value in values)
