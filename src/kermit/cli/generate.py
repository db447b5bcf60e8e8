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
from kermit.cli.output import Results, generated, warn_if_cut
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
    names = ("x", "y") if kermit.segment(to) == kermit.segment("y") else ("y", "x")

    def ask(chunk: Sequence[InputText], **options: Any) -> list[Generation]:
        asked: Any = {"split_sentences": not whole, "recase": not keep_capitals, "settings": settings}
        return kermit.translate([one.x for one in chunk], to, **asked, **options)

    def texts_of(one: InputText, result: Generation) -> dict[str, Any]:
        return {"source": getattr(result, names[0]), "text": getattr(result, names[1])}

    produce(kermit, given, ask, how, texts_of, f"to {to}", seeded=False)


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
    settings = settings_of(how.decoding, how.set_, samples, min_tokens_per_blank, max_tokens_per_blank)
    if not settings.draws:
        refuse(context, ["--seed"], f"{NO_DRAW} with --samples 1")
    given = drawn(what.read(), samples, how.seed)
    kermit = load_kermit(how.model)
    on_y = what.on_y(context, kermit)

    def ask(chunk: Sequence[InputText], **options: Any) -> list[Generation]:
        return kermit.infill(*sides(chunk, on_y=on_y), settings=settings, **options)

    def texts_of(one: InputText, result: Generation) -> dict[str, Any]:
        if one.y is not None:
            return {"x": result.x, "y": result.y}
        return {"y": result.y} if on_y else {"x": result.x}

    produce(kermit, given, ask, how, texts_of, seeded=samples > 0)


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
    settings = settings_of(how.decoding, how.set_, samples)
    if not settings.draws:
        refuse(context, ["--seed"], f"{NO_DRAW} with --samples 1")
    given = drawn(given_pairs(None, x, y, input_, alone=False), samples, how.seed)
    kermit = load_kermit(how.model)

    def ask(chunk: Sequence[InputText], **options: Any) -> list[Generation]:
        return kermit.complete(*sides(chunk, on_y=False), settings=settings, **options)

    produce(kermit, given, ask, how, seeded=samples > 0)


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
    settings = settings_of(how.decoding, how.set_, count)
    if not settings.draws:
        refuse(context, ["--seed", *(["--count"] if count > 1 else [])], f"{NO_DRAW} with --set temperature=0.7")
    kermit = load_kermit(how.model)
    names = ("x", "y") if segment == "both" else ("xy"[kermit.segment(segment)],)
    given = drawn([InputText("", "", Place("the sample"))], count, how.seed)

    def ask(chunk: Sequence[InputText], **options: Any) -> list[Generation]:
        return kermit.sample(len(chunk), segment=segment, settings=settings, **options)

    produce(kermit, given, ask, how, lambda _, result: {name: getattr(result, name) for name in names})


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
        found = texts_of(one, result) | generated(result, kermit.readable(result.trace))
        sentences = [record(one, sentence) for sentence in result.sentences]
        return found | ({"sentences": sentences} if sentences else {})

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
