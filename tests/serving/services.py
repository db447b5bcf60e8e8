"""A small model that has memorised six pairs, and a service that runs it on a free port."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from tiny import EN_DE, bert, kermit_model, save

from kermit import BalancedTreePrior, Factorization, Kermit
from kermit.canvas import CanvasBatch
from kermit.data.joint_tokenizer import train_tokenizer
from kermit.engines import Answer, Asked, Rows
from kermit.modeling import as_tensors
from kermit.objectives.objective import KeptSampling, SlotObjective
from kermit.objectives.training_canvases import Texts
from kermit.serving.app import create_app
from kermit.serving.server import Server, listen
from kermit.serving.service import Service
from kermit.serving.settings import ServiceSettings
from kermit.text.tokenizer import encode_texts

PAIRS = [
    ("A dog sleeps.", "Ein Hund schläft."),
    ("Two dogs sleep.", "Zwei Hunde schlafen."),
    ("A man rides a red bike.", "Ein Mann fährt ein rotes Rad."),
    ("Two girls run over the street.", "Zwei Mädchen laufen über die Straße."),
]
ENGLISH, GERMAN = (list(side) for side in zip(*PAIRS, strict=True))
WAYS = (Factorization.Y_GIVEN_X, Factorization.X_GIVEN_Y, Factorization.JOINT)
PATIENCE = 120.0
"""Timeout in seconds, generous for a busy machine."""


def learn(folder: Path, steps: int = 300) -> None:
    """Train a tiny model on the pairs until it has memorised them."""
    texts = [text for pair in PAIRS for text in pair]
    tokenizer = train_tokenizer([*texts, *(f" {word}" for text in texts for word in text.split())] * 2, 520)
    trunk = bert(tokenizer, width=48, layers=2, heads=4, positions=100)
    ways = [way.value for way in WAYS]
    model = kermit_model(tokenizer, trunk, slot_vector="both", factorizations=ways, **EN_DE)
    rows = [[encode_texts(tokenizer, [text])[0] for text in pair] for pair in PAIRS] * len(WAYS)
    batch = CanvasBatch.from_segments(model.specials, rows)
    complete = Texts.of(batch, [way for way in WAYS for _ in PAIRS])
    prior, generator = BalancedTreePrior(temperature=0.1), np.random.default_rng(0)
    objectives = [SlotObjective(prior, kept=kept) for kept in (KeptSampling.PRIOR, KeptSampling.UNIFORM)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.98), fused=True)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 8e-3 * min(1.0, (step + 1) / 30) * (1 - step / steps)
        loss = model(**as_tensors(objectives[step % 2].sample(complete, generator).model_inputs())).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    save(model, tokenizer, folder)


@dataclass
class Live:
    """A running service."""

    url: str
    client: httpx.Client
    service: Service
    server: Server

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def metric(self, name: str, **labels: str) -> float:
        """The value of a Prometheus counter, by name and labels."""
        return self.service.metrics.registry.get_sample_value(name, labels) or 0.0


@contextmanager
def running(kermit: Kermit, **settings: Any) -> Iterator[Live]:
    """A service on a free port, until the block ends."""
    app = create_app(kermit, ServiceSettings(**{"deadline": PATIENCE, "max_tokens": 64} | settings))
    door = listen("127.0.0.1", 0)
    server = Server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
    thread.start()
    url = f"http://127.0.0.1:{door.getsockname()[1]}"
    token = {"Authorization": f"Bearer {settings['token']}"} if settings.get("token") else {}
    limits = httpx.Limits(max_connections=100)
    try:
        with httpx.Client(base_url=url, timeout=PATIENCE, headers=token, limits=limits) as client:
            yield Live(url, client, app.state.service, server)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


@contextmanager
def held(service: Service) -> Iterator[list[list[str]]]:
    """Keep the worker from computing until the block ends; yields the computed batches."""
    door, real, batches = threading.Event(), service.model.answer, list[list[str]]()

    def answer(jobs: Any) -> Any:
        assert door.wait(PATIENCE)
        batches.append([type(job.request).__name__ for job in jobs])
        return real(jobs)

    service.model.answer = answer  # type: ignore[method-assign]
    try:
        yield batches
    finally:
        door.set()


@contextmanager
def slowed(service: Service, seconds: float = 0.5) -> Iterator[list[int]]:
    """Make every forward pass take this long until the block ends; yields the number of canvases of each."""
    engine, passes = service.model.kermit.engine, list[int]()
    real = engine.ask

    def slow(rows: Rows, asked: Asked) -> Answer:
        passes.append(len(rows.token_ids))
        time.sleep(seconds)
        return real(rows, asked)

    engine.ask = slow  # type: ignore[method-assign]
    try:
        yield passes
    finally:
        del engine.ask  # type: ignore[method-assign]


def until(true: Callable[[], bool]) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
