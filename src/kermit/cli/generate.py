"""`kermit translate`, `infill`, `complete` and `sample`: the verbs that generate text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kermit.cli.inputs import InputText, asked_apart, chunks, drawn, given_pairs, given_texts, sides
from kermit.cli.options import (
    NO_DRAW,
    HowToGenerate,
    Input,
    PairInput,
    Samples,
    TextArguments,
    TextsOrPairs,
    To,
    X,
    Y,
    bundled,
    chosen_decoding,
    load_kermit,
    progress_bar,
    refuse,
    settings_of,
)
from kermit.cli.output import Results, warn_if_cut
from kermit.errors import Place

if TYPE_CHECKING:
    from kermit.pipeline import Kermit
    from kermit.results import Generation


@bundled
def translate(
    context: typer.Context,
    texts: TextArguments = None,
    to: To = ...,  # type: ignore[assignment]
    input_: Input = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Translate texts whole instead of sentence by sentence.")
    ] = False,
    keep_capitals: Annotated[
        bool, typer.Option("--keep-capitals", help="Read text in capitals as it is instead of in sentence case.")
    ] = False,
    *,
    how: HowToGenerate,
) -> None:
    """Translate texts, sentence by sentence.

    Example: kermit translate --to de "A dog sleeps in the sun."
    """
    given = [replace(one, seed=how.seed + number) for number, one in enumerate(given_texts(texts, input_))]
    kermit = load_kermit(how.model)
    settings = chosen_decoding(context, kermit, how.decoding, how.set_).settings()
    source, target = ("x", "y") if kermit.segment(to) == kermit.segment("y") else ("y", "x")
    asked: Any = {"split_sentences": not whole, "recase": not keep_capitals, "settings": settings}
    produce(
        kermit,
        given,
        lambda some, **options: kermit.translate([one.x for one in some], to, **asked, **options),
        how,
        lambda _, result: {"source": getattr(result, source), "text": getattr(result, target)},
        f"to {to}",
        seeded=False,
    )


@bundled
def infill(
    context: typer.Context,
    what: TextsOrPairs,
    min_tokens_per_blank: Annotated[int, typer.Option(help="Minimum number of tokens per blank.")] = 1,
    max_tokens_per_blank: Annotated[int | None, typer.Option(help="Maximum number of tokens per blank.")] = None,
    samples: Samples = 0,
    *,
    how: HowToGenerate,
) -> None:
    """Fill the blanks (four underscores) of texts or pairs; the given text does not change.

    Example: kermit infill "A man ____ a red ____." --samples 3
    """
    settings = settings_of(context, how.decoding, how.set_, samples, min_tokens_per_blank, max_tokens_per_blank)
    given = drawn(what.read(), samples, how.seed)
    kermit = load_kermit(how.model)
    on_y = what.on_y(context, kermit)
    produce(
        kermit,
        given,
        lambda some, **options: kermit.infill(*sides(some, on_y=on_y), settings=settings, **options),
        how,
        lambda one, result: {name: getattr(result, name) for name in one.record(on_y=on_y)},
        seeded=samples > 0,
    )


@bundled
def complete(
    context: typer.Context,
    x: X = None,
    y: Y = None,
    input_: PairInput = None,
    samples: Samples = 1,
    *,
    how: HowToGenerate,
) -> None:
    """Complete pairs from fragments: text is inserted at ... or ____, and a missing side is generated whole.

    Example: kermit complete --x "A man ..." --y "... Fahrrad." --samples 3
    """
    settings = settings_of(context, how.decoding, how.set_, samples)
    given = drawn(given_pairs(None, x, y, input_, alone=False), samples, how.seed)
    kermit = load_kermit(how.model)
    produce(
        kermit,
        given,
        lambda some, **options: kermit.complete(*sides(some, on_y=False), settings=settings, **options),
        how,
        seeded=samples > 0,
    )


@bundled
def sample(
    context: typer.Context,
    segment: Annotated[str, typer.Option(help="What to sample: both, or a language; x and y always work.")] = "both",
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Number of samples.")] = 1,
    *,
    how: HowToGenerate,
) -> None:
    """Sample texts: pairs, or one side only.

    Example: kermit sample -n 5 --set temperature=0.8
    """
    settings = settings_of(context, how.decoding, how.set_, count)
    if count > 1 and not settings.draws:
        refuse(context, ["--count"], NO_DRAW)
    kermit = load_kermit(how.model)
    names = ("x", "y") if segment == "both" else ("xy"[kermit.segment(segment)],)
    given = drawn([InputText("", "", Place("the sample"))], count, how.seed)
    produce(
        kermit,
        given,
        lambda some, **options: kermit.sample(len(some), segment=segment, settings=settings, **options),
        how,
        lambda _, result: {name: getattr(result, name) for name in names},
    )


def produce(
    kermit: Kermit,
    given: Sequence[InputText],
    ask: Callable[..., list[Generation]],
    how: HowToGenerate,
    texts_of: Callable[[InputText, Generation], dict[str, Any]] = lambda _, result: {"x": result.x, "y": result.y},
    title: str = "generating",
    *,
    seeded: bool = True,
) -> None:
    """Generate for all inputs, and write each result as a line or JSON object as soon as it is known.

    `ask` runs the model on some of the inputs, with further options of a generating method. `texts_of` returns the
    texts of a result by name; ``source`` is only printed with --json. `seeded` is whether JSON output includes the
    seed.
    """

    def record(one: InputText, result: Generation) -> dict[str, Any]:
        found = texts_of(one, result) | {"rounds": result.rounds, "tokens": result.tokens}
        found |= {"log_prob": result.log_prob, "finish": str(result.finish)}
        if (readable := kermit.readable(result.trace)) is not None:
            found["trace"] = readable.to_json()
        if result.sentences:
            found["sentences"] = [record(one, sentence) for sentence in result.sentences]
        return found

    with Results(how.output) as results, progress_bar(len(given), title) as advance:

        def part(some: Sequence[InputText]) -> list[Generation]:
            return ask(some, seeds=[one.seed for one in some], trace=how.trace, on_progress=advance)

        for chunk in chunks(given):
            for one, result in zip(chunk, asked_apart(chunk, part), strict=True):
                warn_if_cut(one.place, result.finish)
                if how.json_:
                    results.json(record(one, result) | ({"seed": one.seed} if seeded else {}))
                    continue
                for sentence in result.sentences or [result]:
                    if (readable := kermit.readable(sentence.trace)) is not None:
                        results.trace(readable)
                results.texts([text or "" for name, text in texts_of(one, result).items() if name != "source"])
