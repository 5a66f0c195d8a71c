"""Numbers for Prometheus. Counts are added up over a server's workers; the run's state is read when it is asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from s3t.results.base import utc

if TYPE_CHECKING:
    from s3t.results.state import Forecast, Status
    from s3t_server.page.board import Look
    from s3t_server.served import ServedRun

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
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def answered(self, run: str, inputs: int) -> None:
        self._inputs.labels(run).inc(inputs)

    def deleted(self, run: str, records: int) -> None:
        self._deleted.labels(run).inc(records)

    def page(self, runs: Sequence[ServedRun]) -> bytes:
        """All numbers, in Prometheus's text format."""
        several = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        counts = multiprocess.MultiProcessCollector(None) if several else self.registry
        return bytes(generate_latest(counts) + generate_latest(_States(runs)))


@dataclass(eq=False)
class _States:
    """The state of runs and their forecasts, as their ledgers have it: the same at every worker and replica."""

    runs: Sequence[ServedRun]

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("s3t_depth", "Slices with which a shard serves; 0: dead.", labels=("run", "shard"))
        gauges: dict[str, Metric] = {}
        lost = CounterMetricFamily(
            "s3t_lost_sessions",
            "Open runs that counted as dead: their lease ran out, or their process was gone.",
            labels=("run",),
        )
        for served in self.runs:
            status, look = served.run.status(), served.board.look()
            for shard, slices in enumerate(status.depths):
                depth.add_metric((served.name, str(shard)), slices)
            with served.run.parts.ledger.reading() as transaction:
                lost.add_metric((served.name,), transaction.sessions.lost())
                silences = transaction.sessions.silences()
            for name, (text, value) in _gauges(status, look, silences, served.board.forecast(look)).items():
                gauge = gauges.setdefault(name, GaugeMetricFamily(f"s3t_{name}", text, labels=("run",)))
                if value is not None:
                    gauge.add_metric((served.name,), value)
        yield depth
        yield from gauges.values()
        yield lost


def _gauges(
    status: Status, look: Look, silences: Sequence[float], forecast: Forecast | None
) -> dict[str, tuple[str, float | None]]:
    """Gauges of a run, each with its text; None: a forecast expects nothing. `silences` are those of its sessions."""
    now = utc(time.time())
    ineffective = [entry for entry in status.unfinished if entry.effective_at is None]
    # One that was held was received long before it was accepted.
    ineffective_for = max((now - (entry.accepted_at or now) for entry in ineffective), default=timedelta())
    unfinished_for = max((now - entry.received_at for entry in status.unfinished), default=timedelta())
    running = [repair for repair in look.repairs if repair.state == "running"]
    last = next((repair for repair in look.repairs if repair.ended_at is not None), None)  # the newest is first
    falls = forecast.depth_falls_below if forecast else {}
    next_dies, last_dies = (forecast.next_shard_dies, forecast.all_shards_die) if forecast else (None, None)
    less_depth = falls[max(falls)] if falls else next_dies
    expected = "Expected number of deletions, without repair, until"
    return {
        "generation": ("Deletions that were accepted.", status.generation),
        "records": ("Records present.", status.records),
        "records_to_learn": ("Records that were added and that no serving model has learned.", status.to_learn),
        "slices": ("Slices with which a shard serves while nothing is lost.", status.wanted_depth),
        "missing_stages": ("Stages that a repair would train.", status.missing),
        "ineffective_deletions": ("Deletions that are accepted and not effective yet.", len(ineffective)),
        "oldest_ineffective_seconds": (
            "Seconds since acceptance of the oldest deletion that is not effective.",
            ineffective_for.total_seconds(),
        ),
        "unfinished_deletions": ("Deletions that are accepted and not erased yet.", len(status.unfinished)),
        "oldest_unfinished_seconds": (
            "Seconds since receipt of the oldest deletion that is not erased.",
            unfinished_for.total_seconds(),
        ),
        "erasure_overdue_seconds": (
            "Seconds by which the oldest such deletion exceeds deletion.erase_within; 0: none.",
            max(0.0, unfinished_for.total_seconds() - status.erase_within),
        ),
        "held_deletions": (
            "Requests for deletion that wait for an operator.",
            sum(held.state == "held" for held in look.held),
        ),
        "deletions_to_less_depth": (f"{expected} the shallowest shard loses depth.", less_depth),
        "deletions_to_first_dead_shard": (f"{expected} one more shard dies.", next_dies),
        "deletions_to_last_dead_shard": (f"{expected} no shard is alive.", last_dies),
        "sessions": (
            "Open runs that predict or train and count as alive: servers' workers, and trainers.",
            len(silences),
        ),
        "oldest_heartbeat_seconds": (
            "Seconds since the heartbeat of the open run that has been silent longest.",
            max(silences, default=0.0),
        ),
        "repair_running": ("1 while a server's repair runs or waits to be taken up.", len(running)),
        "repair_share": (
            "Share of the running repair that is done; 0: none runs.",
            running[0].share if running else 0.0,
        ),
        "last_repair_failed": (
            "1 if the server's repair that ended last has failed.",
            float(last is not None and last.state == "failed"),
        ),
    }
