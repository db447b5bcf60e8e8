"""`decode`: fill the open slots of canvases, in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kermit.canvas import Canvas
from kermit.decoding.asking import by_length
from kermit.decoding.beams import Beams
from kermit.decoding.candidates import decode_candidates
from kermit.decoding.rounds import Decoded, OnRound, Rounds
from kermit.decoding.settings import MAX_TOKENS, DecodingSettings, is_whole
from kermit.decoding.strategies import check_strategy, with_strategy
from kermit.decoding.trace import Trace, TracedRounds
from kermit.engines.engine import Engine, ModelInfo
from kermit.errors import DecodingError


def decode(
    engine: Engine,
    canvases: Sequence[Canvas],
    settings: DecodingSettings | None = None,
    *,
    seeds: Sequence[int] | None = None,
    limits: Sequence[int] | None = None,
    begun: Sequence[TracedRounds] | None = None,
    trace: bool = False,
    batch_size: int = 64,
    on_progress: Callable[[int], object] | None = None,
    on_round: OnRound | None = None,
) -> list[Decoded]:
    """Insert into the open slots of canvases until they are finished.

    Args:
        engine: the network.
        canvases: the canvases at the start.
        settings: how to decode; greedy, with the model's own strategy, by default.
        seeds: one per canvas, for sampling; 0, 1, 2, ... by default.
        limits: the most tokens to insert, one number per canvas; by default that of the settings.
        begun: for each canvas the rounds that are already decided; decoding continues after them, as if they had just
            been made. They count among the rounds, tokens and log-probabilities of the result.
        trace: whether to record every round's insertions.
        batch_size: number of texts to decode together; it does not change what they decode to.
        on_progress: called with the number of canvases that were just finished.
        on_round: called after every round with the traces so far, by the number of the canvas. The canvases whose
            numbers it returns are abandoned; the others continue unchanged. Not with candidates.

    Returns:
        One result per canvas, in order.

    Raises:
        DecodingError: settings that contradict each other or the model, or a canvas too long for the model.
        CanvasError: a decided insertion that is impossible.
    """
    settings = with_strategy(engine.info, settings or DecodingSettings())
    seeds = _checked_seeds(seeds, len(canvases))
    limits = [settings.max_tokens or MAX_TOKENS] * len(canvases) if limits is None else limits
    check_strategy(engine.info, settings)
    if begun is None:
        begun = [()] * len(canvases)
        check_lengths(engine.info, canvases)
    else:
        check_lengths(engine.info, [Trace(*part).canvases()[-1] for part in zip(canvases, begun, strict=True)])
    if max(settings.candidates, settings.beams) > 1 and on_round is not None:
        raise DecodingError("on_round cannot be combined with candidates or beams: only the best of them is kept")
    results: dict[int, Decoded] = {}
    size = 1 if any(begun) else max(1, batch_size // max(settings.candidates, settings.beams))
    for part in by_length([len(canvas) for canvas in canvases], size):
        texts = [canvases[i] for i in part], [seeds[i] for i in part], [limits[i] for i in part]
        decided = begun[part[0]]  # of the one text of this batch, if any are
        if settings.candidates > 1:
            kept = decode_candidates(engine, *texts, settings, trace=trace, begun=decided)
            results.update(zip(part, kept, strict=True))
            if on_progress is not None:
                on_progress(len(part))
            continue
        kind = Beams if settings.beams > 1 else Rounds
        rounds = kind(engine, settings, *texts, trace=trace, on_round=_renumbered(on_round, part), begun=decided)
        left = len(part)
        while True:
            if on_progress is not None and rounds.unfinished < left:
                on_progress(left - rounds.unfinished)
                left = rounds.unfinished
            if not len(rounds):
                break
            rounds.round()
        results.update({part[index]: result for index, result in rounds.results.items()})
    return [results[index] for index in range(len(canvases))]


def _checked_seeds(seeds: Sequence[int] | None, count: int) -> list[int]:
    """Return one seed per canvas."""
    if seeds is None:
        return list(range(count))
    if len(seeds) != count:
        raise DecodingError(f"{len(seeds)} seeds for {count} canvases; give one per canvas")
    for seed in seeds:
        if not is_whole(seed):
            raise DecodingError(f"a seed must be a whole number, not {seed!r}")
    return [int(seed) for seed in seeds]


def check_lengths(info: ModelInfo, canvases: Sequence[Canvas]) -> None:
    """Raise a DecodingError if the model lacks positions for a canvas."""
    for number, canvas in enumerate(canvases):
        longest = max(map(len, canvas.segments))
        for length, limit in ((len(canvas), info.max_length), (longest, info.max_segment_length)):
            if limit is not None and length > limit:
                raise DecodingError(
                    f"{length} tokens, but the model has room for {limit}; shorten or split it",
                    text=number,
                    limit=limit,
                )


def _renumbered(on_round: OnRound | None, part: Sequence[int]) -> OnRound | None:
    """Return the caller's `on_round` for a batch of some of its canvases."""
    if on_round is None:
        return None
    place = {number: index for index, number in enumerate(part)}

    def renumbered(traces: Mapping[int, Trace]) -> list[int]:
        abandoned = on_round({part[index]: trace for index, trace in traces.items()}) or ()
        return [place[number] for number in abandoned if number in place]

    return renumbered
