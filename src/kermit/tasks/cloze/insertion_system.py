"""KERMIT: the gap is an open slot, filled by the usual decoder.

The canvas is ``[CLS] passage(1/2) [SEP] passage(2/2) question cloze(left) cloze(right) [SEP]``, and its only open slot
is the gap. With the oracle length exactly that number of tokens is inserted; the paper uses it only for its baselines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from transformers import PreTrainedTokenizerFast

from kermit.canvas import Canvas, Segment
from kermit.decoding import MAX_TOKENS, Constraints, Decoded, DecodingSettings, decode, with_strategy
from kermit.engines.torch_engine import TorchEngine
from kermit.modeling import KermitForInsertion
from kermit.tasks.cloze.layout import ClozeLayout
from kermit.tasks.cloze.system import FRAME, ClozeAnswer, ClozeSystem, instance_seed, spelled


class InsertionSystem(ClozeSystem):
    """A KERMIT model that fills gaps; `max_tokens` of its decoding limits the length of answers."""

    name = "kermit"

    def __init__(
        self,
        model: KermitForInsertion,
        tokenizer: PreTrainedTokenizerFast,
        decoding: DecodingSettings,
        *,
        oracle_length: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(model, tokenizer, oracle_length=oracle_length)
        self.engine, self.seed = TorchEngine(model), seed
        unknown = {token_id for token_id in [tokenizer.unk_token_id] if token_id is not None}
        constraints: Constraints = replace(
            decoding.constraints,
            continues_word=self.continues.cpu().numpy()[: self.engine.info.vocab_size],
            never=decoding.constraints.never | unknown,
        )
        self.decoding = with_strategy(self.engine.info, replace(decoding, constraints=constraints))

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings that determine answers, besides the weights."""
        chosen: dict[str, object] = {
            "strategy": str(self.decoding.strategy),
            "termination_penalty": self.decoding.termination_penalty or 0.0,
            "max_rounds": self.decoding.max_rounds,
            "max_tokens": self.decoding.max_tokens,
            "min_tokens": self.decoding.constraints.min_tokens_per_blank or 0,
            "oracle_length": self.oracle_length,
        }
        if self.decoding.sampling is not None:
            chosen |= asdict(self.decoding.sampling)
        if (ranking := self.decoding.ranked_by) is not None:
            chosen |= {"candidates": self.decoding.candidates, "ranking": str(ranking)}
            chosen |= {"length_reward": self.decoding.length_reward or 0.0}
        return chosen | ({"seed": self.seed} if self.decoding.draws else {})

    def fits(self, layout: ClozeLayout) -> bool:
        """Return whether the canvas has room for the longest answer."""
        room = max(self.decoding.max_tokens or MAX_TOKENS, layout.gap_length if self.oracle_length else 0)
        longest = max(len(layout.first), len(layout.before) + room + len(layout.after))
        whole, segment = self.engine.info.max_length, self.engine.info.max_segment_length
        return (whole is None or len(layout) + room + FRAME <= whole) and (segment is None or longest <= segment)

    def canvas(self, layout: ClozeLayout) -> Canvas:
        """Return the initial canvas."""
        joined = [(Segment.Y, 0)] if layout.joined else []
        return Canvas.from_fragments(
            self.engine.info.specials, [layout.first], [layout.before, layout.after], joined=joined
        )

    def answer(self, layouts: Sequence[ClozeLayout]) -> list[ClozeAnswer]:
        """Decode the gaps; with the oracle length, gaps of the same length form a batch."""
        groups: dict[int | None, list[int]] = defaultdict(list)
        for number, layout in enumerate(layouts):
            groups[layout.gap_length if self.oracle_length else None].append(number)
        answers: dict[int, ClozeAnswer] = {}
        for length, numbers in groups.items():
            found = decode(
                self.engine,
                [self.canvas(layouts[number]) for number in numbers],
                self.decoding if length is None else self._of_length(length),
                seeds=[instance_seed(self.seed, layouts[number].id) for number in numbers],
                batch_size=len(numbers),
            )
            answers |= {
                number: self._answer(layouts[number], result) for number, result in zip(numbers, found, strict=True)
            }
        return [answers[number] for number in range(len(layouts))]

    def _of_length(self, length: int) -> DecodingSettings:
        constraints: Constraints = replace(
            self.decoding.constraints, min_tokens_per_blank=length, max_tokens_per_blank=length
        )
        return replace(self.decoding, constraints=constraints, max_tokens=length)

    def _answer(self, layout: ClozeLayout, result: Decoded) -> ClozeAnswer:
        pairs = zip(result.canvas.segments[Segment.Y], result.inserted[Segment.Y], strict=True)
        tokens = [token_id for token_id, inserted in pairs if inserted]
        text = spelled(self.tokenizer, tokens, layout.passage)
        ranking = self.decoding.ranked_by
        passes = result.rounds + (0 if ranking is None else ranking.passes)
        candidates = self.decoding.candidates
        # an upper bound: candidates share the first pass, and some end early
        sequences = passes * candidates - (candidates - 1)
        return ClozeAnswer(text, len(tokens), passes, sequences, result.log_prob)
