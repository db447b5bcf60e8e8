"""`kermit augment`: write variants of text pairs as training data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kermit.cli import completion
from kermit.cli.inputs import check_there
from kermit.cli.options import Json, SkipBad, decoding_choices, progress_bar, set_option
from kermit.cli.output import Results, check_folder
from kermit.errors import UsageError


def augment(
    x: Annotated[list[Path], typer.Option("--x", metavar="FILE", help="File of X, one text per line, plain or .gz.")],
    y: Annotated[list[Path], typer.Option("--y", metavar="FILE", help="File of Y, aligned with X line by line.")],
    output: Annotated[Path, typer.Option(help="Folder for the line-aligned files.")],
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    set_: Annotated[
        list[str] | None,
        set_option("Share of pairs that get this kind of variant; 0 for none.", completion.variant_kinds, "KIND=RATE"),
    ] = None,
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Write variants of text pairs (casing, typing errors, numbers, names, single words, ...) as training data.

    Example: kermit augment --x train.en.gz --y train.de.gz --output augmented --seed 1 --set typos=0.05
    """
    if len(x) != len(y):
        raise UsageError(f"--x is given {len(x)} times and --y {len(y)} times; give both for every pair of files")
    for option, paths in (("--x", x), ("--y", y)):
        for path in paths:
            check_there(option, path)
    check_folder("--output", output)
    from kermit.data.augmentation import augment as run
    from kermit.data.plain import OnBad
    from kermit.data.variants import checked

    rates = checked(decoding_choices(None, set_))
    with progress_bar(len(rates), "augmenting") as progress:
        result = run(
            list(zip(x, y, strict=True)),
            output,
            rates,
            seed,
            on_bad=OnBad.SKIP if skip_bad else OnBad.ERROR,
            progress=progress,
        )
    if json_:
        Results().json({"output": str(output), "pairs": result.pairs, "lines": dict(result.lines)})
        return
    for kind, lines in result.lines.items():
        typer.echo(f"{kind}: {' and '.join(f'{count:,} lines in {name}' for name, count in lines.items())}")
