"""`kermit embed`: texts and pairs as vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kermit.cli import logs
from kermit.cli.choices import Json, Model, Output, PairInput, Side, X, Y, is_second_side, load_kermit, progress_bar
from kermit.cli.results import Results, check_file
from kermit.cli.texts import chunks, placed, read_pairs, sides
from kermit.errors import DataError


def embed(
    context: typer.Context,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to embed.", show_default=False)] = None,
    x: X = None,
    y: Y = None,
    input_: PairInput = None,
    side: Side = "x",
    pooling: Annotated[
        Literal["mean", "first"], typer.Option(help="The mean over content tokens, or the state of [CLS].")
    ] = "mean",
    model: Model = None,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Turn texts or pairs into vectors: the network's hidden states. An output named .npy is an array of NumPy's.

    Example: kermit embed --input sentences.txt --output sentences.npy
    """
    logs.set_up()
    given = read_pairs(texts, x, y, input_)
    as_array = output is not None and output.suffix == ".npy"
    if as_array and json_:
        raise DataError(f"--output {output}: an array is no JSON; leave out --json, or name the file otherwise")
    check_file("--output", output)
    kermit = load_kermit(model)
    on_y = is_second_side(context, kermit, x, y)
    vectors = []
    with Results(None if as_array else output) as results, progress_bar(len(given), "embedding") as advance:
        for chunk in chunks(given):
            with placed(chunk):
                found = kermit.embed(*sides(chunk, on_y=on_y), pooling=pooling, on_progress=advance)
            if as_array:
                vectors.append(found)
                continue
            for one, vector in zip(chunk, found.tolist(), strict=True):
                if json_:
                    record: dict[str, Any] = {"x": one.x, "y": one.y} if one.y is not None else {"xy"[on_y]: one.x}
                    results.json(record | {"embedding": [round(value, 6) for value in vector]})
                else:
                    results.line(" ".join(f"{value:.6g}" for value in vector))
    if as_array and output is not None:
        save(output, vectors, kermit.model.config.hidden_size)


def save(output: Path, vectors: list[Any], width: int) -> None:
    """Write vectors as one array, (texts, width); under its name once it is whole."""
    import numpy as np

    part = output.with_name(f"{output.name}.part")
    with part.open("wb") as stream:
        np.save(stream, np.concatenate([np.zeros((0, width), np.float32), *vectors]))
    part.replace(output)
