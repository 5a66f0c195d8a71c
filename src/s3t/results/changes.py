"""Results of verbs that change, check or search a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import PlainSerializer, computed_field

from s3t.core import Place, Stage
from s3t.results.base import OfStage, Result, SliceField, StageField, Time
from s3t.results.log import LogEntry, State
from s3t.results.state import Export, Shard
from s3t.wording import counted

_SHOWN = 5
"""Mismatches that an audit's `repr` lists."""
Loss = Annotated[float | None, PlainSerializer(lambda loss: loss if loss is not None and math.isfinite(loss) else None)]


class TrainedStage(OfStage):
    """A stage that was trained. Losses are functions of private records: the run keeps none of them."""

    reads: tuple[Place, ...] = ()
    """Shard and slice of all slices that a readout's models were trained on; empty for other stages."""
    steps: int
    """Optimiser steps."""
    losses: tuple[Loss, ...]
    """Loss of each epoch; null where it is not finite. Empty for prototypes, and where the prefix holds no record."""
    seconds: float
    validation: float | None
    """Score on the recipe's public records; null if it has none."""

    @property
    def stage(self) -> Stage:
        return super().stage._replace(reads=self.reads)


class Training(Result):
    """Result of `train`, `repair` or `extend`."""

    summaries: tuple[TrainedStage, ...]
    """The stages that were trained."""
    discarded: int
    """Stages thrown away because a record was deleted meanwhile."""
    seconds: float
    generation: int
    missing: int
    """Stages that are missing still."""
    depths: tuple[int, ...]
    """Slices with which each shard serves after it, 0 for one that does not answer."""
    outage: tuple[str, ...]
    """A warning of shards that do not answer, or none."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def trained(self) -> int:
        """Number of stages."""
        return len(self.summaries)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage trained: shard, prefix and kind."""
        return tuple(summary.stage for summary in self.summaries)

    def __repr__(self) -> str:
        discarded = f", {self.discarded} thrown away" if self.discarded else ""
        return (
            f"Training({counted(self.trained, 'stage')} trained in {self.seconds:.1f} s{discarded}, "
            f"{counted(self.missing, 'stage')} missing)"
        )


class ToldDeletion(Result):
    """Fields of a deletion that every caller gets; `Deletion` adds those for operators."""

    id: int | None
    """Its generation, the last one if it took several; null if no record was taken. `log` and `GET /v1/deletions/{id}`
    follow it."""
    generation: int | None
    """The run's, after it; null if an operator has to decide."""
    deleted: int
    """Records."""
    already: tuple[str, ...] | None
    """Names that were gone before; null if an operator has to decide."""
    unknown: tuple[str, ...] | None
    """Names that the run has never held; null as `already`."""
    hints: tuple[str, ...] = ()
    """For the first unknown names, what the run holds in another form: "0007: the run holds record 7"."""
    state: State | Literal["held", "approved", "refused"] | None
    """The last step that is complete; null if no record was taken. held, approved or refused: an operator has to
    decide, or has decided."""
    repeated: bool = False
    """The idempotency key was used before: nothing more was done, and `deleted` is the first result."""
    dry_run: bool = False
    held: str | None = None
    """Id of the held request: nothing is deleted until an operator approves it."""
    warnings: tuple[str, ...] = ()
    """Says if after it, and after its repair, no shard or not every one answers."""
    log: tuple[LogEntry, ...] = ()
    """Its entries, one for each batch of names that took a record."""
    erased_by: Time | None = None
    """Until when slices are rewritten; null if they are."""
    erase_within: float = 0.0
    """Seconds after a request was received within which slices are rewritten; 0: before the deletion returns."""


class Deletion(ToldDeletion):
    """Result of a deletion; of a dry run, its forecast.

    Over HTTP, the fields that tell where records lie (`PLACES`) are for operators, and left out for others.
    """

    PLACES: ClassVar[set[str]]
    """Its own fields."""

    unreadable: tuple[SliceField, ...] = ()
    """Slices that may hold an unknown name, and whose files cannot be read."""
    slices: tuple[SliceField, ...] = ()
    """Slices that lost records."""
    stages_lost: int = 0
    """Stages that a repair has to train again."""
    depths_before: tuple[int, ...] = ()
    """Slices with which each shard served before it, 0 for one that did not answer."""
    depths_after: tuple[int, ...] = ()
    answering: int = 0
    """Number of shards that answer after it."""
    shards: tuple[Shard, ...] = ()
    """The shards that were hit, after it."""
    missing: int = 0
    """Stages that are missing after it."""
    missing_hours: float | None = None
    """Hours in which one process trains them; null if that is not known."""
    to_withdraw: tuple[Export, ...] = ()
    """Exports with deleted records in them: it is not erased before they are withdrawn (`Run.withdraw`)."""
    repair_due: bool = False
    """`deletion.repair` of the recipe asks for a repair now."""
    heads_due: bool = False
    """With `head: ridge`: readouts are missing; a repair of 0 hours makes them, and trains nothing."""
    repair: Training | None = None
    """The repair after it; null if none was due, or it failed."""
    repair_failed: str | None = None
    """Error of the repair. The deletion stands; `Run.repair` trains the missing stages."""

    def __repr__(self) -> str:
        """Counts in one line; names do not belong in logs."""
        what = counted(self.deleted, "record") + (" would be deleted" if self.dry_run else " deleted")
        parts = [what, f"{len(self.already or ())} gone already", f"{len(self.unknown or ())} unknown"]
        if self.state is not None:
            parts.append(self.state)
        parts.append(f"{counted(self.stages_lost, 'stage')} lost")
        if self.to_withdraw:
            parts.append(f"{counted(len(self.to_withdraw), 'export')} to withdraw")
        before, after = (" ".join(map(str, depths)) for depths in (self.depths_before, self.depths_after))
        parts.append(f"depths {before} -> {after}")
        return f"Deletion({', '.join(parts)}, generation {self.generation})"


