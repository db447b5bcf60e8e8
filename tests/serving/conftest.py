"""The model that has memorised its pairs, and a service that the tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from insertion_models import cached_model_of
from services import PAIRS, Live, learn, running

from kermit import Kermit
from kermit.data.cache import made_once
from kermit.data.joint_tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model; trained once, whatever the number of test processes."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if shared.name.startswith("popen-") else shared
    return made_once(shared / "by-heart", learn)


@pytest.fixture(scope="session")
def kermit(folder: Path) -> Kermit:
    """The pipeline; it may serve one service after the other."""
    return Kermit.from_pretrained(folder, device="cpu")


@pytest.fixture(scope="session")
def live(kermit: Kermit) -> Iterator[Live]:
    with running(kermit) as service:
        yield service


@pytest.fixture(scope="session")
def ordered_kermit() -> Kermit:
    """A pipeline that inserts in rounds or from left to right; untrained."""
    tokenizer = train_tokenizer([text for pair in PAIRS for text in pair] * 3, 320)
    return Kermit(cached_model_of(tokenizer), tokenizer)


@pytest.fixture(scope="session")
def ordered(ordered_kermit: Kermit) -> Iterator[Live]:
    """A service that runs the model."""
    with running(ordered_kermit) as service:
        yield service
