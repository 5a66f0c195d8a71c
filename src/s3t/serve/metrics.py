"""Numbers for Prometheus. Counts are added up over a server's workers; the run's state is read when it is asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from s3t.run import Run

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts of one process, which answers for all workers where there are several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter("s3t_requests", "Requests.", ("method", "route", "status"), registry=self.registry)
        self._seconds = Histogram(
            "s3t_request_seconds",
            "Time from a request to its answer.",
            ("route",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._inputs = Counter("s3t_inputs", "Inputs answered.", ("run",), registry=self.registry)
        self._deleted = Counter(
            "s3t_deleted_records", "Records deleted through this server.", ("run",), registry=self.registry
        )

    def requested(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def answered(self, run: str, inputs: int) -> None:
        """Count answers."""
        self._inputs.labels(run).inc(inputs)

    def deleted(self, run: str, records: int) -> None:
        """Count deleted records."""
        self._deleted.labels(run).inc(records)

    def page(self, runs: Sequence[tuple[str, Run]]) -> bytes:
        """All numbers, in Prometheus's text format."""
        counts = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            counts = CollectorRegistry()
            multiprocess.MultiProcessCollector(counts)
        states = CollectorRegistry()
        states.register(_States(runs))
        return bytes(generate_latest(counts) + generate_latest(states))


class _States:
    """The state of runs, as the ledger has it."""

    def __init__(self, runs: Sequence[tuple[str, Run]]) -> None:
        self._runs = runs

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Gauges of every run."""
        depth = GaugeMetricFamily("s3t_depth", "Slices with which a shard serves; 0: dead.", labels=("run", "shard"))
        plain = {
            name: GaugeMetricFamily(f"s3t_{name}", text, labels=("run",))
            for name, text in {
                "generation": "Deletions that were accepted.",
                "records": "Records present.",
                "missing_stages": "Stages that a repair would train.",
                "unfinished_deletions": "Deletions that are accepted and not erased yet.",
                "oldest_unfinished_seconds": "Age of the oldest of them.",
                "held_deletions": "Requests for deletion that wait for an operator.",
                "deletions_to_first_dead_shard": "Expected, without repair.",
            }.items()
        }
        for name, run in self._runs:
            status = run.status()
            for shard, slices in enumerate(status.depths):
                depth.add_metric((name, str(shard)), slices)
            oldest = min((entry.received_at for entry in status.unfinished), default=None)
            forecast = status.forecast
            values = {
                "generation": status.generation,
                "records": status.records,
                "missing_stages": status.missing,
                "unfinished_deletions": len(status.unfinished),
                "oldest_unfinished_seconds": 0.0 if oldest is None else time.time() - oldest,
                "held_deletions": len(run.approvals.waiting()),
                "deletions_to_first_dead_shard": None if forecast is None else forecast.next_shard_dies,
            }
            for key, value in values.items():
                if value is not None:
                    plain[key].add_metric((name,), value)
        yield depth
        yield from plain.values()
