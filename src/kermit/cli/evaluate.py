"""`kermit evaluate TASK`: score a model on a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kermit.cli import cloze
from kermit.cli.options import Decoding, Model, Set, decoding_choices, progress_bar
from kermit.cli.output import check_file
from kermit.errors import DataError, ModelError

evaluate_app = typer.Typer(help="Score a model on a task.", no_args_is_help=True)

evaluate_app.command("cloze")(cloze.cloze)


@evaluate_app.command("translation")
def translation(
    data: Annotated[Path, typer.Option(help="Folder with SPLIT.en and SPLIT.de, plain or .gz.")],
    model: Model = None,
    split: Annotated[str, typer.Option(help="Name of the files without the language.")] = "test",
    directions: Annotated[
        str | None, typer.Option(help="Directions such as en-de,de-en; by default all that the model was trained for.")
    ] = None,
    decoding: Decoding = None,
    set_: Set = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "int8"] | None,
        typer.Option(
            help="Precision; int8 needs an exported file. By default the exported file if there is one, and otherwise"
            " float32."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the translations to OUTPUT.LANGUAGE.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot rounds by length, with log2(n + 1), as PNG.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON list, one object per direction.")] = False,
) -> None:
    """Translate a test set and score it: BLEU, chrF, length ratio, rounds, speed.

    Example: kermit evaluate translation --model runs/multi30k/kermit --data multi30k --split test
    """
    check_file("--plot", plot)
    import json
    from dataclasses import asdict

    from kermit.pipeline import Kermit
    from kermit.tasks.translation import (
        Direction,
        check_direction,
        evaluate_translation,
        note_of,
        plot_rounds,
        read_split,
        scores_table,
        target_text,
        trained_directions,
    )

    if precision in (None, "int8"):
        kermit = Kermit.from_pretrained(model, precision=precision)
        if precision is not None and kermit.searcher is not None:
            raise ModelError(f"--precision int8 needs a KERMIT model, not one of type {kermit.model_type}")
    else:
        import torch

        kermit = Kermit.from_pretrained(model, dtype=getattr(torch, precision))
    settings = kermit.decoding(decoding_choices(decoding, set_))
    asked = trained_directions(kermit) if directions is None else map(Direction.parse, directions.split(","))
    ways = [check_direction(kermit, way) for way in asked]
    files = {} if output is None else {way: output.with_name(f"{output.name}.{way.target}") for way in ways}
    for way, file in files.items():
        check_file("--output", file)
        if file.resolve() == (data / f"{split}.{way.target}").resolve():
            raise DataError(f"--output {output}: {file} is the reference; choose another name")
    pairs = read_split(data, split, kermit.languages)
    results = []
    for way in ways:
        with progress_bar(len(pairs), str(way)) as progress:
            note = note_of(kermit, settings, split, pairs)
            scores, translations = evaluate_translation(kermit, pairs, way, settings, note=note, progress=progress)
        results.append((scores, translations))
        if way in files:
            lines = "".join(f"{target_text(kermit, way, translation)}\n" for translation in translations)
            files[way].write_text(lines, encoding="utf-8")
    if plot is not None:
        plot_rounds({scores.direction: translations for scores, translations in results}, plot)
    if json_:
        typer.echo(json.dumps([asdict(scores) for scores, _ in results], ensure_ascii=False))
    else:
        typer.echo(scores_table([scores for scores, _ in results]))
