"""`kermit evaluate cloze`: score a model on filling in SQuAD's answers in the sentences of QA2D."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kermit.cli import completion
from kermit.cli.inputs import check_there
from kermit.cli.options import decoding_choices, progress_bar, refuse, set_option, settings_of
from kermit.cli.output import check_file
from kermit.errors import DecodingError

if TYPE_CHECKING:
    import torch

    from kermit.tasks.cloze.system import ClozeSystem

LONGEST_ANSWER = 32
"""Default maximum number of tokens that KERMIT inserts (`--set max_tokens`)."""


class SystemName(StrEnum):
    """Ways of filling a gap."""

    KERMIT = "kermit"
    MASKED_LM = "masked-lm"
    CAUSAL_LM = "causal-lm"


_OWNERS = {
    "--decoding": (SystemName.KERMIT,),
    "--set": (SystemName.KERMIT,),
    "--min-tokens": (SystemName.KERMIT,),
    "--beams": (SystemName.MASKED_LM,),
    "--samples": (SystemName.CAUSAL_LM,),
    "--continuation-tokens": (SystemName.CAUSAL_LM,),
    "--seed": (SystemName.KERMIT, SystemName.CAUSAL_LM),
}
"""The systems that an option applies to."""


def cloze(
    context: typer.Context,
    system: Annotated[SystemName, typer.Option(help="How to fill gaps.")],
    model: Annotated[str, typer.Option(help="Folder of the model, a name on the Hub, or a .gguf file.")],
    qa2d: Annotated[Path, typer.Option(help="QA2D's TSV, plain or .gz.")],
    squad: Annotated[Path, typer.Option(help="The SQuAD JSON that QA2D refers to, plain or .gz.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Evaluate only the first N instances.")] = None,
    oracle_length: Annotated[
        bool, typer.Option("--oracle-length", help="Give the system the number of tokens of the gap.")
    ] = False,
    decoding: Annotated[
        Literal["serial", "parallel", "left_to_right"] | None,
        typer.Option(help="Strategy, for kermit; parallel by default."),
    ] = None,
    set_: Annotated[list[str] | None, set_option("Decoding setting, for kermit.", completion.decoding_settings)] = None,
    min_tokens: Annotated[
        int | None, typer.Option(min=0, help="Minimum number of tokens to insert, for kermit; 0 by default.")
    ] = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Number of beams, for masked-lm; 5 by default.")] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Number of continuations, for causal-lm; 20 by default.")
    ] = None,
    continuation_tokens: Annotated[
        int | None, typer.Option(min=1, help="Length of continuations, for causal-lm; 20 by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; 0 by default.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Instances per batch; does not change answers.")] = 8,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        typer.Option(help="Precision; float32 by default, the checkpoint's own on a GPU."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Append predictions to this file as JSON lines; a second run resumes from it.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Fill the gaps of cloze questions, zero-shot, and score the answers: exact match and F1.

    Example: kermit evaluate cloze --system kermit --model DIR --qa2d dev.tsv.gz --squad train-v1.1.json.gz
    """
    check_there("--qa2d", qa2d)
    check_there("--squad", squad)
    check_file("--output", output, in_new_folder=True)
    for option, owners in _OWNERS.items():
        if system not in owners:
            refuse(context, [option], f"applies only to --system {' and '.join(owners)}, not to {system}; leave it out")
    if oracle_length:
        lengths = ["--min-tokens", "--continuation-tokens"]
        refuse(context, lengths, "and --oracle-length both set the length of answers; leave one out")
    import json
    from dataclasses import asdict

    import torch

    from kermit.provenance import model_checksum
    from kermit.tasks.cloze.causal_lm_system import CausalLMSystem
    from kermit.tasks.cloze.evaluation import PredictionLog, cloze_scores, predict, provenance_of, signature_of
    from kermit.tasks.cloze.instances import read_cloze
    from kermit.tasks.cloze.masked_lm_system import MaskedLMSystem
    from kermit.tasks.cloze.models import load_causal_lm, load_masked_lm, model_files

    data = read_cloze(qa2d, squad)
    instances = data.instances[:limit]
    dtype = None if precision is None else getattr(torch, precision)
    asked: ClozeSystem
    match system:
        case SystemName.KERMIT:
            asked = _kermit(context, model, dtype, decoding, set_, min_tokens or 0, oracle_length, seed or 0)
        case SystemName.MASKED_LM:
            asked = MaskedLMSystem(*load_masked_lm(model, dtype), beams=beams or 5, oracle_length=oracle_length)
        case SystemName.CAUSAL_LM:
            asked = CausalLMSystem(
                *load_causal_lm(model, dtype),
                samples=samples or 20,
                continuation_tokens=continuation_tokens or 20,
                oracle_length=oracle_length,
                seed=seed or 0,
            )
    settings = provenance_of(asked, model_checksum(model_files(model)), qa2d, squad)
    log = PredictionLog(output, settings)
    with progress_bar(len(instances), "cloze") as progress:
        predictions = predict(asked, instances, log, batch_size=batch_size, progress=progress)
    if all(prediction.too_long for prediction in predictions):
        raise DecodingError("no instance fits the model, even without its passage; lower the length of answers")
    scores = cloze_scores(asked.name, predictions, data, signature_of(model, settings, limit))
    typer.echo(json.dumps(asdict(scores), ensure_ascii=False) if json_ else str(scores))


def _kermit(
    context: typer.Context,
    model: str,
    dtype: torch.dtype | None,
    decoding: str | None,
    chosen: list[str] | None,
    least: int,
    oracle_length: bool,
    seed: int,
) -> ClozeSystem:
    from kermit.tasks.cloze.insertion_system import InsertionSystem
    from kermit.tasks.cloze.models import load_insertion_model

    settings = settings_of(context, decoding, [f"max_tokens={LONGEST_ANSWER}", *(chosen or [])], 0, least)
    if settings.max_tokens is not None and least > settings.max_tokens:
        raise DecodingError(
            f"--min-tokens {least} exceeds the longest answer, {settings.max_tokens} tokens; raise --set max_tokens"
        )
    limits = [name for name in ("max_tokens", "max_rounds") if name in decoding_choices(decoding, chosen)]
    if oracle_length and limits:
        raise DecodingError(f"--set {limits[0]} and --oracle-length both limit the answer; leave one out")
    return InsertionSystem(*load_insertion_model(model, dtype), settings, oracle_length=oracle_length, seed=seed)
