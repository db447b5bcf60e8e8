"""The settings of a KERMIT model: any bidirectional encoder as the trunk, and the choices of the insertion head."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from kermit.canvas import SpecialTokens, Termination
from kermit.canvas.blank_room import BlankRoom
from kermit.engines.engine import LEFT_TO_RIGHT


class KermitConfig(PreTrainedConfig):  # type: ignore[misc]
    """The configuration of `KermitModel` and its children.

    Args:
        trunk_config: the configuration of a bidirectional encoder of transformers.
        slot_vector: what a slot is read from: ``right``, the token on its right (the paper), or ``both`` neighbours
            (the Insertion Transformer).
        cached_context: whether given tokens attend to given tokens only, so that they are read once per generation
            (`kermit.canvas.context`); false is the paper's model, in which every token attends to every token.
        blank_token_id: the token that marks a blank inside given text; only with cached_context.
        blank_width: number of positions that each blank has room for; only with cached_context.
        position_limit: number of positions that a segment may use; where it has too many blanks for it, each gets less
            room. For trunks with a table of positions; None for no limit.
        copy_width: how wide are the vectors by which a slot finds tokens of its canvas to say again; 0 where every
            token comes out of the vocabulary (the paper).
        termination: ``slot`` or ``sequence``.
        positions: ``restart`` in each segment, so that the first content token of either is at 1, or ``continue``.
        cls_token_id: the id of ``[CLS]``.
        sep_token_id: the id of ``[SEP]``.
        pad_token_id: the id of padding.
        end_of_slot_token_id: the id of end-of-slot, a token of its own.
        never_generated: further ids that are never content, such as ``[MASK]``.
        label_smoothing: the share of each slot's target that is spread over the vocabulary in training.
        languages: what X and Y are called by users, such as ``{"x": "en", "y": "de"}``.
        factorizations: what the model was trained to generate, by name; None where that is not known.
        orders: the insertion orders that it was trained with, by the names of their priors; None where that is not
            known.
        strategy: the decoding strategy to use where none is asked for; None for the first that the model can use.
        termination_penalty: the penalty on ending to translate with where none is asked for, chosen on validation text.
        keep_insertion_head: whether a classifier carries the insertion head along, so that its checkpoint generates.
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
        if not _all_are(int, self.never_generated):
            raise ValueError(f"never_generated must be a list of ids, not {self.never_generated!r}")
        self.never_generated = sorted(self.never_generated)
        self.languages = self.languages or {"x": "x", "y": "y"}
        named = isinstance(self.languages, dict) and set(self.languages) == {"x", "y"}
        if not named or not _all_are(str, tuple(self.languages.values())):
            raise ValueError(f"languages must name x and y, as {{'x': 'en', 'y': 'de'}}, not {self.languages!r}")
        if self.languages["x"] == self.languages["y"]:
            name = self.languages["x"]
            raise ValueError(f"languages: x and y are both called {name}; name them {name} and {name}2, say")
        if self.factorizations is not None and not _all_are(str, self.factorizations):
            raise ValueError(f"factorizations must be a list of names, or null, not {self.factorizations!r}")
        if self.orders is not None and not _all_are(str, self.orders):
            raise ValueError(f"orders must be a list of names, or null, not {self.orders!r}")
        if LEFT_TO_RIGHT in (self.orders or ()) and not self.cached_context:
            raise ValueError("orders: left_to_right needs cached_context: true")

    def _check_cached_context(self) -> None:
        """Refuse what does not go with cached context."""
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
        """The positions that a blank leaves for what is inserted."""
        return BlankRoom(self.blank_width, self.position_limit)

    @property
    def vocab_size(self) -> int:
        """The number of rows of the embedding."""
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
        """The ids that frame a canvas or are never content; the marker of blanks is one of them."""
        marker = set() if self.blank_token_id is None else {self.blank_token_id}
        return SpecialTokens(
            self.cls_token_id,
            self.sep_token_id,
            self.pad_token_id,
            self.end_of_slot_token_id,
            frozenset(self.never_generated) | marker,
        )


def _all_are(kind: type, values: object) -> bool:
    """Whether this is a collection, and all in it are of that kind."""
    collections = (list, tuple, set, frozenset)
    return isinstance(values, collections) and all(type(value) is kind for value in values)
