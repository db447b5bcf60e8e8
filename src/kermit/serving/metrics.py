"""Counters of the service, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_ROUNDS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 250)


class Metrics:
    """The counters of one service; `queue_depth` is called on every scrape."""

    def __init__(self, queue_depth: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("kermit_requests", "Requests answered.", ["route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "kermit_request_seconds",
            "Time from request to answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batch_size = Histogram(
            "kermit_batch_size", "Texts computed together.", buckets=_POWERS, registry=self.registry
        )
        self.rounds = Histogram("kermit_rounds", "Rounds per text.", buckets=_ROUNDS, registry=self.registry)
        self.abandoned = Counter(
            "kermit_abandoned", "Requests abandoned: past their deadline or disconnected.", registry=self.registry
        )
        depth = Gauge("kermit_queue_depth", "Texts waiting.", registry=self.registry)
        depth.set_function(queue_depth)

    def text(self) -> bytes:
        """Return all counters in Prometheus's text format."""
        return generate_latest(self.registry)
