"""Choosing what to insert: at every slot (parallel) or at one slot of each text (serial); the best, or a draw.

A draw needs one uniform number a slot. It is hashed from the text's seed, the round and the slot, so what a text
decodes to does not depend on which other texts share its batch. From it every token gets a waiting time, hashed too,
and the first to come is drawn: rounding, which differs from batch to batch, then decides only where two come as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kermit.canvas import SpecialTokens
from kermit.canvas_batch import NOTHING, CanvasBatch
from kermit.decoding.limits import Room, best_of_group
from kermit.decoding.repeats import bar_repeats
from kermit.decoding.settings import DecodingSettings, Sampling, Strategy
from kermit.errors import DecodingError
from kermit.slots import SlotScores, row_logsumexp

_CONTENT, _LOCATION = 0, 1


@dataclass(frozen=True)
class Choice:
    """What a round does.

    Args:
        tokens: (slots,) the token to insert, or `NOTHING`.
        log_probs: (slots,) of the token: log p(c given l) in parallel, log p(c, l) in serial decoding.
        blocked: (batch,) bool, whether a token was wanted that there is no room for.
        end_log_prob: (batch,) the log-probability of nothing more being inserted.
    """

    tokens: Tensor
    log_probs: Tensor
    blocked: Tensor
    end_log_prob: Tensor


class Chooser:
    """Turns the scores of slots into insertions."""

    def __init__(self, settings: DecodingSettings, specials: SpecialTokens, device: torch.device) -> None:
        self.settings, self.end = settings, specials.end_of_slot_id
        self.penalty = settings.termination_penalty or 0.0
        never = sorted(settings.constraints.never)
        self.never = torch.tensor(never, device=device) if never else None
        continues = settings.constraints.continues_word
        self.continues = None if continues is None else continues.to(device)

    def choose(
        self,
        scores: SlotScores,
        batch: CanvasBatch,
        room: Room,
        segments: Tensor,
        blanks: Tensor,
        glued: Tensor,
        repeats: Tensor | None,
        seeds: Tensor | None,
        number: int,
    ) -> Choice:
        """Choose the insertions of a round.

        Args:
            scores: what the model says of the open slots.
            batch: the canvases.
            room: how many tokens still fit, and where some are still needed.
            segments: (slots,) the segment of each slot.
            blanks: (slots,) its blank.
            glued: (slots,) whether a continuation inserted there would lengthen a given word.
            repeats: (batch,) how often a token may stand in a row; None for no limit.
            seeds: (batch,) the texts' seeds where tokens are drawn, None where the best are taken.
            number: the round, from 0.
        """
        content = scores.content.log_softmax(1)
        end_log_prob = content[:, self.end].clone()
        if self.penalty:
            content[:, self.end] -= self.penalty
        if self.never is not None:
            if (highest := int(self.never[-1])) >= content.shape[1]:
                raise DecodingError(f"never holds {highest}, but the model's tokens end at {content.shape[1] - 1}")
            content[:, self.never] = -torch.inf
        if self.continues is not None:
            content.masked_fill_(glued[:, None] & self.continues, -torch.inf)
        if repeats is not None:
            bar_repeats(content, scores, batch, repeats)
        slot_seeds = None if seeds is None else seeds[scores.rows.cpu()]
        noise = None if slot_seeds is None else uniform(slot_seeds, number, scores.slots)
        pick = _Pick(scores, content, end_log_prob, room, segments, blanks, noise)
        match self.settings.strategy:
            case Strategy.PARALLEL:
                return self._parallel(pick)
            case Strategy.SERIAL:
                return self._serial(pick, None if seeds is None else uniform(seeds, number))
            case Strategy.LEFT_TO_RIGHT:
                return self._left_to_right(pick)

    def _left_to_right(self, pick: _Pick) -> Choice:
        """Choose for one slot of each text: a token, or that its span is finished."""
        rows, batch = pick.scores.rows, len(pick.room.text)
        fits = pick.room.left(rows, pick.segments, pick.blanks)
        fits &= pick.room.text[rows] > pick.room.reserved(rows, pick.blanks)  # later blanks get what they need
        pick.content[pick.room.needs(rows, pick.blanks) & fits, self.end] = -torch.inf
        tokens = self._tokens(pick.content, pick.noise)
        log_probs = pick.content.gather(1, tokens[:, None]).squeeze(1)
        wanting = (tokens != self.end) & (log_probs > -torch.inf)  # where everything is barred, nothing can be drawn
        end_log_prob = log_probs.new_zeros(batch).index_add_(0, rows, pick.end_log_prob)
        return Choice(
            tokens.where(wanting & fits, NOTHING), log_probs, _any_by_row(wanting & ~fits, rows, batch), end_log_prob
        )

    def _parallel(self, pick: _Pick) -> Choice:
        rows, room = pick.scores.rows, pick.room
        tokens = self._tokens(pick.content, pick.noise)
        wanting = tokens != self.end
        needing = room.needs(rows, pick.blanks)
        if bool(needing.any()):
            blanks = room.need.shape[1]
            group = rows * blanks + pick.blanks
            served = torch.zeros(room.need.numel(), dtype=torch.bool, device=rows.device)
            served[group[wanting]] = True
            lacking = needing & ~served[group]
            pick.content[lacking, self.end] = -torch.inf
            tokens = torch.where(lacking, self._tokens(pick.content, pick.noise), tokens)
            score = pick.content.gather(1, tokens[:, None]).squeeze(1)
            forced = best_of_group(score.masked_fill(~lacking, -torch.inf), group, room.need.numel())
            wanting = (wanting & ~lacking) | forced
        log_probs = pick.content.gather(1, tokens[:, None]).squeeze(1)
        taken = room.admit(wanting, log_probs, rows, pick.segments, pick.blanks)
        batch = len(room.text)
        end_log_prob = log_probs.new_zeros(batch).index_add_(0, rows, pick.end_log_prob)
        return Choice(tokens.where(taken, NOTHING), log_probs, _any_by_row(wanting & ~taken, rows, batch), end_log_prob)

    def _serial(self, pick: _Pick, location_noise: Tensor | None) -> Choice:
        rows, room, batch = pick.scores.rows, pick.room, len(pick.room.text)
        log_location, log_stop = pick.scores.log_location()
        fits = room.left(rows, pick.segments, pick.blanks)
        needing = room.needs(rows, pick.blanks) & fits
        needy = _any_by_row(needing, rows, batch)
        pick.content[needing, self.end] = -torch.inf
        tokens = self._tokens(pick.content, pick.noise)
        log_probs = pick.content.gather(1, tokens[:, None]).squeeze(1) + log_location
        penalised_stop = None
        if log_stop is not None:
            penalised_stop = (log_stop - self.penalty).masked_fill(needy, -torch.inf)
        eligible = fits & (needing | ~needy[rows])
        if location_noise is None:
            wanting = tokens != self.end
            if penalised_stop is not None:
                wanting &= log_probs > penalised_stop[rows]
            chosen = best_of_group(log_probs.masked_fill(~(eligible & wanting), -torch.inf), rows, batch)
        else:
            # where no token fits, a draw from all slots tells a text that ends from one that is cut off
            nowhere = ~_any_by_row(eligible, rows, batch)
            location = log_location.masked_fill(~eligible & ~nowhere[rows], -torch.inf)
            drawn = self._draw_location(pick.scores, location, penalised_stop, location_noise)
            possible = log_probs > -torch.inf  # where everything is barred, nothing can be drawn
            wanting = (drawn[rows] == pick.scores.slots) & (tokens != self.end) & possible
            chosen = eligible & wanting
        blocked = _any_by_row(wanting & ~fits, rows, batch)
        end_log_prob = row_logsumexp(pick.end_log_prob + log_location, rows, batch) if log_stop is None else log_stop
        return Choice(tokens.where(chosen, NOTHING), log_probs, blocked, end_log_prob)

    def _tokens(self, content: Tensor, noise: Tensor | None) -> Tensor:
        if noise is None or self.settings.sampling is None:
            return content.max(1).indices  # faster on a CPU than argmax
        return draw(content, self.settings.sampling, noise)

    def _draw_location(self, scores: SlotScores, location: Tensor, stop: Tensor | None, noise: Tensor) -> Tensor:
        """(batch,) the drawn slot; 0, which is no slot, where stopping was drawn or nothing can be."""
        assert self.settings.sampling is not None
        width = int(scores.slots.max()) + 1
        grid = location.new_full((len(noise), width), -torch.inf)
        grid[scores.rows, scores.slots] = location
        if stop is not None:
            grid[:, 0] = stop
        grid[:, 0] = grid[:, 0].where(grid.isfinite().any(1), 0)
        return draw(grid, Sampling(self.settings.sampling.temperature), noise)


@dataclass(frozen=True)
class _Pick:
    """A round's scores with all that bears on the choice; every tensor is by slot."""

    scores: SlotScores
    content: Tensor
    end_log_prob: Tensor
    room: Room
    segments: Tensor
    blanks: Tensor
    noise: Tensor | None


