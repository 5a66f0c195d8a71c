"""Plain values that are read from the ledger and written to it."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from s3t.core import Growth, Inventory, Place, Stage, slices_among
from s3t.processes import this_machine


@dataclass(frozen=True, kw_only=True)
class RecordRow:
    """A record as the ledger knows it: by tokens (keyed hashes), never by name or content."""

    token: bytes
    subject: bytes | None
    place: Place
    copies: int
    """Rows with this id: more than one only where ids are content hashes and rows are identical."""


@dataclass(frozen=True, kw_only=True)
class SliceState:
    records: int
    digest: str
    """Keyed hash of the rows of its current version."""
    pending: bool
    """True while its current version still holds a record that was accepted for deletion."""
    after: int = 0
    """The newest generation when it was added: a deletion up to that one took nothing of it."""


@dataclass(frozen=True, kw_only=True)
class NewLabel:
    """A label that came with an addition. It was declared, so it stays when no record has it any more."""

    number: int
    """Its place behind the labels of init."""
    label: str
    addition: int


@dataclass(frozen=True, kw_only=True)
class LiveStages:
    """Stages that are committed and not tainted."""

    artifacts: Mapping[Stage, tuple[str, str]]
    """Key of each one's artifact, and SHA-256 of its manifest."""
    commits: int
    """Counter of stages that came into use."""
    removals: int
    """Counter of times at which stages went out of use. With both counters equal, the stages are."""

    @cached_property
    def keys(self) -> Mapping[Stage, str]:
        return {stage: key for stage, (key, _) in self.artifacts.items()}


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The ledger at one generation."""

    generation: int
    changes: int
    """Counter; two snapshots with the same number are equal."""
    slices: Mapping[Place, SliceState]
    new_labels: tuple[NewLabel, ...]
    live: LiveStages
    learned: int
    """Newest addition that models are to be trained on."""
    walked: int
    """Newest generation for which erasure went through every place, except slices that may wait."""
    pending_since: float | None
    """Time at which the oldest deletion with a record in a current version was received (seconds since the epoch)."""
    waiting_since: float | None
    """Time at which the oldest deletion that is not erased was received (seconds since the epoch); None without one."""
    condemned: bool
    """True if condemned artifacts or versions of slices may be in the store."""
    approved: frozenset[str]
    """Ids of held requests that are approved, and not carried out yet."""

    @cached_property
    def added(self) -> int:
        """Number of additions."""
        return max(place.segment for place in self.slices)

    @property
    def stages(self) -> Mapping[Stage, str]:
        """Keys of the artifacts of all stages that are committed and not tainted."""
        return self.live.keys

    @cached_property
    def artifacts(self) -> frozenset[tuple[int, str]]:
        """(shard, key) of the artifacts of those stages."""
        return frozenset((stage.shard, key) for stage, key in self.stages.items())

    @property
    def trained(self) -> bool:
        """True if the run ever had a live stage."""
        return self.live.commits > 0

    @cached_property
    def readouts(self) -> Mapping[tuple[Stage, ...], tuple[Stage, ...]]:
        """By the models that a head reads: the newest live readout of each slice, in their order. None while more than
        half of the slices lack theirs: a head of so few would answer worse than those that were trained. The base model
        (no models) has no other head.
        """
        readouts = sorted(
            (stage for stage in self.stages if stage.kind == "readout"), key=lambda stage: (stage.reads, stage)
        )
        newest = {(stage.reads, stage.shard, stage.prefix): stage for stage in readouts}.values()  # the last of each
        groups = (tuple(group) for _, group in groupby(newest, key=lambda stage: stage.reads))
        learned = (place for place, state in self.slices.items() if state.records and place.segment <= self.learned)
        filled = len(slices_among(learned))
        return {group[0].models: group for group in groups if 2 * len(group) >= filled or not group[0].reads}

    @cached_property
    def heads(self) -> Mapping[tuple[Stage, ...], tuple[Stage, ...]]:
        """By the models that a head reads, as `readouts`: all readouts that the head is solved and calibrated from."""
        return {models: (*readouts, *self.calibration(readouts)) for models, readouts in self.readouts.items()}

    def tunes(self, readouts: Sequence[Stage]) -> list[bool]:
        """For each readout, whether its records choose the head's penalty and temperature: records that the models were
        not trained on, if they are a quarter of all; else all records."""
        records = [sum(self.slices[place].records for place in itertools.chain(*stage.own)) for stage in readouts]
        unseen = [not stage.was_trained_on for stage in readouts]
        few = 4 * sum(itertools.compress(records, unseen)) < sum(records)
        return [few or each for each in unseen]

    def calibration(self, readouts: Sequence[Stage]) -> tuple[Stage, ...]:
        """Where records that the models were trained on tune the head: readouts of the same slices by the base model,
        which choose the temperature in their place. None while one of them is missing."""
        seen = any(each and stage.was_trained_on for stage, each in zip(readouts, self.tunes(readouts), strict=True))
        of_base = {(stage.shard, stage.prefix): stage for stage in self.readouts.get((), ())}
        slices = [(stage.shard, stage.prefix) for stage in readouts]
        return tuple(map(of_base.__getitem__, slices)) if seen and of_base.keys() >= {*slices} else ()

    def readers(self, models: Collection[Stage]) -> Mapping[Stage, tuple[Stage, ...]]:
        """With which models each of some answers: alone; or, where the head of their mean has readouts, with these. The
        base model with none."""
        whole = set(models)
        means = [group for group in self.readouts if len(group) > 1 and whole.issuperset(group)]
        alone = {model: (model,) if model.prefix else () for model in models}
        return alone | {model: group for group in means for model in group}

    def inventory(self, growth: Growth, **options: Any) -> Inventory:
        """The inventory of live stages, which grow by a policy; `options` are its fields."""
        return Inventory(
            generation=self.generation,
            growth=growth,
            records={place: state.records for place, state in self.slices.items()},
            alive=self.stages,
            learned=self.learned,
            **options,
        )

    def digests(self, of: Stage | ExportRow) -> tuple[str, ...]:
        return tuple(self.slices[place].digest for place in of.places)

    def seen(self, stage: Stage) -> dict[Place, SliceState]:
        return {place: self.slices[place] for place in stage.places}

    def labels_of(self, stage: Stage) -> tuple[str, ...]:
        """The labels, beside those of init, that what is made of a segment knows."""
        return tuple(new.label for new in self.new_labels if new.addition <= stage.seen)

    def still_has(self, stages: Mapping[Stage, str]) -> bool:
        """True if stages are alive under the same keys; their answers may then be used."""
        return all(self.stages.get(stage) == key for stage, key in stages.items())

    def still_as(self, seen: Mapping[Place, SliceState]) -> bool:
        """True if slices have lost no record since they were `seen`, and lose none now.

        A stage trained on them may then be committed. A version that lost a record has another digest; between the
        acceptance and that version the slice is pending.
        """
        return all(self.slices[place] == state and not state.pending for place, state in seen.items())


@dataclass(frozen=True, kw_only=True)
class Session:
    """An open run that predicts or trains."""

    name: str = field(default_factory=lambda: secrets.token_hex(16))
    host: str = field(default_factory=this_machine)
    process: int = field(default_factory=os.getpid)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A stage that a session has trained, and what it was trained on."""

    stage: Stage
    """The session has claimed it."""
    key: str
    manifest: str
    session: Session
    seen: Mapping[Place, SliceState]
    """Every slice of its prefix, as it was before training began."""
    parents: Mapping[Stage, str]
    """The stages before it, and their keys."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A saved state of a stage's training, from which it continues after a kill."""

    stage: Stage
    stage_key: str
    """A digest of the key that the stage would have, and of what else decides its bits."""
    key: str
    """The checkpoint's own, in the store."""
    digest: str
    """SHA-256 of its content."""
    seconds: float
    """Time that the training has taken until then."""


