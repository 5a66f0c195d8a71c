"""Results of the run's methods. Each has `to_json()`: the document that the command line prints with --json."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from s3t.bugs import log_failure
from s3t.errors import PlanningError, S3TError
from s3t.inventory import Inventory, Serving
from s3t.ledger import Export, LogEntry, State
from s3t.ledger.state import utc
from s3t.partition import Place
from s3t.planning.forecast import Forecast
from s3t.recipe import Recipe
from s3t.run.advice import empty_slices, few_steps
from s3t.run.forecasting import forecast_of
from s3t.stages import Stage
from s3t.store import Artifacts
from s3t.training_events import StageEnd
from s3t.wording import counted

_SHOWN = 5
"""Mismatches that a report's `repr` lists."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """Live stages and serving prefixes, at one generation."""

    inventory: Inventory
    outage: tuple[str, ...]
    """A warning of shards that do not answer, or none; also among `warnings`."""
    gaps: tuple[str, ...]
    """Sentences about where exactness does not hold; none for a declared label set."""
    warnings: tuple[str, ...]
    missing: int
    """Stages that `train` or `repair` would train."""
    missing_hours: float | None
    """Hours in which one process trains them, by the times of the run's live stages; None without such times."""
    unfinished: tuple[LogEntry, ...]
    """Deletions that are accepted, and not erased yet; the log's."""
    exports: tuple[Export, ...]
    """Exports that are not withdrawn, the oldest first."""
    to_withdraw: tuple[Export, ...]
    """Exports that hold a deleted record; its deletion counts as erased only when they are withdrawn."""
    ledger: str
    """The ledger's database: SQLite, or PostgreSQL and its host."""
    store: Artifacts = field(repr=False)
    """Store of the run's artifacts."""
    recipe: Recipe = field(repr=False)
    """The run's recipe."""
    labels: int
    """Number of labels; 0 where the task has none."""

    @property
    def generation(self) -> int:
        """The ledger's counter: one more with every deletion."""
        return self.inventory.generation

    @property
    def records(self) -> int:
        """Records present."""
        return sum(self.inventory.records.values())

    @property
    def depths(self) -> tuple[int, ...]:
        """The serving depth of every shard, 0 for one that does not answer."""
        return self.inventory.depths()

    @property
    def answering(self) -> set[int]:
        """Shards that answer, with their model or with prototypes alone."""
        return self.inventory.answering(prototypes_alone=self.recipe.prediction.prototypes_alone)

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of the live artifacts. Computed on first access, since it looks at every file."""
        return self.store.nbytes((stage.shard, key) for stage, key in self.inventory.alive.items())

    @cached_property
    def forecast(self) -> Forecast | None:
        """Expected number of further deletions that the run takes, without repair. Computed on first access.

        None if it cannot be computed, since the rest of the status is still wanted then.
        """
        try:
            return forecast_of(self.inventory, self.recipe)
        except (ArithmeticError, MemoryError, ValueError, PlanningError) as error:
            log_failure(error, command="forecast", level=logging.WARNING)
            return None

    @cached_property
    def advice(self) -> tuple[str, ...]:
        """Warnings of how the recipe fits the records that are present. Computed when it is asked for."""
        return (*empty_slices(self.inventory), *few_steps(self.inventory, self.recipe, labels=self.labels))

    def __repr__(self) -> str:
        """The result in one line."""
        depths = " ".join(map(str, self.depths))
        missing = f", {counted(self.missing, 'stage')} missing" if self.missing else ""
        unfinished = f", {counted(len(self.unfinished), 'deletion')} not erased yet" if self.unfinished else ""
        withdraw = f", {counted(len(self.to_withdraw), 'export')} to withdraw" if self.to_withdraw else ""
        noted = f", {counted(len(self.warnings) + len(self.gaps), 'warning')}" if self.warnings or self.gaps else ""
        return (
            f"Status(generation {self.generation}, {counted(self.records, 'record')}, depths {depths}"
            f"{missing}{unfinished}{withdraw}{noted})"
        )

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t status --json`."""
        classifiers = self.inventory.classifiers()
        return {
            "method": self.recipe.method.described(),
            "generation": self.generation,
            "records": self.records,
            "stored_bytes": self.stored_bytes,
            "missing_stages": self.missing,
            "missing_hours": self.missing_hours,
            "shards": [self._shard(shard, classifiers.get(shard)) for shard in range(len(self.inventory.orders))],
            "gaps": list(self.gaps),
            "warnings": [*self.warnings, *self.advice],
            "unfinished": [
                {**entry.to_json(), "erased_by": utc(entry.received_at + self.recipe.deletion.erase_within)}
                for entry in self.unfinished
            ],
            "exports": [{**export.to_json(), "to_withdraw": export in self.to_withdraw} for export in self.exports],
            "ledger": self.ledger,
            "forecast": None if self.forecast is None else self.forecast.to_json(),
        }

    def _shard(self, shard: int, classifier: Stage | None) -> dict[str, Any]:
        inventory = self.inventory
        orders = inventory.orders[shard]
        return {
            "shard": shard,
            "slices": [inventory.records[Place(shard, index)] for index in range(inventory.slices)],
            "sequences": [{"order": list(order), "depth": inventory.depth(shard, order)} for order in orders],
            "serving": _serving_json(inventory.serving(shard)),
            **({"prototypes": list(classifier.prefix)} if classifier is not None else {}),
        }


