"""The configuration of a KERMIT model: its trunk, any bidirectional encoder, and its insertion head."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from kermit.canvas import SpecialTokens
from kermit.engines.engine import LEFT_TO_RIGHT


@strict
class KermitConfig(PreTrainedConfig):  # type: ignore[misc]
    """The configuration of `KermitModel` and the models built on it; values of another type are errors.

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
    slot_vector: Literal["right", "both"] = "right"
    cached_context: bool = False
    blank_token_id: int | None = None
    blank_width: int = 16
    position_limit: int | None = None
    copy_width: int = 0
    termination: Literal["slot", "sequence"] = "slot"
    positions: Literal["restart", "continue"] = "restart"
    cls_token_id: int = 1
    sep_token_id: int = 2
    pad_token_id: int = 0
    end_of_slot_token_id: int = 3
    never_generated: list[int] | tuple[int, ...] = ()
    predicts_completion: bool = False
    label_smoothing: float | int = 0.0
    languages: dict[str, str] | None = None
    factorizations: list[str] | tuple[str, ...] | None = None
    orders: list[str] | tuple[str, ...] | None = None
    strategy: str | None = None
    termination_penalty: float | int = 0.0
    keep_insertion_head: bool = True
    classifier_dropout: float | int = 0.1
    initializer_range: float | int = 0.02
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.never_generated = sorted(self.never_generated)
        self.languages = self.languages or {"x": "x", "y": "y"}
        if set(self.languages) != {"x", "y"}:
            raise ValueError(f"languages must name x and y, as {{'x': 'en', 'y': 'de'}}, not {self.languages!r}")
        if (name := self.languages["x"]) == self.languages["y"]:
            raise ValueError(
                f"languages: x and y have the same name, {name}; use different names, such as {name} and {name}2"
            )
        for name, least in {"copy_width": 0, "blank_width": 0, "position_limit": 1}.items():
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name} must be {least} or more, not {value}")
        if self.cached_context:
            needed = {"slot_vector": "both", "positions": "restart", "termination": "slot", "copy_width": 0}
            for name, wanted in needed.items():
                if getattr(self, name) != wanted:
                    raise ValueError(f"cached_context needs {name}: {wanted}, not {getattr(self, name)}")
            if self.blank_token_id is None:
                raise ValueError("cached_context needs blank_token_id, the token that marks a blank")
        elif self.predicts_completion or LEFT_TO_RIGHT in (self.orders or ()):
            raise ValueError("predicts_completion and the order left_to_right need cached_context: true")

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
