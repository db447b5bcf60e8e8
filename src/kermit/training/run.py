"""A training from recipe to saved model: tokenizer, encoded text, model, trainer, and what is kept at the end.

The output folder holds `recipe.yaml` (in full), `checkpoint-N` folders to resume from, `best` (the best model on the
validation text so far), `runs` (TensorBoard), and when the training is done the model itself with its tokenizer.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path

import torch
import yaml
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from kermit.data.cache import cache_folder, made_once
from kermit.data.encoding import EncodedText, encode_sources
from kermit.data.parallel import Pair, TextSource, checksum, read_pairs
from kermit.data.plain import OnBad, Report, file_checksum, read_texts
from kermit.data.tokenizer import load_tokenizer, train_tokenizer
from kermit.errors import RecipeError
from kermit.tasks.translation import Direction, TranslationScores
from kermit.tasks.translator import Translator, directions_of, model_folder
from kermit.training.callbacks import minutes_spent
from kermit.training.checkpoints import list_checkpoints, restore_interrupted_swap, written_whole
from kermit.training.recipe import RESUMABLE_CHANGES, LoadedRecipe, Recipe, changed_keys, check_recipe, dump_recipe
from kermit.training.trainer import Evaluator, KermitTrainer, clear_output

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended: the folder of the model, the steps done, and the signal that stopped it, if one did."""

    model: Path
    steps: int
    best_bleu: float | None
    stopped_by: int | None


def train(loaded: LoadedRecipe, output: Path, *, resume: bool = False) -> TrainingResult:
    """Run a recipe, or go on with it.

    Args:
        loaded: the checked recipe.
        output: where everything goes; must not hold another training, unless resuming.
        resume: go on from the last whole checkpoint in `output`, or start anew if there is none.
    """
    recipe = loaded.recipe
    main = _is_main_process()
    checkpoint = _prepare_output(recipe, output, resume=resume, write=main)
    tokenizer = prepare_tokenizer(loaded)
    text = encode_sources(
        [source.text_source(loaded.data) for source in recipe.data.train],
        tokenizer,
        max_tokens=recipe.data.max_tokens,
        on_bad=recipe.data.on_bad,
    )
    validation = _encode_validation(loaded, tokenizer)
    model = prepare_model(loaded, tokenizer)
    trainer = KermitTrainer(
        recipe=recipe,
        family=loaded.family,
        model=model,
        tokenizer=tokenizer,
        text=text,
        validation=validation,
        evaluator=_evaluator(loaded, tokenizer),
        output=output,
    )
    parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    logger.info("%s, %s parameters, %s texts", loaded.family.name, f"{parameters:,}", f"{len(text):,}")
    start = time.perf_counter()
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    logger.info("trained to step %d in %.1f minutes", trainer.state.global_step, (time.perf_counter() - start) / 60)
    caught = trainer.signals.caught
    if caught is None and main:
        _keep(trainer, output, parameters)
    return TrainingResult(output, trainer.state.global_step, trainer.state.best_metric, caught)


def prepare_tokenizer(loaded: LoadedRecipe) -> PreTrainedTokenizerFast:
    """The recipe's tokenizer: loaded, or trained once and then found in the cache by the content of its text."""
    settings = loaded.recipe.tokenizer
    if settings.path is not None:
        local = loaded.data / settings.path
        return load_tokenizer(local if local.exists() else settings.path)
    assert settings.vocab_size is not None
    vocab_size = settings.vocab_size
    files = [loaded.data / path for path in settings.texts]
    sources = [] if files else [source.text_source(loaded.data) for source in loaded.recipe.data.train]
    key = repr((vocab_size, [file_checksum(file) for file in files], [checksum(source) for source in sources]))
    folder = cache_folder() / "tokenizers" / sha256(key.encode()).hexdigest()[:24]

    def make(scratch: Path) -> None:
        texts = chain(_texts_of_files(files), _texts_of_sources(sources, loaded.recipe.data.on_bad))
        train_tokenizer(texts, vocab_size).save_pretrained(scratch)

    return load_tokenizer(made_once(folder, make))


