"""What the run's methods return. Each has `to_json()`: the document that the command line prints with --json."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from s3t.errors import PlanningError
from s3t.inventory import Inventory, Serving
from s3t.ledger import LogEntry, State
from s3t.ledger.state import utc
from s3t.partition import Place
from s3t.planning import Forecast
from s3t.prediction.aggregate import Scores
from s3t.prediction.members import Member
from s3t.recipe import Recipe
from s3t.run.forecasting import forecast_of
from s3t.stages import Stage
from s3t.store import ArtifactStore


@dataclass(frozen=True, kw_only=True)
class Status:
    """What is alive and what serves, at one generation."""

    inventory: Inventory
    gaps: tuple[str, ...]
    """Where exactness does not hold, in words; empty for a declared label set."""
    warnings: tuple[str, ...]
    missing: int
    """Stages that `train` or `repair` would train."""
    unfinished: tuple[LogEntry, ...]
    """Deletions that are accepted, and not erased yet; the log's."""
    ledger: str
    """Which database the ledger is in: SQLite, or PostgreSQL and its host."""
    store: ArtifactStore = field(repr=False)
    """Of the run's artifacts."""
    recipe: Recipe = field(repr=False)
    """The run's."""

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

    @cached_property
    def stored_bytes(self) -> int:
        """Of the artifacts that are alive. Looked up when it is asked for: a deletion has no time for every file."""
        return self.store.nbytes((stage.shard, key) for stage, key in self.inventory.alive.items())

    @cached_property
    def forecast(self) -> Forecast | None:
        """How many more deletions the run is expected to take, without repair. Computed when it is asked for; None if
        that fails: what has been done must be told all the same."""
        try:
            return forecast_of(self.inventory, self.recipe)
        except (ArithmeticError, MemoryError, ValueError, PlanningError):
            logging.getLogger("s3t").warning("no forecast", exc_info=True)
            return None

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t status --json`."""
        classifiers = self.inventory.classifiers()
        return {
            "method": self.recipe.method.described(),
            "generation": self.generation,
            "records": self.records,
            "stored_bytes": self.stored_bytes,
            "missing_stages": self.missing,
            "shards": [self._shard(shard, classifiers.get(shard)) for shard in range(len(self.inventory.orders))],
            "gaps": list(self.gaps),
            "warnings": list(self.warnings),
            "unfinished": [
                {**entry.to_json(), "erased_by": utc(entry.accepted_at + self.recipe.deletion.erase_within)}
                for entry in self.unfinished
            ],
            "ledger": self.ledger,
            "forecast": None if self.forecast is None else self.forecast.to_json(),
        }

    def _shard(self, shard: int, classifier: Stage | None) -> dict[str, Any]:
        inventory = self.inventory
        orders = inventory.orders[shard]
        return {
            "shard": shard,
            "slices": [inventory.records[Place(shard, index)] for index in range(len(orders[0]))],
            "sequences": [{"order": list(order), "depth": inventory.depth(shard, order)} for order in orders],
            "serving": _serving_json(inventory.serving(shard)),
            **({"prototypes": list(classifier.prefix)} if classifier is not None else {}),
        }


def _stage_json(stage: Stage | Member) -> dict[str, Any]:
    kind = {} if stage.kind == "model" else {"kind": stage.kind}
    return {"shard": stage.shard, "prefix": list(stage.prefix), **kind}


def _serving_json(serving: Serving | None) -> dict[str, Any] | None:
    return None if serving is None else {"order": list(serving.order), "depth": serving.depth}


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """What `train`, `repair` or `extend` did."""

    stages: tuple[Stage, ...]
    """Every stage trained: shard, prefix and kind."""
    discarded: int
    """Stages thrown away because a record was deleted meanwhile."""
    seconds: float
    status: Status

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t train --json` and `s3t repair --json`, and in that of `s3t extend --json`."""
        return {
            "trained": len(self.stages),
            "stages": [_stage_json(stage) for stage in self.stages],
            "discarded": self.discarded,
            "seconds": round(self.seconds, 3),
            "status": self.status.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Answers of one generation's ensemble."""

    generation: int
    members: tuple[Member, ...]
    """The prefixes that answered, in the order of the shards; `Run.predict` takes them as `prefixes`."""
    labels: tuple[str, ...]
    """The label set; empty for a regression."""
    label: tuple[str | float, ...]
    """The answer to every input: a label, or a number."""
    probabilities: Scores | None = field(repr=False)
    """N x C; None for a regression."""
    logits: Scores = field(repr=False)
    """Of every member, M x N x C, in the order of `members`."""
    ids: tuple[str, ...] | None
    """The inputs' ids where the input has the id column."""

    def rows(self) -> list[dict[str, Any]]:
        """One mapping an input: its id if known, label, probabilities by label, generation."""
        rows = []
        for number, label in enumerate(self.label):
            row: dict[str, Any] = {} if self.ids is None else {"id": self.ids[number]}
            row["label"] = label
            if self.probabilities is not None:
                row["probabilities"] = dict(zip(self.labels, self.probabilities[number].tolist(), strict=True))
            row["generation"] = self.generation
            rows.append(row)
        return rows

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t predict --json`."""
        return {
            "generation": self.generation,
            "members": [_stage_json(member) for member in self.members],
            "predictions": self.rows(),
        }


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How good the ensemble is on labelled data.

    `metrics` has accuracy, f1 and matthews, or pearson and rmse; `per_shard` the same for every member alone;
    `per_depth` for the ensemble whose members use at most that many slices.
    """

    generation: int
    n: int
    metrics: dict[str, Any]
    per_shard: tuple[dict[str, Any], ...]
    per_depth: tuple[dict[str, Any], ...]

    @property
    def accuracy(self) -> float:
        """Share of right answers; KeyError for a regression."""
        return float(self.metrics["accuracy"])

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t evaluate --json`."""
        return {
            **self.metrics,
            "n": self.n,
            "generation": self.generation,
            "per_shard": list(self.per_shard),
            "per_depth": list(self.per_depth),
        }


@dataclass(frozen=True, kw_only=True)
class DeletionReport:
    """What a deletion did, or with `dry_run` would do."""

    dry_run: bool
    deleted: int
    """Records that left."""
    already: tuple[str, ...]
    """Requested ids that were gone before."""
    unknown: tuple[str, ...]
    """Requested ids that the run has never held."""
    slices: tuple[Place, ...]
    """Slices that lost records."""
    stages_lost: int
    """Stages that `repair` has to train again."""
    before: Inventory = field(repr=False)
    """What was alive before it."""
    status: Status
    """After it."""
    entries: tuple[LogEntry, ...]
    """The log's, one for each batch that took a record: with the times at which it was accepted, effective and
    erased."""
    erase_within: float
    """Seconds after acceptance within which slices are rewritten."""
    repeated: bool
    """Whether it was made before with the same key; then `deleted` is what it did the first time."""

    @property
    def depths_before(self) -> tuple[int, ...]:
        """The serving depth of every shard before it; after it: `status.depths`."""
        return self.before.depths()

    @property
    def state(self) -> State | None:
        """How far it has come: accepted, effective, or erased; None if it took no record."""
        states = {entry.state for entry in self.entries}
        return next((state for state in ("accepted", "effective", "erased") if state in states), None)

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t delete --json`."""
        left = [entry.accepted_at + self.erase_within for entry in self.entries if entry.erased_at is None]
        return {
            "generation": self.status.generation,
            "deleted": self.deleted,
            "already": list(self.already),
            "unknown": list(self.unknown),
            "slices": [list(place) for place in self.slices],
            "stages_lost": self.stages_lost,
            "depths_before": list(self.depths_before),
            "depths_after": list(self.status.depths),
            "state": self.state,
            "log": [entry.to_json() for entry in self.entries],
            "erased_by": utc(max(left, default=None)),
            "repeated": self.repeated,
            "dry_run": self.dry_run,
            "status": self.status.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """What `reconcile` did."""

    records: int
    """Records that were deleted again."""
    slices: tuple[Place, ...]
    """Slices whose files were rewritten, or were newer than the ledger; without the run's secret: were removed."""
    stages_lost: int
    status: Status

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t reconcile --json`."""
        return {
            "deleted": self.records,
            "slices": [list(place) for place in self.slices],
            "stages_lost": self.stages_lost,
            "status": self.status.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Whether every live stage is what today's slices ask for."""

    generation: int
    checked: int
    """Live stages whose keys, bytes and chains were checked."""
    replayed: tuple[Stage, ...]
    """Stages that were trained again: shard, prefix and kind."""
    mismatches: tuple[dict[str, Any], ...]
    """What is wrong: shard, prefix or slice, and the problem in words."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.mismatches

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t audit --json`."""
        return {
            "ok": self.ok,
            "generation": self.generation,
            "checked": self.checked,
            "replayed": len(self.replayed),
            "replayed_stages": [_stage_json(stage) for stage in self.replayed],
            "mismatches": list(self.mismatches),
        }
