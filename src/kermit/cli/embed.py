"""`kermit embed`: embed texts and pairs as vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kermit.cli.inputs import InputText, asked_apart, chunks, sides
from kermit.cli.options import Json, Model, Output, TextsOrPairs, bundled, load_kermit, progress_bar
from kermit.cli.output import Results, check_file
from kermit.errors import DataError
from kermit.provenance import partial

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@bundled
def embed(
    context: typer.Context,
    what: TextsOrPairs,
    pooling: Annotated[
        Literal["mean", "first"], typer.Option(help="Mean over content tokens, or the state of [CLS].")
    ] = "mean",
    model: Model = None,
    output: Output = None,
    json_: Json = False,
) -> None:
    """Embed texts or pairs as vectors of hidden states; an output file named .npy is a NumPy array.

    Example: kermit embed --input sentences.txt --output sentences.npy
    """
    given = what.read()
    as_array = output is not None and output.suffix == ".npy"
    if as_array and json_:
        raise DataError(f"--output {output}: --json cannot be combined with .npy output; remove one of them")
    check_file("--output", output)
    kermit = load_kermit(model)
    on_y = what.on_y(context, kermit)
    vectors: list[NDArray[np.float32]] = []

    def ask(part: Sequence[InputText]) -> NDArray[np.float32]:
        return kermit.embed(*sides(part, on_y=on_y), pooling=pooling, on_progress=advance)

    with Results(None if as_array else output) as results, progress_bar(len(given), "embedding") as advance:
        for chunk in chunks(given):
            found = asked_apart(chunk, ask)
            if as_array:
                vectors += found
                continue
            for one, vector in zip(chunk, found, strict=True):
                if json_:
                    embedding = [round(value, 6) for value in vector.tolist()]
                    results.json(one.record(on_y=on_y) | {"embedding": embedding})
                else:
                    results.line(" ".join(f"{value:.6g}" for value in vector))
    if as_array and output is not None:
        import numpy as np

        with partial(output).open("wb") as stream:
            np.save(stream, np.array(vectors, np.float32).reshape(-1, kermit.info.hidden_size))
        partial(output).replace(output)
