"""Shared fixtures: a small parallel corpus, a recipe for it, and a cache folder."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is not a failure
hypothesis.settings.load_profile("patient")

WORDS = {
    "one": "eins",
    "two": "zwei",
    "three": "drei",
    "dogs": "Hunde",
    "girls": "Mädchen",
    "sleep": "schlafen",
    "run": "laufen",
    "over": "über",
    "green": "grüne",
    "streets": "Straßen",
}


TRAINING_FIXTURES = {"teacher", "learned"}
"""Fixtures that train a model."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as slow that need a trained model."""
    for item in items:
        if TRAINING_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _only_slow_tests_train(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make check` trains nothing: a test that does must be marked slow."""
    if request.node.get_closest_marker("slow") is None and "transformers" in sys.modules:

        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("this test trains a model; mark it slow")

        monkeypatch.setattr("transformers.Trainer.train", refuse)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERMIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("KERMIT_DATA", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tensors here are tiny, so more threads would only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train (240), val and test (12 each) in en and de: word-for-word translations."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(7)
    for split, size in {"train": 240, "val": 12, "test": 12}.items():
        english = [" ".join(draw.choices(list(WORDS), k=draw.randint(1, 7))) + "." for _ in range(size)]
        german = [" ".join(WORDS[word] for word in line[:-1].split()) + "." for line in english]
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in english), encoding="utf-8")
        (folder / f"{split}.de").write_text("".join(f"{line}\n" for line in german), encoding="utf-8")
    return folder


@pytest.fixture
def tiny_recipe() -> dict[str, Any]:
    """A Transformer recipe that trains in a second or two."""
    return {
        "seed": 3,
        "data": {
            "languages": {"x": "en", "y": "de"},
            "train": [{"name": "tiny", "x": "train.en", "y": "train.de"}],
            "validation": {"x": "val.en", "y": "val.de"},
            "max_tokens": 40,
        },
        "tokenizer": {"vocab_size": 320, "texts": ["train.en", "train.de"]},
        "factorizations": {"y_given_x": 1.0},
        "model": {
            "family": "transformer",
            "width": 16,
            "feedforward": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "heads": 2,
            "dropout": 0.1,
            "max_positions": 64,
        },
        "decoding": {"beams": 1, "max_tokens": 12},
        "batch": {"tokens": 500},
        "optimizer": {"learning_rate": 0.01},
        "schedule": {"max_steps": 12, "warmup_steps": 2},
        "averaging": {"ema": 0.9},
        "evaluation": {"every": 6, "texts": 4},
        "checkpoints": {"every": 4, "keep": 2},
        "runtime": {"log_every": 4},
    }


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """A briefly trained Transformer."""
    from kermit.training.recipe import check_recipe
    from kermit.training.run import train

    folder = tmp_path_factory.mktemp("teacher")
    recipe = {
        "data": {"languages": {"x": "en", "y": "de"}, "train": [{"x": "train.en", "y": "train.de"}]},
        "tokenizer": {"vocab_size": 320, "texts": ["train.en", "train.de"]},
        "model": {
            "family": "transformer",
            "width": 16,
            "feedforward": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "dropout": 0,
        },
        "batch": {"tokens": 1500},
        "optimizer": {"learning_rate": 0.02},
        "schedule": {"max_steps": 120, "warmup_steps": 10},
    }
    train(check_recipe(recipe, data=corpus), folder)
    return folder