Deletion.PLACES = {*Deletion.model_fields} - {*ToldDeletion.model_fields}


class Added(Result):
    """Records that were taken in, and, by `sync` or with `replace`, what was deleted for them."""

    addition: int | None
    """Its number, counted from 1; null if nothing came in."""
    records: int
    """Records of it."""
    replaced: int = 0
    """Number of these records that replace an older version, which was deleted."""
    unchanged: int = 0
    """Records of the data that the run holds as they are."""
    expired: int = 0
    """Records that the run held and that are too old to stay."""
    too_old: int = 0
    """Rows of a synchronised table that are too old to come in, or to stay."""
    readmitted: int = 0
    """Records that had been deleted, or whose subject had, and came back."""
    new_labels: tuple[str, ...] = ()
    """Labels that the run has since then."""
    deletion: Deletion | None = None
    """The deletion of older versions, and of records that a synchronised table does not hold any more."""
    dry_run: bool = False
    to_learn: int
    """Records of this and earlier additions that no serving model has learned."""
    due: bool
    """True if the recipe's `additions.learn_every` has all that was added learned now, and it is not yet."""
    notices: tuple[str, ...] = ()
    """Oddities of these records, in words; they are kept nowhere."""
    training: Training | None = None
    """The training after it, if there was one."""
    training_failed: str | None = None
    """Why it was not. The records stay taken in, and `train` goes on."""


class Reconciliation(Result):
    """Result of `reconcile`."""

    generation: int
    rows: int
    """Rows of records that the ledger had lost, or that were damaged, and were written anew."""
    records: int
    """Records that were deleted again."""
    slices: tuple[SliceField, ...]
    """Slices whose files were rewritten, or were newer than the ledger; without the run's secret: were removed."""
    stages_lost: int

    def __repr__(self) -> str:
        again = f"{counted(self.records, 'record')} deleted again"
        return f"Reconciliation({again}, {counted(self.stages_lost, 'stage')} lost, generation {self.generation})"


class Audit(Result):
    """Result of an audit: whether every live stage follows from the present slices."""

    generation: int
    checked: int
    """Live stages whose keys, bytes and chains were checked."""
    replayed: tuple[StageField, ...]
    """Stages that were trained again."""
    mismatches: tuple[dict[str, Any], ...]
    """Problems: shard, prefix or slice, and the problem in words."""
    warnings: tuple[str, ...] = ()
    """Faults that are no mismatch: shards that do not answer, or no live stage to check."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        """True if there are no mismatches."""
        return not self.mismatches

    def __repr__(self) -> str:
        """A line of counts, and one for each of the first mismatches."""
        verdict = "ok" if self.ok else f"{counted(len(self.mismatches), 'problem')} found"
        shown = "".join(f"\n  {mismatch}" for mismatch in self.mismatches[:_SHOWN])
        return (
            f"Audit({verdict}, generation {self.generation}, {counted(self.checked, 'stage')} checked, "
            f"{len(self.replayed)} replayed{''.join(f'; {warning}' for warning in self.warnings)}){shown}"
        )


class Exported(OfStage):
    """An export that may be used."""

    name: str
    path: Path
    new: bool
    """False if the same content was there already."""
    options: tuple[str, ...]
    """The engine must be started with them."""
    merged_with: tuple[StageField, ...] = ()
    """Other shards' models; the export has the mean of all."""


class Exports(Result):
    """Result of `export`."""

    exports: tuple[Exported, ...]
    merged: bool
    engine: str
    """Reader of the adapters."""
    notices: tuple[str, ...]
    """Parts of the run that the exports lack, and options with which the engine must be started."""

    def __repr__(self) -> str:
        names = ", ".join(export.name for export in self.exports)
        return f"Exports({counted(len(self.exports), 'export')}: {names})"
