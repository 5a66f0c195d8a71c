"""Plain values that are read from the ledger and written to it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, computed_field

from s3t.core import Growth, Inventory, Place, Stage
from s3t.processes import this_machine
from s3t.results.base import Result, Time


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
    """A slice as the ledger knows it."""

    records: int
    digest: str
    """Keyed hash of the rows of its current version."""
    pending: bool
    """True while its current version still holds a record that was accepted for deletion."""


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
    live: LiveStages
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

    def inventory(self, growth: Growth, *, prototypes: bool = False) -> Inventory:
        """The inventory of live stages, which grow by a policy; `prototypes`: the method trains those of each slice."""
        return Inventory(
            generation=self.generation,
            growth=growth,
            records={place: state.records for place, state in self.slices.items()},
            alive=self.stages,
            prototypes=prototypes,
        )

    def digests(self, stage: Stage) -> tuple[str, ...]:
        return tuple(self.slices[Place(stage.shard, index)].digest for index in stage.prefix)

    def seen(self, stage: Stage) -> dict[Place, SliceState]:
        places = (Place(stage.shard, index) for index in stage.prefix)
        return {place: self.slices[place] for place in places}

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
class Located:
    rows: tuple[RecordRow, ...]
    gone: Mapping[bytes, int]
    """Generation that deleted each requested token that was deleted before."""


@dataclass(frozen=True, kw_only=True)
class ToErase:
    """Records, artifacts and versions of slices that are to be erased."""

    since: Mapping[Place, float]
    """Slices whose current version holds a deleted record; time at which the oldest such deletion was received."""
    records: Mapping[Place, frozenset[bytes]]
    """Tokens of those records, for the slices that are due."""
    artifacts: frozenset[tuple[int, str]]
    """(shard, key) of condemned artifacts."""
    versions: frozenset[tuple[Place, str]]
    """Slices and digests of condemned versions; none of them is current."""
    slices: Mapping[Place, SliceState]
    """Every slice; `records` counts those that are not deleted."""


@dataclass(frozen=True, kw_only=True)
class Clone:
    path: Path
    """Its folder until it has its name."""
    host: str


@dataclass(frozen=True, kw_only=True)
class ExportRow:
    """A copy of a shard's chain for other programs, as the ledger knows it."""

    mark: str
    """Random; it tells the machine and the process that announced it."""
    name: str
    """Name of its folder, a hash of its content; "" while it is written."""
    host: str
    output: Path
    """Folder in which its own folder lies."""
    stage: Stage
    """The last one of its chain."""
    keys: tuple[str, ...]
    """Keys of every stage of the chain."""
    digests: tuple[str, ...]
    """Digests of the slices under it, in the order of the prefix, when it was made."""
    files: str
    """JSON: name, size and SHA-256 of each file; "" while it is written."""
    announced_at: float
    """Seconds since the epoch, as below."""
    made_at: float | None
    """None until its stages were found alive after it was written."""
    withdrawn_at: float | None

    @property
    def label(self) -> str:
        """Its name, or, while it has none, its mark."""
        return self.name or self.mark

    @property
    def path(self) -> Path:
        return self.output / self.name

    @property
    def stages(self) -> Mapping[Stage, str]:
        return dict(zip(self.stage.chain, self.keys, strict=True))


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Records and stages that one deletion takes out of use."""

    rows: Sequence[RecordRow]
    losses: Mapping[Place, int]
    """Records that each slice loses."""
    tainted: Mapping[Stage, str]
    """Live stages trained on those slices, and their keys."""
    request: bytes | None = None
    """Keyed hash of the request's idempotency key."""
    waited: float = 0.0
    """Seconds since the request was received."""


@dataclass(frozen=True, kw_only=True)
class RequestRow:
    """Progress of a request with an idempotency key."""

    content: bytes
    """Keyed hash of all requested names."""
    names: int
    """Names accepted so far, in the order of their tokens."""
    deleted: int
    generations: frozenset[int]


class Token(Result):
    """A bearer token, without the secret itself."""

    name: str
    """Name of the holder, in logs and in `s3t token list`."""
    digest: bytes = Field(repr=False, exclude=True)
    """SHA-256 of the token. The token has 256 random bits, so nobody guesses it from that."""
    scopes: tuple[str, ...]
    """Scopes of the holder."""
    per_minute: int | None
    """Requests in a minute; null: any number."""
    created_at: Time
    expires_at: Time | None
    """Null: never."""
    revoked_at: Time | None

    def refusal(self, time: float) -> str | None:
        """Reason for which it is not accepted at a time; None if it is.

        >>> token = Token(name="a", digest=b"", scopes=(), per_minute=None, created_at=0, expires_at=9, revoked_at=None)
        >>> token.refusal(8.5), token.refusal(9.0)
        (None, 'the token has expired')
        """
        if self.revoked_at is not None:
            return "the token was revoked"
        return "the token has expired" if self.expires_at is not None and time >= self.expires_at else None


class Held(Result):
    """A request for deletion that an operator has to approve, or had to."""

    id: str
    asked_by: str
    """Name of the caller's token."""
    asked_at: Time
    why: str
    """Reason for which it is held, in words; without names of records."""
    names: int
    """Records and subjects that were named."""
    records: int
    """Records that it would have taken when it was asked."""
    request: bytes | None = Field(repr=False, exclude=True)
    """Keyed hash of its idempotency key."""
    content: bytes = Field(repr=False, exclude=True)
    """Keyed hash of its names."""
    decided_at: Time | None = None
    """Null: it waits."""
    decided_by: str | None = None
    approved: bool | None = Field(default=None, exclude=True)
    reason: str | None = None
    """Reason for its refusal, in the operator's words."""
    done_at: Time | None = None
    """Time at which the deletion was accepted, or found to take nothing; null before, and if it was refused."""
    generation: int | None = Field(default=None, exclude=True)
    """The deletion's number; null before, and if it took nothing."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def deletion(self) -> int | None:
        return self.generation

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> Literal["held", "approved", "refused", "done"]:
        """Held; refused; approved, and not carried out yet; or done."""
        if self.decided_at is None:
            return "held"
        if not self.approved:
            return "refused"
        return "approved" if self.done_at is None else "done"


class Repair(Result):
    """A repair by a server, as those who look on see it."""

    id: str
    asked_by: str
    """Name of a token; `policy` if nobody asked."""
    hours: float | None
    """It begins no stage after so many; null: no bound."""
    host: str = Field(exclude=True)
    process: int = Field(exclude=True)
    """Number of the process that trains; before that of the server."""
    asked_at: Time
    seen_at: Time
    """Last time at which it told of itself."""
    ended_at: Time | None = None
    """Null until it has ended by itself."""
    stages: int
    """Stages to train."""
    trained: int = 0
    """Stages trained so far, by the present process."""
    share: Annotated[float, PlainSerializer(lambda share: round(share, 4), when_used="json")] = 0.0
    """Share of the steps that are done, 0 to 1."""
    seconds: Annotated[float, PlainSerializer(lambda seconds: round(seconds, 1), when_used="json")] = 0.0
    """Seconds of work, of all its processes together."""
    attempts: int = 1
    """Processes that worked on it, one after another."""
    error: str | None = None
    """Kind of the error that ended it; the server's log has its text."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> Literal["running", "done", "failed"]:
        """Running, done or failed. A repair whose process was killed counts as running: a server takes it up again."""
        if self.ended_at is None:
            return "running"
        return "done" if self.error is None else "failed"


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