def _texts_of_files(files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        for text, _ in read_texts(file, Report(OnBad.SKIP)):
            yield text


def _texts_of_sources(sources: Sequence[TextSource], on_bad: OnBad) -> Iterator[str]:
    for source in sources:
        for pair in read_pairs(source, Report(on_bad)):
            yield from (side for side in (pair.x, pair.y) if side)


def prepare_model(loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A new model of the recipe's family, or the one that `init_from` names; it is told its languages."""
    recipe = loaded.recipe
    if recipe.init_from is None:
        torch.manual_seed(recipe.seed)
        model = loaded.family.build(recipe, tokenizer)
    else:
        local = loaded.data / recipe.init_from
        folder = model_folder(local if local.exists() else Path(recipe.init_from).expanduser())
        model = loaded.family.load(folder)
        saved = load_tokenizer(folder)
        if saved.get_vocab() != tokenizer.get_vocab():
            raise RecipeError(
                f"init_from: {folder} was trained with another tokenizer; set `tokenizer: {{path: {folder}}}`"
            )
    model.config.languages = recipe.data.languages.model_dump()
    model.config.factorizations = sorted(factorization.value for factorization in recipe.factorizations)
    return model


def _encode_validation(loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> EncodedText | None:
    settings = loaded.recipe.data
    if settings.validation is None:
        return None
    source = settings.validation.text_source(loaded.data)
    return encode_sources([source], tokenizer, max_tokens=settings.max_tokens, on_bad=settings.on_bad)


def _evaluator(loaded: LoadedRecipe, tokenizer: PreTrainedTokenizerFast) -> Evaluator | None:
    recipe = loaded.recipe
    if recipe.data.validation is None or not recipe.data.validation.paired:
        return None
    languages = (recipe.data.languages.x, recipe.data.languages.y)
    directions = [Direction.parse(text) for text in recipe.evaluation.directions]
    directions = directions or directions_of(recipe.factorizations, languages)
    if not directions:
        return None
    source = recipe.data.validation.text_source(loaded.data)
    pairs: list[Pair] = list(read_pairs(source, Report(recipe.data.on_bad)))[: recipe.evaluation.texts]

    def evaluate(model: PreTrainedModel) -> list[tuple[Direction, TranslationScores]]:
        translator = Translator(loaded.family, model, tokenizer, languages)
        return [(way, translator.evaluate(pairs, way, recipe.decoding)[0]) for way in directions]

    return evaluate


def _prepare_output(recipe: Recipe, output: Path, *, resume: bool, write: bool) -> Path | None:
    """Check that the folder is free or holds this very training; return the checkpoint to go on from."""
    restore_interrupted_swap(output / "best")
    checkpoints = list_checkpoints(output)
    kept = output / "recipe.yaml"
    if resume and kept.is_file():
        raw = yaml.safe_load(kept.read_text(encoding="utf-8"))
        before = check_recipe(raw, data=Path(), where=str(kept)).recipe.model_dump(mode="json")
        changes = [
            key
            for key in changed_keys(before, recipe.model_dump(mode="json"))
            if not any(key == allowed or key.startswith(f"{allowed}.") for allowed in RESUMABLE_CHANGES)
        ]
        if changes:
            raise RecipeError(
                f"{output} was trained with another recipe: {', '.join(changes)} differ; resume with the same, or"
                " train into another folder"
            )
    elif not resume and (checkpoints or (output / "model.safetensors").is_file()):
        raise RecipeError(f"{output} already holds a training; add --resume to go on with it, or choose another folder")
    if write:
        output.mkdir(parents=True, exist_ok=True)
        if not checkpoints:
            clear_output(output)
        scratch = output / ".recipe.yaml.partial"
        scratch.write_text(dump_recipe(recipe), encoding="utf-8")
        scratch.rename(kept)
    return checkpoints[-1] if checkpoints else None


def _keep(trainer: KermitTrainer, output: Path, parameters: int) -> None:
    """Put the best model (or without validation the averaged last one) into the output folder, with a summary."""
    best = output / "best"
    if not best.is_dir():
        with trainer.averaged(), written_whole(best) as folder:
            trainer.save_kept(folder)
    for path in best.iterdir():
        scratch = output / f".{path.name}.partial"
        shutil.copyfile(path, scratch)
        scratch.rename(output / path.name)
    state = trainer.state
    minutes = minutes_spent(state)
    summary = {
        "steps": state.global_step,
        "epochs": round(state.epoch or 0.0, 2),
        "minutes": round(minutes, 1),
        "parameters": parameters,
        "best_step": state.best_global_step,
        "best_validation_bleu": state.best_metric,
        "seed": trainer.recipe.seed,
    }
    (output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def _is_main_process() -> bool:
    return int(os.environ.get("RANK", "0")) == 0
