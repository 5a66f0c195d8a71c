"""Numbers for Prometheus. Counts are added up over a server's workers; the run's state is read when it is asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from s3t.results.base import utc
from s3t.results.serving import Repair
from s3t.run.reporting import forecast_now

if TYPE_CHECKING:
    from s3t.core import Inventory
    from s3t.ledger import Transaction
    from s3t.results.state import Forecast, Status
    from s3t.run import Run

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts of one process, which answers for all workers where there are several."""

    def __init__(self) -> None:
        self._forecasts: dict[str, tuple[Inventory, Forecast | None]] = {}
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

    def page(self, runs: Sequence[tuple[str, Run]]) -> bytes:
        """All numbers, in Prometheus's text format."""
        counts = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            counts = CollectorRegistry()
            multiprocess.MultiProcessCollector(counts)
        states = CollectorRegistry()
        states.register(_States({name: (run, self._forecast(name, run)) for name, run in runs}))
        return bytes(generate_latest(counts) + generate_latest(states))

    def _forecast(self, name: str, run: Run) -> Forecast | None:
        """The run's forecast, simulated once for a state of the run: nothing else of a scrape takes long."""
        known, inventory = self._forecasts.get(name), run.inventory()
        if known is None or known[0] != inventory:
            known = self._forecasts[name] = inventory, forecast_now(inventory, run.recipe)
        return known[1]


_GAUGES = {
    "generation": "Deletions that were accepted.",
    "records": "Records present.",
    "slices": "Slices with which a shard serves while nothing is lost.",
    "missing_stages": "Stages that a repair would train.",
    "ineffective_deletions": "Deletions that are accepted and not effective yet.",
    "oldest_ineffective_seconds": "Seconds since acceptance of the oldest deletion that is not effective.",
    "unfinished_deletions": "Deletions that are accepted and not erased yet.",
    "oldest_unfinished_seconds": "Seconds since receipt of the oldest deletion that is not erased.",
    "erasure_overdue_seconds": "Seconds by which the oldest such deletion exceeds deletion.erase_within; 0: none.",
    "held_deletions": "Requests for deletion that wait for an operator.",
    "deletions_to_less_depth": "Expected number of deletions, without repair, until the shallowest shard loses depth.",
    "deletions_to_first_dead_shard": "Expected number of deletions, without repair, until one more shard dies.",
    "deletions_to_last_dead_shard": "Expected number of deletions, without repair, until no shard is alive.",
    "sessions": "Open runs that predict or train and count as alive: servers' workers, and trainers.",
    "oldest_heartbeat_seconds": "Seconds since the heartbeat of the open run that has been silent longest.",
    "repair_running": "1 while a server's repair runs or waits to be taken up.",
    "repair_share": "Share of the running repair that is done; 0: none runs.",
    "last_repair_failed": "1 if the server's repair that ended last has failed.",
}


@dataclass(eq=False)
class _States:
    """The state of runs and their forecasts, as their ledgers have it: the same at every worker and replica."""

    runs: Mapping[str, tuple[Run, Forecast | None]]

    def collect(self) -> Iterator[Metric]:
        """All of them; of a forecast nothing where nothing is expected."""
        depth = GaugeMetricFamily("s3t_depth", "Slices with which a shard serves; 0: dead.", labels=("run", "shard"))
        gauges = {name: GaugeMetricFamily(f"s3t_{name}", text, labels=("run",)) for name, text in _GAUGES.items()}
        lost = CounterMetricFamily(
            "s3t_lost_sessions",
            "Open runs that counted as dead: their lease ran out, or their process was gone.",
            labels=("run",),
        )
        for name, (run, forecast) in self.runs.items():
            status = run.status()
            for shard, slices in enumerate(status.depths):
                depth.add_metric((name, str(shard)), slices)
            with run.parts.ledger.reading() as transaction:
                lost.add_metric((name,), transaction.sessions.lost())
                values = _of_status(status) | _of_ledger(transaction) | _of_forecast(forecast)
            for gauge, value in values.items():
                if value is not None:
                    gauges[gauge].add_metric((name,), value)
        yield depth
        yield from gauges.values()
        yield lost


def _of_status(status: Status) -> dict[str, float | None]:
    now = utc(time.time())
    ineffective = [entry for entry in status.unfinished if entry.effective_at is None]
    oldest = max((now - entry.received_at for entry in status.unfinished), default=timedelta()).total_seconds()
    # One that was held was received long before it was accepted.
    unserved = max((now - (entry.accepted_at or now) for entry in ineffective), default=timedelta()).total_seconds()
    return {
        "generation": status.generation,
        "records": status.records,
        "slices": status.wanted_depth,
        "missing_stages": status.missing,
        "ineffective_deletions": len(ineffective),
        "oldest_ineffective_seconds": unserved,
        "unfinished_deletions": len(status.unfinished),
        "oldest_unfinished_seconds": oldest,
        "erasure_overdue_seconds": max(0.0, oldest - status.erase_within),
    }


def _of_ledger(transaction: Transaction) -> dict[str, float | None]:
    silences, repairs = transaction.sessions.silences(), transaction.rows.all(Repair)
    running = [repair for repair in repairs if repair.state == "running"]
    last = next((repair for repair in repairs if repair.ended_at is not None), None)  # the newest is first
    return {
        "held_deletions": len(transaction.held.waiting()),
        "sessions": len(silences),
        "oldest_heartbeat_seconds": max(silences, default=0.0),
        "repair_running": len(running),
        "repair_share": running[0].share if running else 0.0,
        "last_repair_failed": float(last is not None and last.state == "failed"),
    }


def _of_forecast(forecast: Forecast | None) -> dict[str, float | None]:
    if forecast is None:
        return {}
    falls = forecast.depth_falls_below
    return {
        "deletions_to_less_depth": falls[max(falls)] if falls else forecast.next_shard_dies,
        "deletions_to_first_dead_shard": forecast.next_shard_dies,
        "deletions_to_last_dead_shard": forecast.all_shards_die,
    }
