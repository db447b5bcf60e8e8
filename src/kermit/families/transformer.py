"""The autoregressive Transformer: transformers' Marian architecture, trained from scratch.

It is the teacher for distillation and the baseline of the paper's Table 2: an encoder, a causal decoder with
cross-attention, sinusoidal positions, and one embedding matrix for both sides and the output. The source is `x [SEP]`,
the target `[CLS] y [SEP]` shifted by one, so `[CLS]` starts and `[SEP]` ends a text. One model translates in one
direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import PositiveFloat, PositiveInt, ValidationError, field_validator
from torch.nn import functional
from transformers import MarianConfig, MarianMTModel, PreTrainedModel, PreTrainedTokenizerFast
from transformers.activations import ACT2FN

from kermit.canvas import Factorization, SpecialTokens
from kermit.canvas.arrays import Array
from kermit.data.batching import WHOLE, RankShare, padded
from kermit.data.joint_tokenizer import end_of_slot_id
from kermit.engines.engine import ModelInfo
from kermit.errors import DecodingError, RecipeError, nearest
from kermit.families.base import ITEMS, Collator, check_one_direction
from kermit.families.language_model import position_loss
from kermit.families.trunk_settings import EncoderDecoderSettings, made
from kermit.loading import load_whole
from kermit.searcher import Hypothesis
from kermit.validated_settings import FamilySettings, Settings, Share

if TYPE_CHECKING:
    from kermit.data.encoding import Row
    from kermit.training.recipe import Recipe

_IGNORED = -100


class TransformerSettings(EncoderDecoderSettings):
    """The shape of the model."""

    max_positions: PositiveInt = 512
    activation: str = "relu"
    attention_dropout: Share = 0.0

    @field_validator("activation")
    @classmethod
    def _known_activation(cls, name: str) -> str:
        if name not in ACT2FN:
            raise ValueError(f"transformers does not have this activation{nearest(name, list(ACT2FN))}")
        return name


class TransformerObjective(Settings):
    """Cross-entropy, with part of the target's probability spread over the vocabulary."""

    label_smoothing: Share = 0.1


