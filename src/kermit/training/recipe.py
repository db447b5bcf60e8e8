"""A recipe: one validated YAML file that completely describes a training run.

It is validated once, when it is loaded. A wrong key or value raises a `RecipeError` with the key's path and the allowed
values, or for an unknown key the nearest known one. The schemas of `data` and `evaluation` come from the task
(`kermit.training.task`), those of `model`, `objective` and `decoding` from the family (`kermit.families`).
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, create_model, model_validator

from kermit.errors import RecipeError, in_a_line, nearest
from kermit.families import FAMILIES
from kermit.families.base import Family, refuse_orders
from kermit.registry import Registry
from kermit.training.settings import (
    AveragingSettings,
    BatchSettings,
    CheckpointSettings,
    OptimizerSettings,
    RuntimeSettings,
    ScheduleSettings,
    Seed,
    TokenizerSettings,
)
from kermit.training.task import TRAINING_TASKS, Task, serves
from kermit.validated_settings import FactorizationMix, OrderMix, Settings

DEFAULT_TASK = "translation"

_T = TypeVar("_T")


class Recipe(Settings):
    """A training run. `factorizations` are what is generated from what, with weights.

    `data` and `evaluation` have the task's schema, `model`, `objective` and `decoding` the family's.

    `orders` are the insertion orders for models with cached context: names of priors, with weights. `imports` are
    modules that register the custom priors, objectives, families and tasks that the recipe uses.
    """

    description: str = ""
    seed: Seed = 1
    imports: tuple[str, ...] = ()
    task: str = DEFAULT_TASK
    data: Any
    tokenizer: TokenizerSettings
    model: Any
    objective: Any
    decoding: Any
    factorizations: FactorizationMix = Field(min_length=1)
    orders: OrderMix | None = None
    init_from: str | None = None
    batch: BatchSettings = BatchSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings
    averaging: AveragingSettings = AveragingSettings()
    evaluation: Any
    checkpoints: CheckpointSettings = CheckpointSettings()
    runtime: RuntimeSettings = RuntimeSettings()

    @model_validator(mode="after")
    def _something_to_replace(self) -> Recipe:
        if self.tokenizer.replaces and self.init_from is None:
            raise ValueError("tokenizer.replaces needs init_from, the model whose tokenizer is replaced")
        return self


_VARIABLE = re.compile(r"\$\{(\w+)\}")

# Keys that may change on resume: its length, evaluation, logging, and the number of processes that
# prepare batches, which does not affect the batches. A new schedule applies from the checkpoint on.
RESUMABLE_CHANGES = (
    "description",
    "schedule.max_minutes",
    "schedule.max_steps",
    "schedule.cooldown_steps",
    "evaluation",
    "checkpoints",
    "runtime.log_every",
    "runtime.workers",
    "decoding",
)


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe with its task, its family and the folder that its data paths are relative to."""

    recipe: Recipe
    task: Task
    family: Family
    data: Path

    @property
    def sources(self) -> list[Any]:
        """The sources of training text, with their paths below the data folder."""
        return [source.under(self.data) for source in self.recipe.data.train]


def load_recipe(path: str | Path, *, data: str | Path | None = None, overrides: Sequence[str] = ()) -> LoadedRecipe:
    """Read and check a recipe.

    Relative paths in it are relative to `data`, which defaults to KERMIT_DATA, or else to the current folder. Each of
    `overrides` is `a.b=value`, with a YAML value; list items are addressed by number.
    """
    path = Path(path)
    raw = read_keys(path)
    for override in overrides:
        _override(raw, override)
    folder = Path(data or os.environ.get("KERMIT_DATA") or ".").expanduser()
    return check_recipe(raw, data=folder, where=str(path))


