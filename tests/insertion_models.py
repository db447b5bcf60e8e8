"""Models for the tests: a small random encoder of any family, and a table written out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedTokenizerFast

from kermit.canvas import Canvas, Factorization, SpecialTokens
from kermit.canvas import CanvasBatch
from kermit.modeling import EncoderConfig, KermitConfig, KermitForInsertion, special_token_settings
from kermit.slots import SlotScores
from kermit.canvas import Termination

PAD, CLS, SEP, END = 0, 1, 2, 3
A, B, C = 4, 5, 6
SPECIALS = SpecialTokens(cls_id=CLS, sep_id=SEP, pad_id=PAD, end_of_slot_id=END)
VOCABULARY = 7

TINY_TRUNK: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
"""As a recipe gives it."""

TRUNKS: dict[str, dict[str, Any]] = {
    "bert": {},
    "modernbert": {
        "global_attn_every_n_layers": 2,
        "local_attention": 64,
        "pad_token_id": PAD,
        "cls_token_id": CLS,
        "sep_token_id": SEP,
        "bos_token_id": CLS,
        "eos_token_id": SEP,
    },
    "roberta": {"pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP, "type_vocab_size": 1},
    "xlm-roberta": {"pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP, "type_vocab_size": 1},
    "mpnet": {"pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP},
    "distilbert": {},
}
# those that differ in a point: a narrow embedding, shared layers, distances instead of positions, rotary positions
MORE_TRUNKS: dict[str, dict[str, Any]] = {
    "electra": {"embedding_size": 8},
    "albert": {"embedding_size": 8},
    "deberta-v2": {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]},
    "eurobert": {
        "num_key_value_heads": 2,
        "pad_token_id": PAD,
        "bos_token_id": CLS,
        "eos_token_id": SEP,
        "mask_token_id": A,
    },
}


def trunk_config(
    family: str = "bert", *, vocab_size: int = VOCABULARY, width: int = 16, max_positions: int = 64
) -> Any:
    """A configuration of two layers without dropout."""
    shape = {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2 * width,
        "max_position_embeddings": max_positions,
    }
    if family == "distilbert":
        shape = {
            "vocab_size": vocab_size,
            "dim": width,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 2 * width,
            "max_position_embeddings": max_positions,
        }
    off = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "embedding_dropout")
    return AutoConfig.for_model(family, **shape, **dict.fromkeys(off, 0.0), **(TRUNKS | MORE_TRUNKS)[family])


def random_model(family: str = "bert", *, seed: int = 0, scale: float = 0.3, **settings: Any) -> KermitForInsertion:
    """A small model with random weights, far enough from zero that its distributions are not flat."""
    shape = {name: settings.pop(name) for name in ("vocab_size", "width", "max_positions") if name in settings}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = KermitForInsertion(KermitConfig(trunk_config=trunk_config(family, **shape), **settings))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scale * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def score(model: KermitForInsertion, *canvases: Canvas) -> SlotScores:
    """What a model says of canvases."""
    with torch.inference_mode():
        return model.score_slots(CanvasBatch.from_canvases(canvases))


def canvas_of(*text: int) -> Canvas:
    """X given, and nothing of Y yet."""
    return Canvas.from_ids(SPECIALS, text, (), generate=Factorization.Y_GIVEN_X)


@dataclass(frozen=True)
class Says:
    """What a table says of one canvas.

    Args:
        content: the probabilities of tokens at each open slot; a slot left out says end-of-slot for certain.
        location: the probabilities of slots; all alike where left out.
        stop: the probability of stopping, beside which the locations share the rest.
    """

    content: Mapping[int, Mapping[int, float]]
    location: Mapping[int, float] | None = None
    stop: float | None = None


@dataclass
class TableModel:
    """An `InsertionModel` that looks up what to say of a canvas; it counts the canvases it was asked about."""

    rule: Callable[[Canvas], Says]
    termination: Termination = Termination.SLOT
    max_segment_length: int | None = None
    max_length: int | None = None
    vocab_size: int = VOCABULARY
    specials: SpecialTokens = SPECIALS
    orders: frozenset[str] | None = frozenset({"balanced_tree", "left_to_right"})

    def __post_init__(self) -> None:
        self.batches: list[int] = []
        self.device = torch.device("cpu")

    def score_slots(
        self, canvases: CanvasBatch, *, asked: torch.Tensor | None = None, left_to_right: bool = False
    ) -> SlotScores:
        self.batches.append(len(canvases))
        rows, slots, content, location, stop = [], [], [], [], []
        for row in range(len(canvases)):
            canvas = canvases.canvas(row)
            says = self.rule(canvas)
            for slot in sorted(canvas.open_slots):
                if asked is not None and not bool(asked[row, slot]):
                    continue
                share = 1 / len(canvas.open_slots) if says.location is None else says.location[slot]
                probabilities = says.content.get(slot, {END: 1.0})
                rows.append(row)
                slots.append(slot)
                content.append([_log(probabilities.get(token, 0.0)) for token in range(self.vocab_size)])
                location.append(_log(share * (1 - (says.stop or 0.0))))
            stop.append(_log(says.stop or 0.0))
        return SlotScores(
            torch.tensor(rows),
            torch.tensor(slots),
            torch.tensor(content),
            torch.tensor(location),
            torch.tensor(stop) if self.termination is Termination.SEQUENCE else None,
        )


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


BLANK = 7
CACHED_SPECIALS = SpecialTokens(CLS, SEP, PAD, END, frozenset({BLANK}))


def cached_model(
    *,
    seed: int = 0,
    orders: tuple[str, ...] = ("balanced_tree", "left_to_right"),
    vocab_size: int = BLANK + 1,
    **settings: Any,
) -> Any:
    """A small model with cached context and random weights, whose vocabulary is A, B and C unless told otherwise."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        trunk = EncoderConfig(
            vocab_size=vocab_size,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            initializer_range=0.2,
        )
        choices = {"slot_vector": "both", "blank_token_id": BLANK, "never_generated": [BLANK], "blank_width": 2}
        config = KermitConfig(trunk_config=trunk, cached_context=True, orders=list(orders), **choices | settings)
        model = KermitForInsertion(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


def cached_model_of(tokenizer: PreTrainedTokenizerFast, **settings: Any) -> KermitForInsertion:
    """A `cached_model` of a tokenizer's tokens that translates English to German and back, in rounds or in order."""
    specials = special_token_settings(tokenizer, cached_context=True)
    names = {"languages": {"x": "en", "y": "de"}, "factorizations": ["y_given_x", "x_given_y", "joint"]}
    model: KermitForInsertion = cached_model(vocab_size=len(tokenizer), **specials | names | settings)
    return model
