"""Models for the tests: a small random encoder of any family, and a table written out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedTokenizerFast

from kermit.canvas import Canvas, CanvasBatch, Factorization, SpecialTokens, Termination
from kermit.canvas.arrays import Floats, Integers
from kermit.canvas.context import ContextRows
from kermit.decoding.asking import ask_canvases
from kermit.engines import Answer, Asked, Engine, ModelInfo, Rows
from kermit.engines.torch_engine import TorchEngine, model_info
from kermit.modeling import EncoderConfig, KermitConfig, KermitForInsertion, special_token_settings
from kermit.modeling.tensors import RowTensors, as_tensors
from kermit.modeling.trunk import refuse_unfit_at_work
from kermit.objectives.generations import GenerationTargets
from kermit.objectives.training_canvases import TrainingCanvases

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
"""As in a recipe."""

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
# those with a peculiarity: a narrow embedding, shared layers, distances instead of positions, rotary positions
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


@dataclass(frozen=True)
class SlotScores:
    """An engine's predictions for open slots, as tensors: log-probabilities of tokens, and logits of the rest."""

    rows: Tensor
    slots: Tensor
    content: Tensor
    location: Tensor
    stop: Tensor | None


def scores_of(model: KermitForInsertion | Engine, canvases: CanvasBatch, **asked: Any) -> SlotScores:
    """A model's predictions for the open slots of a batch."""
    found = ask_canvases(engine_of(model), canvases, full=True, **asked)
    answer = found.answer
    planes = (found.rows, found.slots, answer.content, answer.location, answer.stop)
    return SlotScores(*(None if plane is None else torch.as_tensor(plane) for plane in planes))


def score(model: KermitForInsertion | Engine, *canvases: Canvas, **settings: Any) -> SlotScores:
    """A model's predictions for canvases."""
    return scores_of(model, CanvasBatch.from_canvases(canvases, **settings))


def engine_of(model: KermitForInsertion | Engine) -> Engine:
    """A model of torch as an engine; an engine as it is."""
    return model if hasattr(model, "ask") else TorchEngine(model)


def inputs_of(targets: TrainingCanvases | GenerationTargets) -> dict[str, Tensor]:
    """The arguments of a model's forward pass, as tensors."""
    return as_tensors(targets.model_inputs())


def blanks_of(model: KermitForInsertion) -> dict[str, Any]:
    """How a model marks blanks."""
    return {
        "blank_id": model.config.blank_token_id,
        "blank_room": model_info(model).blank_room,
    }


def read(model: KermitForInsertion, rows: ContextRows) -> Tensor:
    """The states of rows of cached context, (batch, length, hidden)."""
    with torch.inference_mode():
        return model.kermit.read(RowTensors.of(rows)).last_hidden_state


def canvas_at(batch: CanvasBatch, row: int) -> Canvas:
    """One row of a batch as a checked canvas."""
    length = int(batch.valid[row].sum())
    open_slots = frozenset(np.flatnonzero(batch.open_slots[row, :length]).tolist())
    return _canvas(batch.specials, batch.token_ids[row, :length], batch.segment_ids[row, :length], open_slots)


def _canvas(specials: SpecialTokens, tokens: Integers, segments: Integers, open_slots: frozenset[int]) -> Canvas:
    content: list[list[int]] = [[] for _ in range(int(segments[-1]) + 1)]
    for token_id, segment in zip(tokens.tolist(), segments.tolist(), strict=True):
        if token_id not in (specials.cls_id, specials.sep_id):
            content[segment].append(token_id)
    return Canvas(specials, tuple(map(tuple, content)), open_slots)


def canvas_of(*text: int) -> Canvas:
    """X given, and nothing of Y yet."""
    return Canvas.from_ids(SPECIALS, text, (), generate=Factorization.Y_GIVEN_X)


@dataclass(frozen=True)
class Says:
    """The predictions of a table for one canvas.

    Args:
        content: the probabilities of tokens at each open slot; end-of-slot is certain at slots left out.
        location: the probabilities of slots; uniform if left out.
        stop: the probability of stopping; the locations share the rest.
        completion: the probabilities that one token completes a slot; 0 at slots left out.
    """

    content: Mapping[int, Mapping[int, float]]
    location: Mapping[int, float] | None = None
    stop: float | None = None
    completion: Mapping[int, float] | None = None


class TableEngine:
    """An engine that looks up its predictions for a canvas, and counts the canvases."""

    caches = False

    def __init__(
        self,
        rule: Callable[[Canvas], Says],
        termination: Termination = Termination.SLOT,
        max_segment_length: int | None = None,
        max_length: int | None = None,
        vocab_size: int = VOCABULARY,
        specials: SpecialTokens = SPECIALS,
        orders: frozenset[str] | None = frozenset({"balanced_tree", "left_to_right"}),
        predicts_completion: bool = False,
    ) -> None:
        self.rule, self.specials = rule, specials
        self.info = ModelInfo(
            specials,
            vocab_size,
            termination=termination,
            orders=orders,
            predicts_completion=predicts_completion,
            max_length=max_length,
            max_segment_length=max_segment_length,
        )
        self.batches: list[int] = []
        self.asked: list[Asked] = []

    def ask(self, rows: Rows, asked: Asked) -> Answer:
        """Look up every canvas; the requested slots count as its open slots."""
        batch, length = rows.token_ids.shape
        self.batches.append(batch)
        self.asked.append(asked)
        content = np.full((len(asked.right), self.info.vocab_size), -np.inf, dtype=np.float32)
        location = np.zeros(len(asked.right), dtype=np.float32)
        stop = np.zeros(batch, dtype=np.float32)
        completion = np.zeros(len(asked.right), dtype=np.float32)
        for row in range(batch):
            mine = np.flatnonzero(asked.right // length == row)
            slots = (asked.right[mine] % length).tolist()
            real = rows.token_ids[row] != self.specials.pad_id
            canvas = _canvas(self.specials, rows.token_ids[row, real], rows.segment_ids[row, real], frozenset(slots))
            says = self.rule(canvas)
            for number, slot in zip(mine, slots, strict=True):
                share = 1 / len(slots) if says.location is None else says.location[slot]
                for token, probability in says.content.get(slot, {END: 1.0}).items():
                    content[number, token] = _log(probability)
                location[number] = _log(share * (1 - (says.stop or 0.0)))
                completion[number] = _log((says.completion or {}).get(slot, 0.0))
            stop[row] = _log(says.stop or 0.0)
        told = stop if self.info.termination is Termination.SEQUENCE else None
        answer = Answer.of(content, asked, END, location, told)
        return replace(answer, completion=completion) if self.info.predicts_completion else answer

    def hidden(self, rows: Rows) -> Floats:
        """A table has no states."""
        raise NotImplementedError


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


BLANK = 7
CACHED: dict[str, Any] = {
    "cached_context": True,
    "slot_vector": "both",
    "blank_token_id": BLANK,
    "never_generated": [BLANK],
    "blank_width": 2,
}
CACHED_SPECIALS = SpecialTokens(CLS, SEP, PAD, END, frozenset({BLANK}))


def cached_model(
    *,
    seed: int = 0,
    orders: tuple[str, ...] = ("balanced_tree", "left_to_right"),
    vocab_size: int = BLANK + 1,
    **settings: Any,
) -> Any:
    """A small model with cached context and random weights; its default vocabulary is A, B and C."""
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


def try_without_a_trace(model: KermitForInsertion) -> None:
    """Test a model's trunk, and check that its weights, its modes and the random state do not change."""
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    refuse_unfit_at_work(model.kermit)
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