def read_keys(path: Path, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read the keys of a recipe, merged over those of the recipe in the same folder that it `extends`, if any."""
    if path.is_dir():
        raise RecipeError(f"{path} is a folder; name a recipe in it")
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        named = f"; {below[-1]} extends it" if below else ""
        raise RecipeError(f"{path}: the recipe does not exist{named}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        problem = getattr(error, "problem", None) or in_a_line(error)
        raise RecipeError(f"{path}{place}: invalid YAML: {problem}") from error
    if not isinstance(raw, dict):
        found = "is empty" if raw is None else f"holds a {type(raw).__name__}"
        raise RecipeError(f"{path} {found}; a recipe must be a mapping of keys to values")
    raw = cast("dict[str, Any]", _expanded(raw, str(path)))
    name = raw.pop("extends", None)
    if name is None:
        return raw
    base = path.parent / str(name)
    if base.resolve() in (path.resolve(), *below):
        raise RecipeError(f"{path}: extends: {name} in turn extends this recipe; break the cycle")
    return _laid_over(read_keys(base, (*below, path.resolve())), raw)


def _expanded(value: Any, place: str) -> Any:
    """Replace every `${NAME}` in strings by the environment variable."""
    if isinstance(value, dict):
        return {key: _expanded(inner, f"{place}: {key}") for key, inner in value.items()}
    if isinstance(value, list):
        return [_expanded(inner, place) for inner in value]
    if not isinstance(value, str):
        return value
    for name in _VARIABLE.findall(value):
        if name not in os.environ:
            raise RecipeError(
                f"{place}: the environment variable {name} is not set; set it, for example to the path of a folder"
            )
    return _VARIABLE.sub(lambda match: os.environ[match.group(1)], value)


def _laid_over(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Merge sections key by key; any other value, lists included, replaces the base's, and null removes the key."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.pop(key, None)
        if value is None:
            continue
        merged[key] = _laid_over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def check_recipe(raw: dict[str, Any], *, data: Path, where: str = "recipe") -> LoadedRecipe:
    """Validate a recipe that was already read."""
    _import(raw.get("imports"), f"{where}: imports")
    task = _chosen(TRAINING_TASKS, raw.get("task", DEFAULT_TASK), f"{where}: task")
    model = raw.get("model")
    name = model.get("family") if isinstance(model, dict) else None
    family = _chosen(FAMILIES, name, f"{where}: model.family")
    if not serves(family, task):
        serving = [name for name in FAMILIES.names() if serves(FAMILIES.get(name), task)]
        remedy = f"choose one of {', '.join(serving)}" if serving else "name its families in `register_task`"
        raise RecipeError(f"{where}: model.family: {family.name} does not support the task {task.name}; {remedy}")
    decoding = family.decoding_settings if task.decodes else Settings
    schema = create_model(
        "Recipe",
        __base__=Recipe,
        data=(task.data_settings, ...),
        model=(family.model_settings, ...),
        objective=(family.objective_settings, family.objective_settings()),
        decoding=(decoding, decoding()),
        factorizations=(FactorizationMix, Field(default=task.factorizations, min_length=1)),
        evaluation=(task.evaluation_settings, task.evaluation_settings()),
    )
    try:
        recipe = schema.model_validate(raw)
    except ValidationError as error:
        lines = [f"{where}: {_explain(problem, schema)}" for problem in _causes(error)]
        raise RecipeError("\n".join(lines)) from error
    if not getattr(family, "mixes_orders", False):
        refuse_orders(recipe, "a family that mixes orders, such as kermit")
    family.check(recipe)
    task.check(recipe)
    return LoadedRecipe(recipe=recipe, task=task, family=family, data=data)


def _import(modules: Any, place: str) -> None:
    """Import the modules that a recipe lists; values of other types are rejected by the schema later."""
    for name in modules if isinstance(modules, list | tuple) else ():
        try:
            importlib.import_module(str(name))
        except ImportError as error:
            raise RecipeError(
                f"{place}: {name} cannot be imported: {in_a_line(error)}; install it, or add its folder to PYTHONPATH"
            ) from error


def dump_recipe(recipe: Recipe) -> str:
    """Format the recipe as YAML, including defaults."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _override(raw: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise RecipeError(f"--set {override}: write it as key=value, for example schedule.max_steps=100")
    *parents, last = key.split(".")
    place: Any = raw
    for parent in parents:
        name = _name_in(place, parent, key)
        place = place.setdefault(name, {}) if isinstance(place, dict) else place[name]
    try:
        place[_name_in(place, last, key)] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"--set {override}: {text!r} is not valid YAML") from error


def _name_in(section: Any, name: str, key: str) -> Any:
    """Return `name` as a key of a section, or as the index of a list item."""
    if isinstance(section, dict):
        return name
    if not isinstance(section, list):
        raise RecipeError(f"--set {key}: {name!r} is below a plain value, which has no keys")
    if not name.isdecimal() or int(name) >= len(section):
        raise RecipeError(f"--set {key}: {name!r} is not an index of the list, 0 to {len(section) - 1}")
    return int(name)


def _causes(error: ValidationError) -> list[Any]:
    """Return the problems that no deeper problem explains, such as a list that lacks only its invalid items."""
    problems = error.errors()
    parents = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    return [problem for problem in problems if problem["loc"] not in parents]


def _explain(problem: Any, schema: type[BaseModel]) -> str:
    location = [str(part) for part in problem["loc"] if part != "[key]"]
    path = ".".join(location) or "recipe"
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _fields_at(schema, problem["loc"][:-1])
        return f"{path}: unknown key{nearest(location[-1], known)}; known here: {', '.join(known)}"
    if problem["type"] == "missing":
        return f"{path}: required key is missing"
    shown = "" if isinstance(problem["input"], dict) else f", not {problem['input']!r}"
    return f"{path}: {problem['msg'].removeprefix('Value error, ')}{shown}"


def _chosen(registry: Registry[_T], name: Any, place: str) -> _T:
    if name not in (known := registry.names()):
        raise RecipeError(f"{place}: {name!r} is not one of {', '.join(known)}{nearest(str(name), known)}")
    return registry.get(name)


def _fields_at(schema: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """List the keys that the schema allows at a location; indices of list items are skipped."""
    keys = _annotations(schema)
    for part in location:
        if isinstance(part, str):
            section = next(_sections_in(keys.get(part)), None)
            keys = {} if section is None else _annotations(section)
    return list(keys)


def _annotations(section: type[Any]) -> dict[str, Any]:
    """Return the types of a section's keys."""
    if issubclass(section, BaseModel):
        return {name: field.annotation for name, field in section.model_fields.items()}
    return {field.name: field.type for field in fields(section)}


def _sections_in(annotation: Any) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections_in(inner)