@dataclass(frozen=True, kw_only=True)
class Located:
    rows: tuple[RecordRow, ...]
    gone: Mapping[bytes, int]
    """Generation that deleted each requested token last; of present ones, too, that came back since."""


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """Segments that come in, whose versions are condemned and put."""

    slices: Mapping[Place, SliceState]
    """`after` is left to the ledger."""
    labels: Sequence[str]
    """Labels behind those of init, in order; those that are not there by then come with them."""
    records: Iterable[RecordRow]
    back: Mapping[bytes, int]
    """Tokens that were deleted, by these generations, and are to come back."""
    readmitted: int
    """Records that come back, or whose subject does."""
    learn_every: int | None
    """All that was added is to be learned when so many additions wait."""


@dataclass(frozen=True, kw_only=True)
class ToErase:
    """Records, artifacts and versions of slices that are to be erased."""

    generation: int
    """Newest generation when this was read."""
    since: Mapping[Place, float]
    """Slices whose current version holds a deleted record; time at which the oldest such deletion was received."""
    records: Mapping[Place, frozenset[bytes]]
    """Tokens of those records, for the slices that are due."""
    artifacts: frozenset[tuple[int, str]]
    """(shard, key) of condemned artifacts."""
    put_late: frozenset[tuple[int, str]]
    """Condemned artifacts that were stored after they had been condemned."""
    versions: frozenset[tuple[Place, str]]
    """Slices and digests of condemned versions; none of them is current."""
    slices: Mapping[Place, SliceState]
    """Every slice; `records` counts those that are not deleted."""


