"""The state of a run: shards, exports, log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import PlainSerializer

from s3t.core import Order
from s3t.results.base import OfStage, Result, Time, as_html
from s3t.results.log import LogEntry
from s3t.wording import counted

Number: TypeAlias = Annotated[float, PlainSerializer(lambda value: float(f"{value:.4g}"), when_used="json")]
"""Simulated to no more digits."""
Spread: TypeAlias = tuple[Number, Number]
"""Numbers of deletions between which eight histories of ten lie."""


class Chain(Result):
    """An order of slices of a shard, or, where a run is repaired as needed, one of its chains."""

    order: Order
    depth: int
    """Slices, from the first on, whose blocks are all alive."""
    name: Literal["", "main", "spare", "other", "head", "earlier"] = ""
    """The chain's part in a run that is repaired as needed; empty for fixed orders. head: slices of a ridge head, which
    has no order: those that answer come first. earlier: it lacks what was added last."""
    seen: int = 0
    """The newest addition whose records its blocks learn."""


class Shard(Result):
    """A shard and what answers for it."""

    shard: int
    slices: tuple[int, ...]
    """Records in each slice."""
    sequences: tuple[Chain, ...]
    serving: Chain | None
    """The one that answers; null if none can."""
    prototypes: Order | None = None
    """Slices whose prototypes are alive, where the method has some."""
    score: float | None = None
    """Score of the serving prefix on the recipe's public records; null if it has none."""

    @property
    def depth(self) -> int:
        """Slices that serve."""
        return 0 if self.serving is None else self.serving.depth


class Export(OfStage):
    """A live chain that was written for other programs, and is not withdrawn."""

    name: str
    host: str
    path: Path
    made_at: Time | None
    """Null while it is written."""
    to_withdraw: bool
    """It holds a deleted record: the deletion is not erased before it is withdrawn (`Run.withdraw`)."""


class Worker(OfStage):
    """A process that trains a stage now."""

    host: str
    process: int
    device: str
    since: Time
    seconds_left: float | None = None
    """Until the stage is trained, by the times of the run's live stages; null without such times."""


class Forecast(Result):
    """Expected numbers of deletions of single records from now on, without repair, simulated. None: it never comes to
    that, or no shard is alive."""

    next_shard_dies: Number | None
    """Expected deletions until one more shard has no live prefix."""
    all_shards_die: Number | None
    """Expected deletions until no shard can answer."""
    depth_falls_below: Mapping[int, Number | None]
    """Expected deletions until the first live shard has fewer than k slices, for k from 2 to their least depth now."""
    living_shards: int
    """Shards that have a live prefix now."""
    next_shard_dies_between: Spread | None = None
    """10th and 90th percentile of `next_shard_dies` over the histories; None where that is None. Others alike."""
    all_shards_die_between: Spread | None = None
    depth_falls_below_between: Mapping[int, Spread | None] = {}


class Status(Result):
    """Live stages and serving prefixes, at one generation."""

    method: str
    generation: int
    """The ledger's counter: one more with every deletion."""
    records: int
    """Records present."""
    to_learn: int
    """Of these, added records that no serving model has learned; `train` has them learned."""
    learning_hours: float | None
    """Hours in which one process learns them, by the times of the run's live stages; null without such times."""
    learned_after: int | None
    """After so many more additions the run learns them by itself. 0: that has begun; null: nothing is to be learned, or
    only `train` has it learned."""
    alive: int
    """Live stages."""
    stored_bytes: int | None
    """Bytes of their artifacts; null if they were not asked for."""
    missing: int
    """Stages that `train` or `repair` would train."""
    missing_hours: float | None
    """Hours in which one process trains them, by the times of the run's live stages; null without such times."""
    workers: tuple[Worker, ...]
    """Processes on all hosts that train a stage, in the order in which they began."""
    wanted_depth: int
    """Slices that a shard serves with once nothing is missing."""
    shards: tuple[Shard, ...]
    answering: tuple[int, ...]
    """Shards that answer: with their model, with prototypes alone, or, where no model is alive, by the base model."""
    gaps: tuple[str, ...]
    """Sentences about where exactness does not hold; none for a declared label set."""
    outage: tuple[str, ...]
    """A warning of shards that do not answer, or none; also among `warnings`."""
    warnings: tuple[str, ...]
    advice: tuple[str, ...]
    """Warnings of how the recipe fits the records that are present."""
    unfinished: tuple[LogEntry, ...]
    """Deletions that are accepted, and not erased yet."""
    erase_within: float
    """Seconds after a request was received within which slices are rewritten."""
    exports: tuple[Export, ...]
    """Exports that are not withdrawn, the oldest first."""
    ledger: str
    """The ledger's database: SQLite, or PostgreSQL and its host."""
    store: str | None
    """The bucket of slices and artifacts; null if they are in the run folder."""
    forecast: Forecast | None = None
    """Expected number of further deletions that the run takes, without repair; null if it was not asked for, or
    cannot be computed."""

    @property
    def depths(self) -> tuple[int, ...]:
        """The serving depth of every shard, 0 for one that does not answer."""
        return tuple(shard.depth for shard in self.shards)

    @property
    def to_withdraw(self) -> tuple[Export, ...]:
        """Exports that hold a deleted record."""
        return tuple(export for export in self.exports if export.to_withdraw)

    def __repr__(self) -> str:
        missing = f", {counted(self.missing, 'stage')} missing" if self.missing else ""
        unfinished = f", {counted(len(self.unfinished), 'deletion')} not erased yet" if self.unfinished else ""
        withdraw = f", {counted(len(self.to_withdraw), 'export')} to withdraw" if self.to_withdraw else ""
        noted = f", {counted(len(self.warnings) + len(self.gaps), 'warning')}" if self.warnings or self.gaps else ""
        return (
            f"Status(generation {self.generation}, {counted(self.records, 'record')}, depths "
            f"{' '.join(map(str, self.depths))}{missing}{unfinished}{withdraw}{noted})"
        )

    def _repr_html_(self) -> str:
        rows = [
            {
                "shard": each.shard,
                "records in slices": each.slices,
                "serving": () if each.serving is None else each.serving.order[: each.depth],
                "depth": each.depth,
                "score": each.score,
            }
            for each in self.shards
        ]
        notes = [{"": note} for note in (*self.warnings, *self.gaps, *self.advice)]
        return as_html(repr(self), {"shards": rows, "warnings": notes})