def _any_by_row(values: Tensor, rows: Tensor, batch: int) -> Tensor:
    """(batch,) whether any value of the row is true."""
    found = torch.zeros(batch, dtype=torch.bool, device=values.device)
    found[rows[values]] = True
    return found


def uniform(seeds: Tensor, number: int, slots: Tensor | None = None) -> Tensor:
    """Uniform numbers in (0, 1), hashed with splitmix64's finaliser.

    Args:
        seeds: (items,) the seed of each item's text.
        number: the round.
        slots: (items,) for a token at each slot; None for a location of each text.

    Returns:
        (items,) float64, on the CPU.
    """
    purpose = _LOCATION if slots is None else _CONTENT
    state: Any = seeds.cpu().numpy().astype(np.uint64)
    for value in (np.uint64(number), np.uint64(purpose), 0 if slots is None else slots.cpu().numpy().astype(np.uint64)):
        state = state * np.uint64(0x9E3779B97F4A7C15) + value + np.uint64(0x632BE59BD9B4E019)
        state = _mixed(state)
    return torch.from_numpy(((state >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)


def draw(logits: Tensor, sampling: Sampling, noise: Tensor) -> Tensor:
    """Draw an index from each row of logits.

    Args:
        logits: (items, choices).
        sampling: temperature and truncation.
        noise: (items,) uniform numbers in (0, 1).

    Returns:
        (items,) indices; never one whose logit is -inf.
    """
    limits = torch.finfo(torch.float32)
    temperature = min(max(sampling.temperature, limits.tiny), limits.max)
    logits = (logits.float() - logits.float().amax(1, keepdim=True)) / temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[1]:
        least = logits.topk(sampling.top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    probabilities = logits.softmax(1)
    if sampling.top_p is not None and sampling.top_p < 1:
        ordered, index = probabilities.sort(dim=1, descending=True)
        beyond = ordered.cumsum(1) - ordered >= sampling.top_p
        beyond[:, 0] = False  # however little is asked for
        probabilities = probabilities.masked_fill(beyond.gather(1, index.argsort(1)), 0)
    return probabilities.div_(_waiting_times(noise, logits.shape[1], logits.device)).max(1).indices


def _waiting_times(noise: Tensor, choices: int, device: torch.device) -> Tensor:
    """(items, choices) exponential times at rate 1, hashed in 32 bits from each item's number and each choice."""
    items: Any = _mixed(noise.double().cpu().numpy().view(np.uint64)).astype(np.uint32).view(np.int32)
    state = torch.from_numpy(items).to(device)[:, None] ^ _choice_keys(choices).to(device)
    for factor, shift in ((-0x7A143595, 13), (-0x3D4D51CB, 16)):  # as murmur3 ends
        state.mul_(factor)
        state.bitwise_xor_(state.bitwise_right_shift(shift).bitwise_and_((1 << (32 - shift)) - 1))
    below_one = 2.0**-31 * (1 - 2.0**-23)  # 31 bits to a number that float32 does not round to 1
    return state.bitwise_and_(0x7FFFFFFF).float().add_(0.5).mul_(-below_one).log1p_().neg_()


@lru_cache(maxsize=8)
def _choice_keys(choices: int) -> Tensor:
    """(choices,) 32 random bits for each."""
    keys: Any = _mixed(np.arange(1, choices + 1, dtype=np.uint64)).astype(np.uint32).view(np.int32)
    return torch.from_numpy(keys)


def _mixed(state: Any) -> Any:
    """Splitmix64's finaliser."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