class BeamSearch(Settings):
    """Beam search: `beams` hypotheses, scores divided by length to the power `length_penalty`."""

    beams: PositiveInt = 5
    length_penalty: float = 1.0
    max_tokens: PositiveInt = 128
    batch_tokens: PositiveFloat = 1000

    @classmethod
    def of(cls, choices: Mapping[str, Any]) -> BeamSearch:
        """Validate settings given by name; None stands for the default."""
        known = list(cls.model_fields)
        for name in choices:
            if name not in known:
                raise DecodingError(
                    f"a Transformer has no decoding setting {name!r}{nearest(name, known)}; known: {', '.join(known)}"
                )
        try:
            return cls(**{name: value for name, value in choices.items() if value is not None})
        except ValidationError as error:
            problem = error.errors()[0]
            raise DecodingError(f"{problem['loc'][0]}: {problem['msg']}") from error

    def settings(self) -> BeamSearch:
        """Return itself: beam search uses these settings directly."""
        return self

    def seeds(self, count: int) -> None:
        """Return None: beam search is deterministic."""

    def record(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return self.model_dump(mode="json")


class Transformer(MarianMTModel):  # type: ignore[misc]
    """Marian's model with a label-smoothed, summed training loss that does not hold all logits."""

    def forward(
        self, *arguments: Any, labels: torch.Tensor | None = None, label_smoothing: float = 0.0, **keywords: Any
    ) -> Any:
        """Return Marian's outputs or, given labels (rows, length) with -100 for none, the summed loss."""
        if labels is None:
            return super().forward(*arguments, **keywords)
        hidden = self.model(*arguments, **{**keywords, "use_cache": False})[0]
        real = labels != _IGNORED
        bias = self.final_logits_bias[0]
        return position_loss(hidden[real], self.lm_head.weight, bias, labels[real], label_smoothing)


@dataclass(frozen=True)
class TransformerCollator:
    """Turns rows into encoder inputs, decoder inputs and labels."""

    forward: bool
    start_id: int
    end_id: int
    pad_id: int

    def __call__(
        self, rows: Sequence[Row], generator: np.random.Generator, share: RankShare = WHOLE
    ) -> dict[str, Array]:
        """Build a batch, and return one process's share of it; nothing is random."""
        sources = [row["x"] if self.forward else row["y"] for row in rows]
        targets = [row["y"] if self.forward else row["x"] for row in rows]
        input_ids = padded([[*source, self.end_id] for source in sources], self.pad_id)
        arrays: dict[str, Array] = {
            "input_ids": input_ids,
            "attention_mask": (input_ids != self.pad_id).astype(np.int64),
            "decoder_input_ids": padded([[self.start_id, *target] for target in targets], self.pad_id),
            "labels": padded([[*target, self.end_id] for target in targets], _IGNORED),
            ITEMS: np.array([len(target) + 1 for target in targets], dtype=np.float32),
        }
        return share.of(arrays)


class BeamSearcher:
    """A Transformer that translates sequences of tokens by beam search."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.name_or_path = model.name_or_path
        config = model.config
        names = getattr(config, "languages", None) or {"x": "x", "y": "y"}
        special = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, end_of_slot_id(tokenizer))
        self.info = ModelInfo(
            specials=SpecialTokens(*special),
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            max_segment_length=config.max_position_embeddings - 1,
            languages=(names["x"], names["y"]),
            factorizations=frozenset(getattr(config, "factorizations", None) or ()),
            parameters=model.num_parameters(),
            model_type=config.model_type,
            precision=str(model.dtype).removeprefix("torch."),
        )

    def decoding(self, choices: Mapping[str, Any]) -> BeamSearch:
        """Validate decoding settings given by name."""
        return BeamSearch.of(choices)

    @torch.inference_mode()
    def search(
        self, sources: Sequence[Sequence[int]], settings: BeamSearch, on_progress: Callable[[int], object] | None = None
    ) -> list[Hypothesis]:
        """Translate sources in batches of similar length."""
        found: dict[int, Hypothesis] = {}
        for places in _batches(sources, settings.batch_tokens):
            part = [sources[place] for place in places]
            found.update(zip(places, _beam_search(self.model, self.tokenizer, part, settings), strict=True))
            if on_progress is not None:
                on_progress(len(places))
        return [found[place] for place in range(len(sources))]


class TransformerFamily:
    """Builds, trains and runs Transformers."""

    name = "transformer"
    tasks: tuple[str, ...] = ("translation",)
    model_type: str | None = "marian"
    model_settings: type[FamilySettings] = TransformerSettings
    objective_settings: type[Settings] = TransformerObjective
    decoding_settings: type[Any] = BeamSearch

    def check(self, recipe: Recipe) -> None:
        """Check that the recipe trains one direction, from pairs, and that the model has enough positions."""
        check_one_direction(recipe, "a Transformer")
        positions, longest = recipe.model.max_positions, recipe.data.max_tokens
        if longest >= positions:
            raise RecipeError(
                f"model.max_positions: {positions} is too few for texts of {longest} tokens (data.max_tokens) and an"
                " end token; raise it, or lower data.max_tokens"
            )

    def build(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Build a new model; weights are drawn with standard deviation width ** -0.5."""
        shape: TransformerSettings = recipe.model
        config = MarianConfig(
            vocab_size=len(tokenizer),
            d_model=shape.width,
            encoder_layers=shape.encoder_layers,
            decoder_layers=shape.decoder_layers,
            encoder_attention_heads=shape.heads,
            decoder_attention_heads=shape.heads,
            encoder_ffn_dim=shape.feedforward,
            decoder_ffn_dim=shape.feedforward,
            activation_function=shape.activation,
            dropout=shape.dropout,
            attention_dropout=shape.attention_dropout,
            max_position_embeddings=shape.max_positions,
            init_std=shape.width**-0.5,
            scale_embedding=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.cls_token_id,
            eos_token_id=tokenizer.sep_token_id,
            decoder_start_token_id=tokenizer.cls_token_id,
            forced_eos_token_id=None,
        )
        return made("model", lambda: Transformer(config))

    def load(self, path: Path) -> PreTrainedModel:
        """Load a saved Transformer."""
        return load_whole(Transformer, path)

    def collator(self, recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Collator:
        """Return a collator for the recipe's direction."""
        return TransformerCollator(
            forward=Factorization.Y_GIVEN_X in recipe.factorizations,
            start_id=tokenizer.cls_token_id,
            end_id=tokenizer.sep_token_id,
            pad_id=tokenizer.pad_token_id,
        )

    def loss(self, model: torch.nn.Module, batch: dict[str, torch.Tensor], recipe: Recipe) -> torch.Tensor:
        """Compute the label-smoothed cross-entropy, summed over the target tokens."""
        loss: torch.Tensor = model(**batch, label_smoothing=recipe.objective.label_smoothing)
        return loss

    def runner(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> BeamSearcher:
        """Return the searcher that runs the model."""
        return BeamSearcher(model, tokenizer)


TRANSFORMER = TransformerFamily()


def _batches(sources: Sequence[Sequence[int]], budget: float) -> Iterator[list[int]]:
    """Yield batches of text indices, sorted by length, each within a budget of source tokens."""
    batch: list[int] = []
    for place in sorted(range(len(sources)), key=lambda place: len(sources[place])):
        if batch and (len(sources[place]) + 1) * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _beam_search(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, sources: Sequence[Sequence[int]], decoding: BeamSearch
) -> list[Hypothesis]:
    start, end, pad = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
    input_ids = torch.as_tensor(padded([[*source, end] for source in sources], pad), device=model.device)
    attention_mask = (input_ids != pad).long()
    limit = min(decoding.max_tokens, model.config.max_position_embeddings - 2)
    sequences = model.generate(
        input_ids=input_ids,
        attention_mask=attention_mask,
        num_beams=decoding.beams,
        length_penalty=decoding.length_penalty,
        max_new_tokens=limit + 1,
        do_sample=False,
        suppress_tokens=[index for index in tokenizer.all_special_ids if index != end],
    )
    outputs = [_until(row, end, limit) for row in sequences[:, 1:].tolist()]
    ended = padded([[*ids, end] if finished else ids for ids, finished in outputs], _IGNORED)
    begun = padded([[start, *ids][: ended.shape[1]] for ids, _ in outputs], pad)
    labels, decoder_input_ids = (torch.as_tensor(plane, device=model.device) for plane in (ended, begun))
    logits = model(
        input_ids=input_ids, attention_mask=attention_mask, decoder_input_ids=decoder_input_ids, use_cache=False
    ).logits
    losses = functional.cross_entropy(
        logits.float().transpose(1, 2), labels, ignore_index=_IGNORED, reduction="none"
    ).sum(1)
    return [Hypothesis(ids, finished, -loss) for (ids, finished), loss in zip(outputs, losses.tolist(), strict=True)]


def _until(ids: list[int], end: int, limit: int) -> tuple[list[int], bool]:
    """Return the ids before the end token, and whether there is one; without one, the first `limit` ids."""
    return (ids[: ids.index(end)], True) if end in ids else (ids[:limit], False)