@dataclass(frozen=True, kw_only=True)
class Clone:
    path: Path
    """Its folder until it has its name."""
    host: str
    beside: str
    """`lasting_identity` of the folder in which that lies. While that is not there, nobody can see whether the clone is
    gone."""


@dataclass(frozen=True, kw_only=True)
class ExportRow:
    """A copy of a model for other programs, as the ledger knows it."""

    mark: str
    """Random; it tells the machine and the process that announced it."""
    name: str = ""
    """Name of its folder, a hash of its content; "" while it is written."""
    host: str
    output: Path
    """Folder in which its own folder lies."""
    stage: Stage
    """The last one of its chain."""
    keys: tuple[str, ...] = ()
    """Keys of its `links`."""
    digests: tuple[str, ...] = ()
    """Digests of its `places`, when it was made."""
    files: str = ""
    """JSON: name, size and SHA-256 of each file; "" while it is written."""
    announced_at: float
    """Seconds since the epoch, as below."""
    made_at: float | None = None
    """None until its stages were found alive after it was written."""
    withdrawn_at: float | None = None
    others: tuple[Stage, ...] = ()
    """Readouts of its head, and the other models of a mean."""

    @property
    def links(self) -> tuple[Stage, ...]:
        """Every stage that it was made of."""
        return tuple(dict.fromkeys(link for stage in (self.stage, *self.others) for link in stage.chain))

    @property
    def places(self) -> tuple[Place, ...]:
        """Every segment that it was made of."""
        return tuple(dict.fromkeys(place for stage in (self.stage, *self.others) for place in stage.places))

    @property
    def label(self) -> str:
        """Its name, or, while it has none, its mark."""
        return self.name or self.mark

    @property
    def path(self) -> Path:
        return self.output / self.name

    @property
    def stages(self) -> Mapping[Stage, str]:
        return dict(zip(self.links, self.keys, strict=True))


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Records and stages that one deletion takes out of use."""

    rows: Sequence[RecordRow]
    losses: Mapping[Place, int]
    """Records that each slice loses."""
    tainted: Mapping[Stage, str]
    """Live stages trained on those slices, and their keys."""
    asked: bool = True
    """False if the records left with a table, by age, or for newer versions of them: they may come back."""
    subjects: Collection[bytes] = ()
    """Subjects that were named: others, of which no record is left, may come back with another."""
    request: bytes | None = None
    """Keyed hash of the request's idempotency key."""
    waited: float = 0.0
    """Seconds since the request was received."""


Deletions: TypeAlias = Mapping[int, tuple[str, Sequence[bytes], Sequence[bytes]]]
"""By generation its random mark, the deleted tokens that somebody asked for, and the others."""


@dataclass(frozen=True, kw_only=True)
class RequestRow:
    """Progress of a request with an idempotency key."""

    content: bytes
    """Keyed hash of all requested names."""
    names: int
    """Names accepted so far, in the order of their tokens."""
    deleted: int
    generations: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class DepthChange:
    """A change of a shard's depth, by a deletion or a training."""

    changed_at: float
    """Seconds since the epoch."""
    shard: int
    depth_before: int
    """Depth before the change, in slices."""
    depth: int
    """Depth after it, in slices."""