def _summary_json(end: StageEnd) -> dict[str, Any]:
    validation = {} if end.validation is None else {"validation": end.validation}
    losses = [loss if math.isfinite(loss) else None for loss in end.losses]
    numbers = {"steps": end.steps, "losses": losses, "seconds": round(end.seconds, 3)}
    return {**end.stage.to_json(), **numbers, **validation}


def _serving_json(serving: Serving | None) -> dict[str, Any] | None:
    return None if serving is None else {"order": list(serving.order), "depth": serving.depth}


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """Result of `train`, `repair` or `extend`."""

    stages: tuple[Stage, ...]
    """Every stage trained: shard, prefix and kind."""
    summaries: tuple[StageEnd, ...] = field(repr=False)
    """Losses, steps and seconds of each. They are functions of private records: the run keeps seconds alone, in the
    ledger, and no longer than the stage lives."""
    discarded: int
    """Stages thrown away because a record was deleted meanwhile."""
    seconds: float
    status: Status

    def __repr__(self) -> str:
        """The result in one line."""
        discarded = f", {self.discarded} thrown away" if self.discarded else ""
        return (
            f"TrainReport({counted(len(self.stages), 'stage')} trained in {self.seconds:.1f} s{discarded}, "
            f"{counted(self.status.missing, 'stage')} missing)"
        )

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t train --json` and `s3t repair --json`, and in that of `s3t extend --json`."""
        return {
            "trained": len(self.stages),
            "stages": [_summary_json(end) for end in self.summaries],
            "discarded": self.discarded,
            "seconds": round(self.seconds, 3),
            "status": self.status.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class DeletionReport:
    """Result of a deletion; with `dry_run`, its forecast."""

    dry_run: bool
    deleted: int
    """Records that were deleted."""
    already: tuple[str, ...]
    """Requested ids that were gone before."""
    unknown: tuple[str, ...]
    """Requested ids that neither the ledger nor the slices know."""
    unreadable: tuple[Place, ...]
    """Slices that may hold an unknown id, and whose files cannot be read."""
    slices: tuple[Place, ...]
    """Slices that lost records."""
    stages_lost: int
    """Stages that `repair` has to train again."""
    before: Inventory = field(repr=False)
    """Live stages before the deletion."""
    status: Status
    """The run's status after the deletion."""
    entries: tuple[LogEntry, ...]
    """The log's, one for each batch that took a record: with the times at which it was received, accepted, effective
    and erased."""
    erase_within: float
    """Seconds after the request was received within which slices are rewritten."""
    repeated: bool
    """True if the key was used before; `deleted` is then the first result."""
    repair: TrainReport | None
    """Report of the repair after it, if `deletion.repair` asked for one; its `status` is the newer one."""
    repair_error: S3TError | None
    """Error of a repair that failed. The deletion stands; `Run.repair` trains the missing stages."""
    to_withdraw: tuple[Export, ...]
    """Exports with deleted records in them: the deletion is not erased before they are withdrawn (`Run.withdraw`)."""

    @property
    def depths_before(self) -> tuple[int, ...]:
        """The serving depth of every shard before it; after it: `status.depths`."""
        return self.before.depths()

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if shards do not answer after it, and after its repair; none if all do."""
        return (self.status if self.repair is None else self.repair.status).outage

    @property
    def state(self) -> State | None:
        """The deletion's last complete step: accepted, effective, or erased; None if it took no record."""
        states = {entry.state for entry in self.entries}
        return next((state for state in ("accepted", "effective", "erased") if state in states), None)

    def __repr__(self) -> str:
        """Counts in one line; names do not belong in logs."""
        what = counted(self.deleted, "record") + (" would be deleted" if self.dry_run else " deleted")
        parts = [what, f"{len(self.already)} gone already", f"{len(self.unknown)} unknown"]
        if self.state is not None:
            parts.append(self.state)
        parts.append(f"{counted(self.stages_lost, 'stage')} lost")
        if self.to_withdraw:
            parts.append(f"{counted(len(self.to_withdraw), 'export')} to withdraw")
        depths = [" ".join(map(str, each)) for each in (self.depths_before, self.status.depths)]
        return f"DeletionReport({', '.join(parts)}, depths {depths[0]} -> {depths[1]}, {self.status!r})"

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t delete --json`."""
        left = [entry.received_at + self.erase_within for entry in self.entries if entry.erased_at is None]
        return {
            "generation": self.status.generation,
            "deleted": self.deleted,
            "already": list(self.already),
            "unknown": list(self.unknown),
            "unreadable": [list(place) for place in self.unreadable],
            "slices": [list(place) for place in self.slices],
            "stages_lost": self.stages_lost,
            "to_withdraw": [export.to_json() for export in self.to_withdraw],
            "depths_before": list(self.depths_before),
            "depths_after": list(self.status.depths),
            "state": self.state,
            "log": [entry.to_json() for entry in self.entries],
            "erased_by": utc(max(left, default=None)),
            "repeated": self.repeated,
            "dry_run": self.dry_run,
            "warnings": list(self.warnings),
            "status": self.status.to_json(),
            "repair": None if self.repair is None else self.repair.to_json(),
            "repair_failed": None if self.repair_error is None else str(self.repair_error),
        }


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """Result of `reconcile`."""

    rows: int
    """Rows of records that the ledger had lost, or that were damaged, and were written anew."""
    records: int
    """Records that were deleted again."""
    slices: tuple[Place, ...]
    """Slices whose files were rewritten, or were newer than the ledger; without the run's secret: were removed."""
    stages_lost: int
    status: Status

    def __repr__(self) -> str:
        """The result in one line."""
        again = f"{counted(self.records, 'record')} deleted again"
        return f"Reconciliation({again}, {counted(self.stages_lost, 'stage')} lost, {self.status!r})"

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t reconcile --json`."""
        return {
            "rows_mended": self.rows,
            "deleted": self.records,
            "slices": [list(place) for place in self.slices],
            "stages_lost": self.stages_lost,
            "status": self.status.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Result of an audit: whether every live stage follows from the present slices."""

    generation: int
    checked: int
    """Live stages whose keys, bytes and chains were checked."""
    replayed: tuple[Stage, ...]
    """Stages that were trained again: shard, prefix and kind."""
    mismatches: tuple[dict[str, Any], ...]
    """Problems: shard, prefix or slice, and the problem in words."""
    warnings: tuple[str, ...] = ()
    """Faults that are no mismatch: shards that do not answer, or no live stage to check."""

    @property
    def ok(self) -> bool:
        """True if there are no mismatches."""
        return not self.mismatches

    def __repr__(self) -> str:
        """A line of counts, and one for each of the first mismatches."""
        verdict = "ok" if self.ok else f"{counted(len(self.mismatches), 'problem')} found"
        shown = "".join(f"\n  {mismatch}" for mismatch in self.mismatches[:_SHOWN])
        return (
            f"AuditReport({verdict}, generation {self.generation}, {counted(self.checked, 'stage')} checked, "
            f"{len(self.replayed)} replayed{''.join(f'; {warning}' for warning in self.warnings)}){shown}"
        )

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t audit --json`."""
        return {
            "ok": self.ok,
            "generation": self.generation,
            "checked": self.checked,
            "replayed": len(self.replayed),
            "replayed_stages": [stage.to_json() for stage in self.replayed],
            "mismatches": list(self.mismatches),
            "warnings": list(self.warnings),
        }
