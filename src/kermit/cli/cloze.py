"""`kermit evaluate cloze`: score a model on filling the gaps of SQuAD's answers, as a sentence of QA2D has them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kermit.cli import logs
from kermit.cli.results import check_file
from kermit.cli.texts import check_there
from kermit.errors import DecodingError

if TYPE_CHECKING:
    import torch

    from kermit.tasks.cloze import ClozeSystem

LONGEST_ANSWER = 32
"""The most tokens that KERMIT inserts, unless `--set max_tokens` says otherwise."""


class SystemName(StrEnum):
    """The ways of filling a gap."""

    KERMIT = "kermit"
    MASKED_LM = "masked-lm"
    CAUSAL_LM = "causal-lm"


def cloze(
    system: Annotated[SystemName, typer.Option(help="How gaps are filled.", show_default=False)],
    model: Annotated[
        str, typer.Option(help="Folder of the model, a name on the Hub, or a .gguf file.", show_default=False)
    ],
    qa2d: Annotated[Path, typer.Option(help="QA2D's TSV, plain or .gz.", show_default=False)],
    squad: Annotated[Path, typer.Option(help="SQuAD's JSON that it refers to, plain or .gz.", show_default=False)],
    limit: Annotated[int | None, typer.Option(min=1, help="Take the first so many instances alone.")] = None,
    oracle_length: Annotated[
        bool, typer.Option("--oracle-length", help="Tell the system how many tokens the gap held.")
    ] = False,
    decoding: Annotated[
        Literal["serial", "parallel", "left_to_right"] | None,
        typer.Option(help="The strategy, for kermit; parallel by default.", show_default=False),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A decoding setting, for kermit.")
    ] = None,
    min_tokens: Annotated[
        int | None, typer.Option(min=0, help="Insert at least so many, for kermit; 0 by default.", show_default=False)
    ] = None,
    beams: Annotated[
        int | None, typer.Option(min=1, help="Of the search, for masked-lm; 5 by default.", show_default=False)
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Continuations, for causal-lm; 20 by default.", show_default=False)
    ] = None,
    continuation_tokens: Annotated[
        int | None, typer.Option(min=1, help="Their length, for causal-lm; 20 by default.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws; 0 by default.", show_default=False)] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Instances to answer together; changes no answer.")] = 32,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        typer.Option(help="Of the arithmetic; float32 by default, on a GPU the checkpoint's own.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Append the predictions there, as JSON lines; a second run goes on from them.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Fill the gaps of cloze questions, zero-shot, and score the answers: exact match and F1.

    Example: kermit evaluate cloze --system kermit --model DIR --qa2d dev.tsv.gz --squad train-v1.1.json.gz
    """
    check_there("--qa2d", qa2d)
    check_there("--squad", squad)
    check_file("--output", output, in_new_folder=True)
    logs.set_up()
    import json

    import torch

    from kermit.cli.choices import progress_bar
    from kermit.tasks.cloze import PredictionLog, predict, read_cloze, settings_of, signature_of, summarise

    for option, value, owners in (
        ("--decoding", decoding, (SystemName.KERMIT,)),
        ("--set", set_, (SystemName.KERMIT,)),
        ("--min-tokens", min_tokens, (SystemName.KERMIT,)),
        ("--beams", beams, (SystemName.MASKED_LM,)),
        ("--samples", samples, (SystemName.CAUSAL_LM,)),
        ("--continuation-tokens", continuation_tokens, (SystemName.CAUSAL_LM,)),
        ("--seed", seed, (SystemName.KERMIT, SystemName.CAUSAL_LM)),
    ):
        if value is not None and system not in owners:
            raise DecodingError(f"{option} is for --system {' and '.join(owners)}, not for {system}; leave it out")
        if value is not None and oracle_length and option in ("--min-tokens", "--continuation-tokens"):
            raise DecodingError(f"{option} says how long answers are, and so does --oracle-length; leave one out")
    data = read_cloze(qa2d, squad)
    instances = data.instances[:limit]
    dtype = None if precision is None else getattr(torch, precision)
    match system:
        case SystemName.KERMIT:
            asked = _kermit(model, dtype, decoding, set_, min_tokens or 0, oracle_length, seed)
        case SystemName.MASKED_LM:
            asked = _masked_lm(model, dtype, beams or 5, oracle_length)
        case SystemName.CAUSAL_LM:
            asked = _causal_lm(model, dtype, samples or 20, continuation_tokens or 20, oracle_length, seed or 0)
    settings = settings_of(asked, qa2d, squad)
    log = PredictionLog(output, settings)
    with progress_bar(len(instances), "cloze") as progress:
        predictions = predict(asked, instances, log, batch_size=batch_size, progress=progress)
    if all(prediction.too_long for prediction in predictions):
        raise DecodingError("no instance fits the model, even without its passage; ask for shorter answers")
    scores = summarise(asked.name, predictions, data, signature_of(model, settings, limit))
    typer.echo(json.dumps(scores.to_json(), ensure_ascii=False) if json_ else str(scores))


def _kermit(
    model: str,
    dtype: torch.dtype | None,
    decoding: str | None,
    chosen: list[str] | None,
    least: int,
    oracle_length: bool,
    seed: int | None,
) -> ClozeSystem:
    from kermit.cli.choices import decoding_choices, settings_of
    from kermit.tasks.cloze import InsertionSystem
    from kermit.tasks.cloze.loading import load_insertion_model

    settings = settings_of(decoding, [f"max_tokens={LONGEST_ANSWER}", *(chosen or [])], 0, least)
    if settings.max_tokens is not None and least > settings.max_tokens:
        raise DecodingError(
            f"--min-tokens {least} is more than an answer may have, {settings.max_tokens}; raise --set max_tokens"
        )
    limits = [name for name in ("max_tokens", "max_rounds") if name in decoding_choices(decoding, chosen)]
    if oracle_length and limits:
        raise DecodingError(f"--set {limits[0]} limits the answer, and --oracle-length says its length; leave one out")
    if seed is not None and not settings.draws:
        raise DecodingError("--seed is for draws, and the best tokens are taken; draw with --set temperature=1")
    return InsertionSystem(*load_insertion_model(model, dtype), settings, oracle_length=oracle_length, seed=seed or 0)


def _masked_lm(model: str, dtype: torch.dtype | None, beams: int, oracle_length: bool) -> ClozeSystem:
    from kermit.tasks.cloze import MaskedLMSystem
    from kermit.tasks.cloze.loading import load_masked_lm

    return MaskedLMSystem(*load_masked_lm(model, dtype), beams=beams, oracle_length=oracle_length)


def _causal_lm(
    model: str, dtype: torch.dtype | None, samples: int, tokens: int, oracle_length: bool, seed: int
) -> ClozeSystem:
    from kermit.tasks.cloze import CausalLMSystem
    from kermit.tasks.cloze.loading import load_causal_lm

    loaded = load_causal_lm(model, dtype)
    return CausalLMSystem(*loaded, samples=samples, continuation_tokens=tokens, oracle_length=oracle_length, seed=seed)
