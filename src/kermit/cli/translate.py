"""`kermit translate --to de "text" ...`: translate texts with a model of any family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kermit.cli import logs
from kermit.cli.choices import (
    NO_DRAW,
    Decoding,
    Input,
    Json,
    Model,
    Output,
    Seed,
    Set,
    Trace,
    decoding_choices,
    loading,
    progress_bar,
    refuse,
)
from kermit.cli.results import Results, warn_if_cut
from kermit.cli.texts import chunks, read_texts
from kermit.errors import DecodingError, placed

if TYPE_CHECKING:
    from kermit.tasks.translator import Translator
    from kermit.training.settings import Settings


def translate(
    context: typer.Context,
    texts: Annotated[list[str] | None, typer.Argument(help="What to translate.", show_default=False)] = None,
    to: Annotated[str, typer.Option("--to", help="The language to translate into.", show_default=False)] = ...,  # type: ignore[assignment]
    input_: Input = None,
    seed: Seed = 0,
    decoding: Decoding = None,
    set_: Set = None,
    model: Model = None,
    trace: Trace = False,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Translate texts.

    Example: kermit translate --to de "A dog sleeps in the sun."
    """
    logs.set_up()
    given = read_texts(texts, input_)
    with loading():
        from kermit.tasks.translator import Translator

        translator = Translator.load(model)
    settings = seeded_settings(context, translator, decoding, set_, seed)
    direction = translator.direction_to(to)
    done = 0
    with Results(output) as results, progress_bar(len(given), f"to {to}") as progress:
        for chunk in chunks(given):
            sources = [one.x for one in chunk]
            with placed([one.place for one in chunk]):
                found = translator.translate(sources, direction, seeded(settings, done), trace=trace, progress=progress)
            done += len(chunk)
            for one, result in zip(chunk, found, strict=True):
                warn_if_cut(one.place, result.finish)
                if json_:
                    results.json(result.to_json())
                    continue
                if result.trace is not None:
                    results.trace(result.trace)
                results.line(result.text)


def seeded_settings(
    context: typer.Context, translator: Translator, decoding: str | None, set_: list[str] | None, seed: int
) -> Settings:
    """The decoding settings of the model's family with a seed, which is refused where nothing is drawn."""
    from kermit.tasks.families import InsertionDecoding

    choices = decoding_choices(decoding, set_)
    if "seed" in choices:
        raise DecodingError("--set seed: give it as --seed")
    settings = translator.decoding(**choices)
    if isinstance(settings, InsertionDecoding) and settings.build().draws:
        return settings.model_copy(update={"seed": seed})
    refuse(context, ["--seed"], f"{NO_DRAW} with --set temperature=0.7")
    return settings


def seeded(settings: Settings, done: int) -> Settings:
    """The settings for the texts after the first so many: where tokens are drawn, no two texts share a seed."""
    seed = getattr(settings, "seed", None)
    return settings if seed is None else settings.model_copy(update={"seed": seed + done})
