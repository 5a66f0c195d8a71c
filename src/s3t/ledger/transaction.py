"""What can be done to the ledger within one transaction. A state and the record of it change together."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import and_, bindparam, delete, exists, func, or_, select

from s3t.ledger import schema
from s3t.ledger.committing import Trained, announce, commit
from s3t.ledger.condemning import QUEUES, add_versions, condemn, nobodys_left, take_versions, walk_again
from s3t.ledger.filling import record_of, record_values
from s3t.ledger.history import History
from s3t.ledger.mending import Mended, mend_rows, remove_wrong
from s3t.ledger.rows import Rows, damaged
from s3t.ledger.sessions import Sessions
from s3t.ledger.state import Acceptance, Located, RecordRow, SliceState, Snapshot, ToErase
from s3t.ledger.statements import (
    CHANGES,
    WALKED,
    at,
    chunks,
    now,
    of_stage,
    prefix_text,
    select_in,
    stage_at,
)
from s3t.partition import Place
from s3t.stages import Stage


class Transaction(History):
    """Reading, and for a writing transaction, changing.

    Args:
        rows: of the ledger, in its transaction.
        known: a snapshot that was read before, to be used again if nothing has changed since.
    """

    def __init__(self, rows: Rows, *, known: Snapshot | None = None) -> None:
        super().__init__(rows)
        self._known = known
        self._first_own = math.inf  # generation that this transaction has made: it is not durable yet
        self.sessions = Sessions(rows)

    def snapshot(self) -> Snapshot:
        """The ledger as this transaction sees it."""
        changes = self._rows.note(CHANGES)
        if self._known is None or self._known.changes != changes:
            self._known = self._read_snapshot(changes)
        return self._known

    def _read_snapshot(self, changes: int) -> Snapshot:
        run = self._connection.execute
        table, erasing, log = schema.slices, schema.erasing_records, schema.generations
        pending = exists().where(erasing.c.shard == table.c.shard, erasing.c.slice == table.c.slice)
        slices = {
            Place(row.shard, row.slice): SliceState(
                records=row.records,
                losses=row.losses,
                digest=row.digest,
                pending=bool(row.pending),
            )
            for row in self._rows.checked(table, run(select(table, pending.label("pending"))))
        }
        live = {stage_at(row.shard, row.prefix): row for row in self._rows.read(schema.stages)}
        oldest = select(log).where(log.c.erased_at.is_(None)).order_by(log.c.received_at).limit(1)
        waiting = self._rows.checked(log, run(oldest))
        kept = self._rows.checked(log, run(oldest.where(log.c.generation.in_(select(erasing.c.generation)))))
        dead = any(run(select(queue.c.shard).limit(1)).first() is not None for queue in QUEUES)
        return Snapshot(
            generation=self._rows.generation_now(),
            changes=changes,
            slices=slices,
            stages={stage: row.key for stage, row in live.items()},
            manifests={stage: row.manifest for stage, row in live.items()},
            walked=self._rows.note(WALKED),
            pending_since=kept[0].received_at if kept else None,
            waiting_since=waiting[0].received_at if waiting else None,
            dead=dead,
        )

    def locate(self, *, records: Collection[bytes], subjects: Collection[bytes]) -> Located:
        """The present records among the requested, and which requested tokens were deleted before."""
        table, gone = schema.records, schema.deleted
        rows = {row.token: row for row in self._rows.read_in(table, table.c.token, records)}
        rows |= {row.token: row for row in self._rows.read_in(table, table.c.subject, subjects)}
        before = self._rows.read_in(gone, gone.c.token, [*records, *subjects])
        return Located(
            rows=tuple(record_of(row) for _, row in sorted(rows.items())),
            gone={row.token: row.generation for row in before},
        )

    def mend(self, *, drop: bool = False) -> Mended:
        """Put rows right in which one bit is wrong.

        Args:
            drop: remove other rows of records that are wrong: `add_records` writes them anew.
        """
        mended = mend_rows(self._rows)
        if drop and schema.records.name in mended.left:
            remove_wrong(self._rows, schema.records)
        if mended.rows:
            self._note_change()
        return mended

    def add_records(self, records: Iterable[RecordRow]) -> None:
        """Write rows of records that the ledger has lost."""
        self._rows.upsert(schema.records, map(record_values, records))

    def records_in(self, place: Place) -> list[RecordRow]:
        """Every record of a slice."""
        table = schema.records
        return [record_of(row) for row in self._rows.read(table, *at(table, place))]

    def accept(self, acceptances: Sequence[Acceptance], *, above: int = 0) -> list[int]:
        """Take records and the stages above them out of everything that serves or trains; the new generations.

        Their bytes are still there; what has to be erased is noted in the same transaction.

        Args:
            acceptances: one a generation, in order. No record or stage is in two of them.
            above: a number that the new generations exceed, beside the present one.
        """
        first = max(above, self._rows.generation_now()) + 1
        generations = list(range(first, first + len(acceptances)))
        time = now(self._connection)
        numbered = list(zip(generations, acceptances, strict=True))
        self._rows.insert(schema.generations, [_generation_row(number, taken, time) for number, taken in numbered])
        self._first_own = min(self._first_own, first)
        self._take_out_records(numbered)
        self._count_losses(acceptances)
        self._take_out_stages(numbered)
        self._note_change()
        return generations

    def _take_out_records(self, numbered: Sequence[tuple[int, Acceptance]]) -> None:
        taken = {row.token: (row, number) for number, acceptance in numbered for row in acceptance.rows}
        for chunk in chunks(list(taken)):
            self._connection.execute(delete(schema.records).where(schema.records.c.token.in_(chunk)))
        subjects = {row.subject: number for row, number in taken.values() if row.subject is not None}
        column = schema.records.c.subject
        left = {row.subject for row in select_in(self._connection, select(column).distinct(), column, subjects.keys())}
        gone = {token: number for token, (_, number) in taken.items()}
        gone |= {subject: number for subject, number in subjects.items() if subject not in left}
        self._rows.upsert(schema.deleted, ({"token": token, "generation": number} for token, number in gone.items()))
        erasing = (
            {"token": row.token, "shard": row.place.shard, "slice": row.place.slice, "generation": number}
            for row, number in taken.values()
        )
        self._rows.upsert(schema.erasing_records, erasing)

    def _count_losses(self, acceptances: Sequence[Acceptance]) -> None:
        lost = Counter[Place]()
        times = Counter[Place]()
        for taken in acceptances:
            lost.update(taken.losses)
            times.update(taken.losses.keys())
        rows = {Place(row.shard, row.slice): row for row in self._rows.read(schema.slices)}
        self._rows.change(
            schema.slices,
            [
                (rows[place], {"records": rows[place].records - lost[place], "losses": rows[place].losses + count})
                for place, count in times.items()
            ],
        )

    def _take_out_stages(self, numbered: Sequence[tuple[int, Acceptance]]) -> None:
        hit = [(number, stage, key) for number, taken in numbered for stage, key in taken.tainted.items()]
        if not hit:
            return
        table = schema.stages
        row = table.c.shard == bindparam("at_shard"), table.c.prefix == bindparam("at_prefix")
        places = [{"at_shard": stage.shard, "at_prefix": prefix_text(stage)} for _, stage, _ in hit]
        self._connection.execute(delete(table).where(*row), places)
        dead = ({"shard": stage.shard, "key": key, "generation": number} for number, stage, key in hit)
        self._rows.upsert(schema.erasing_artifacts, dead)

    def to_erase(self, *, received_by: float = math.inf) -> ToErase:
        """What is accepted, and not erased yet.

        Args:
            received_by: records of slices that hold none whose deletion was received by then are not read; seconds
                since the epoch.
        """
        run, table, log = self._connection.execute, schema.erasing_records, schema.generations
        oldest = func.coalesce(func.min(log.c.received_at), 0.0).label("received_at")
        generations = table.outerjoin(log, table.c.generation == log.c.generation)
        by_slice = select(table.c.shard, table.c.slice, oldest).select_from(generations)
        rows = run(by_slice.group_by(table.c.shard, table.c.slice))
        since = {Place(row.shard, row.slice): row.received_at for row in rows}
        records = {
            place: frozenset(row.token for row in self._rows.read(table, *at(table, place)))
            for place, time in since.items()
            if time <= received_by
        }
        artifacts = self._rows.read(schema.erasing_artifacts)
        versions = ((Place(row.shard, row.slice), row.digest) for row in self._rows.read(schema.erasing_versions))
        slices = self.snapshot().slices
        return ToErase(
            since=since,
            records=records,
            artifacts=frozenset((row.shard, row.key) for row in artifacts),
            versions=frozenset(each for each in versions if each[0] not in slices or slices[each[0]].digest != each[1]),
            slices=slices,
        )

    def announce_version(self, place: Place, digest: str) -> None:
        """Note that a version of a slice is about to be put: it is condemned until it is current."""
        if self.snapshot().slices[place].digest != digest:
            add_versions(self._rows, [(place, digest)], generation=0)
            self._note_change()

    def supersede(self, place: Place, *, old: str, new: str, gone: Collection[bytes]) -> bool:
        """Make a version that was put a slice's current one; the old one is condemned.

        All places are then to be gone through (again) for the deletions that this one follows: what a first walk has
        emptied, which left the slice for later, is not empty of what this leaves behind.

        Args:
            place: the slice.
            old: digest of its current version.
            new: of the next one.
            gone: tokens that the next one does not hold.

        Returns:
            Whether it could be. Else another process has superseded the old one, and this one has lost the run's lock:
            what it has put may hold what was deleted meanwhile, and is condemned.
        """
        row, table, tokens = self._slice(place), schema.erasing_records, list(gone)
        if row.digest != old:
            self.condemn(versions=[(place, new)] if row.digest != new else [])
            return False
        taken = [found.generation for found in self._rows.read_in(table, table.c.token, tokens)]
        for chunk in chunks(tokens):
            self._connection.execute(delete(table).where(table.c.token.in_(chunk)))
        if new != old:
            self._rows.change(schema.slices, [(row, {"digest": new})])
            take_versions(self._rows, [(place, new)])
            add_versions(self._rows, [(place, old)], generation=min(taken, default=0))
        if taken:
            walk_again(self._rows, min(taken))
        self._note_change()
        return True

    def _slice(self, place: Place) -> Any:
        """A slice's row."""
        rows = self._rows.read(schema.slices, *at(schema.slices, place))
        if not rows:
            raise damaged(schema.slices, 1)
        return rows[0]

    def have_walked(self, generation: int) -> None:
        """Note that every place was gone through for the generations up to one, unless an orphan is left."""
        if nobodys_left(self._rows):
            return
        self._rows.write_note(WALKED, to=max(generation, self._rows.note(WALKED)))
        self._note_change()

    def removed(
        self, artifacts: Collection[tuple[int, str]] = (), *, versions: Collection[tuple[Place, str]] = ()
    ) -> None:
        """Note that condemned artifacts and versions of slices are removed."""
        if not artifacts and not versions:
            return
        table = schema.erasing_artifacts
        row = table.c.shard == bindparam("at_shard"), table.c.key == bindparam("at_key")
        if places := [{"at_shard": shard, "at_key": key} for shard, key in sorted(artifacts)]:
            self._connection.execute(delete(table).where(*row), places)
        take_versions(self._rows, versions)
        self._note_change()

    def note_accepted(self) -> None:
        """Note of every generation that an earlier transaction has made that it is accepted: durable, and seen by all.

        Its own transaction cannot: a prediction may begin before the commit, without seeing it. After a crash between
        the two, this comes late, and then the time is a later one than the true one.
        """
        log = schema.generations
        rows = self._rows.read(log, log.c.accepted_at.is_(None), log.c.generation < self._first_own)
        time = now(self._connection)
        self._rows.change(log, [(row, {"accepted_at": max(row.received_at, time)}) for row in rows])

    def settle(self) -> None:
        """Note what is accepted, which generations every living session has moved to, and of which no byte is left.

        Times never run backwards, whatever the clock does.
        """
        self.sessions.bury()
        run, log, walked = self._connection.execute, schema.generations, self._rows.note(WALKED)
        # Rows that may change alone: thousands may wait to be erased, and each deletion settles.
        gone = and_(log.c.generation <= walked, *(log.c.generation.not_in(select(t.c.generation)) for t in _ERASING))
        rows = self._rows.read(log, log.c.erased_at.is_(None), or_(log.c.effective_at.is_(None), gone))
        time = now(self._connection)
        slowest = run(select(func.min(schema.sessions.c.generation))).scalar_one_or_none()
        left = {number for table in _ERASING for number in run(select(table.c.generation).distinct()).scalars()}
        changes = []
        for row in rows:
            accepted, effective, erased = row.accepted_at, row.effective_at, None
            if accepted is None and row.generation < self._first_own:
                accepted = max(row.received_at, time)
            if effective is None and accepted is not None and (slowest is None or slowest >= row.generation):
                effective = max(accepted, time)
            if effective is not None and row.generation <= walked and row.generation not in left:
                erased = max(effective, time)
            if (accepted, effective, erased) != (row.accepted_at, row.effective_at, None):
                changes.append((row, {"accepted_at": accepted, "effective_at": effective, "erased_at": erased}))
        if self._rows.change(log, changes):
            self._note_change()

    def announce(self, trained: Trained) -> bool:
        """Note that a stage's artifact is about to be put; False if it could not be committed any more.

        Raises:
            KeyDestroyedError: the run's secret was destroyed meanwhile.
        """
        return announce(self._rows, self.sessions, self.snapshot(), trained)

    def commit(self, trained: Trained) -> bool:
        """Take a stage into use whose artifact was announced and put; False if that cannot be.

        It cannot if a slice under it has lost a record since it was seen, or was losing one; if a stage that it was
        trained on is gone; or if the session has lost its claim. Raises as `announce`.
        """
        done = commit(self._rows, self.sessions, self.snapshot(), trained)
        if done:
            self._note_change()
        return done

    def forget_stages(self, stages: Mapping[Stage, str]) -> None:
        """Take stages out of use, if they still have those keys; their artifacts are then nobody's."""
        gone = {stage: key for stage, key in stages.items() if self.snapshot().stages.get(stage) == key}
        for stage in gone:
            self._connection.execute(delete(schema.stages).where(*of_stage(schema.stages, stage)))
        self.condemn(artifacts={(stage.shard, key) for stage, key in gone.items()})

    def condemn(
        self, *, artifacts: Collection[tuple[int, str]] = (), versions: Collection[tuple[Place, str]] = ()
    ) -> None:
        """Note that artifacts, (shard, key), and versions are nobody's; they go with what deletions have condemned."""
        slices = self.snapshot().slices  # a current version is no orphan, whoever took it for one
        orphans = [
            (place, digest) for place, digest in versions if place not in slices or slices[place].digest != digest
        ]
        condemn(self._rows, artifacts=artifacts, versions=orphans)

    def remember(self, tokens: Collection[bytes], *, generation: int) -> None:
        """Note tokens as deleted, whether or not the ledger knew them."""
        self._rows.upsert(schema.deleted, ({"token": token, "generation": generation} for token in tokens))

    def _note_change(self) -> None:
        self._rows.write_note(CHANGES, to=self._rows.note(CHANGES) + 1)
        self._known = None


_ERASING = (schema.erasing_records, *QUEUES)


def _generation_row(number: int, taken: Acceptance, time: float) -> dict[str, Any]:
    return {
        "generation": number,
        "mark": secrets.token_hex(8),
        "received_at": time - taken.waited,
        "records": sum(taken.losses.values()),
        "request": taken.request,
    }
