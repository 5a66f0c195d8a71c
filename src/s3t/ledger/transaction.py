"""What can be done to the ledger within one transaction. A state and the record of it change together."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from s3t.errors import KeyDestroyedError, StorageError
from s3t.ledger import schema
from s3t.ledger.history import History
from s3t.ledger.sessions import Sessions
from s3t.ledger.state import Acceptance, Located, RecordRow, SliceState, Snapshot, ToErase
from s3t.ledger.statements import (
    CHANGES,
    ERASURES,
    WALKED,
    at,
    chunks,
    generation_now,
    note,
    now,
    of_stage,
    prefix_text,
    select_in,
    stage_at,
    upsert,
    write_note,
)
from s3t.partition import Place
from s3t.stages import Stage


class Transaction(History):
    """Reading, and for a writing transaction, changing.

    Args:
        connection: in its transaction.
        known: a snapshot that was read before, to be used again if nothing has changed since.
    """

    def __init__(self, connection: Connection, *, known: Snapshot | None = None) -> None:
        super().__init__(connection)
        self._known = known
        self.sessions = Sessions(connection)

    def snapshot(self) -> Snapshot:
        """The ledger as this transaction sees it."""
        changes = note(self._connection, CHANGES)
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
                next_digest=row.next_digest,
            )
            for row in run(select(table, pending.label("pending")))
        }
        stages = {stage_at(row.shard, row.prefix): row.key for row in run(select(schema.stages))}
        first = select(log.c.accepted_at).where(log.c.erased_at.is_(None)).order_by(log.c.generation).limit(1)
        oldest = select(func.min(log.c.accepted_at)).where(log.c.generation.in_(select(erasing.c.generation)))
        dead = run(select(schema.erasing_artifacts.c.shard).limit(1)).first() is not None
        return Snapshot(
            generation=generation_now(self._connection),
            changes=changes,
            slices=slices,
            stages=stages,
            walked=note(self._connection, WALKED),
            pending_since=run(oldest).scalar_one_or_none(),
            waiting_since=run(first).scalar_one_or_none(),
            erasures=note(self._connection, ERASURES),
            dead=dead,
        )

    def locate(self, *, records: Collection[bytes], subjects: Collection[bytes]) -> Located:
        """The present records among the requested, and which requested tokens were deleted before."""
        table, gone = schema.records, schema.deleted
        rows = {row.token: row for row in select_in(self._connection, select(table), table.c.token, records)}
        rows |= {row.token: row for row in select_in(self._connection, select(table), table.c.subject, subjects)}
        before = select_in(self._connection, select(gone), gone.c.token, [*records, *subjects])
        return Located(
            rows=tuple(_record(row) for _, row in sorted(rows.items())),
            gone={row.token: row.generation for row in before},
        )

    def records_in(self, place: Place) -> list[RecordRow]:
        """Every record of a slice."""
        table = schema.records
        return [_record(row) for row in self._connection.execute(select(table).where(*at(table, place)))]

    def accept(self, acceptances: Sequence[Acceptance], *, above: int = 0) -> list[int]:
        """Take records and the stages above them out of everything that serves or trains; the new generations.

        Their bytes are still there; what has to be erased is noted in the same transaction.

        Args:
            acceptances: one a generation, in order. No record or stage is in two of them.
            above: a number that the new generations exceed, beside the present one.
        """
        run = self._connection.execute
        first = max(above, generation_now(self._connection)) + 1
        generations = list(range(first, first + len(acceptances)))
        time = now(self._connection)
        numbered = list(zip(generations, acceptances, strict=True))
        self._insert(schema.generations, [_generation_row(number, taken, time) for number, taken in numbered])
        self._take_out_records(numbered)
        losses = [
            {"at_shard": place.shard, "at_slice": place.slice, "lost": lost}
            for taken in acceptances
            for place, lost in taken.losses.items()
        ]
        if losses:
            table = schema.slices
            row = table.c.shard == bindparam("at_shard"), table.c.slice == bindparam("at_slice")
            changed = {"records": table.c.records - bindparam("lost"), "losses": table.c.losses + 1}
            run(update(table).where(*row).values(**changed), losses)
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
        self._upsert(schema.deleted, ({"token": token, "generation": number} for token, number in gone.items()))
        erasing = (
            {"token": row.token, "shard": row.place.shard, "slice": row.place.slice, "generation": number}
            for row, number in taken.values()
        )
        self._upsert(schema.erasing_records, erasing)

    def _take_out_stages(self, numbered: Sequence[tuple[int, Acceptance]]) -> None:
        hit = [(number, stage, key) for number, taken in numbered for stage, key in taken.tainted.items()]
        if not hit:
            return
        table = schema.stages
        row = table.c.shard == bindparam("at_shard"), table.c.prefix == bindparam("at_prefix")
        places = [{"at_shard": stage.shard, "at_prefix": prefix_text(stage)} for _, stage, _ in hit]
        self._connection.execute(delete(table).where(*row), places)
        dead = ({"shard": stage.shard, "key": key, "generation": number} for number, stage, key in hit)
        self._upsert(schema.erasing_artifacts, dead)

    def to_erase(self, *, accepted_by: float = math.inf) -> ToErase:
        """What is accepted, and not erased yet.

        Args:
            accepted_by: records of slices that hold none that was accepted by then are not read; seconds since the
                epoch.
        """
        run, table = self._connection.execute, schema.erasing_records
        oldest = select(table.c.shard, table.c.slice, func.min(table.c.generation).label("generation"))
        rows = run(oldest.group_by(table.c.shard, table.c.slice))
        first = {Place(row.shard, row.slice): row.generation for row in rows}
        accepted = {entry.generation: entry.accepted_at for entry in self.log(set(first.values()))}
        since = {place: accepted[generation] for place, generation in first.items()}
        records = {
            place: frozenset(run(select(table.c.token).where(*at(table, place))).scalars())
            for place, time in since.items()
            if time <= accepted_by
        }
        artifacts = run(select(schema.erasing_artifacts))
        snapshot = self.snapshot()
        return ToErase(
            since=since,
            records=records,
            artifacts=frozenset((row.shard, row.key) for row in artifacts),
            slices=snapshot.slices,
            erasures=snapshot.erasures,
        )

    def will_rewrite(self, place: Place, *, known: SliceState, now: str, then: str) -> None:
        """Note what a slice's digest is and what it will be, before its file is rewritten.

        Args:
            place: the slice.
            known: as it was when the rewriting began.
            now: the digest of its file, which is that of `known` or the one that a crash left.
            then: the digest to come.

        Raises:
            StorageError: another has rewritten it meanwhile: this process has lost the run's lock.
        """
        table = schema.slices
        as_known = and_(table.c.digest == known.digest, table.c.next_digest.is_not_distinct_from(known.next_digest))
        self._change_slice(place, as_known, digest=now, next_digest=then)

    def rewritten(self, place: Place, digest: str, gone: Collection[bytes]) -> None:
        """Note that a slice's file holds tokens no more, and its new digest.

        All places are then to be gone through (again) for the deletions that took them: what a first walk, which left
        the file for later, has emptied is not empty of what this one leaves behind.

        Raises:
            StorageError: another has rewritten it meanwhile.
        """
        slices, table = schema.slices, schema.erasing_records
        its = or_(slices.c.digest == digest, slices.c.next_digest == digest)
        self._change_slice(place, its, digest=digest, next_digest=None)
        tokens, oldest = list(gone), select(func.min(table.c.generation))
        taken = [row[0] for row in select_in(self._connection, oldest, table.c.token, tokens) if row[0] is not None]
        for chunk in chunks(tokens):
            self._connection.execute(delete(table).where(table.c.token.in_(chunk)))
        if taken:
            walked = min(min(taken) - 1, note(self._connection, WALKED))
            write_note(self._connection, WALKED, to=walked)

    def still_rewriting(self, place: Place, digest: str) -> None:
        """Look, before a slice's new file takes its place, whether it is still the one that is to come.

        Raises:
            StorageError: another has rewritten it meanwhile.
        """
        if self.snapshot().slices[place].next_digest != digest:
            raise _lost_lock(place)

    def _change_slice(self, place: Place, condition: ColumnElement[bool], **values: Any) -> None:
        """Compare and set."""
        table = schema.slices
        if self._connection.execute(update(table).where(*at(table, place), condition).values(**values)).rowcount != 1:
            raise _lost_lock(place)
        self._note_change()

    def have_walked(self, generation: int) -> None:
        """Note that every place was gone through for the generations up to one."""
        write_note(self._connection, WALKED, to=max(generation, note(self._connection, WALKED)))
        self._note_change()

    def count_erasure(self, *, at_least: int = 0) -> None:
        """Note that slices were rewritten once more."""
        write_note(self._connection, ERASURES, to=max(at_least, note(self._connection, ERASURES) + 1))
        self._note_change()

    def removed(self, artifacts: Collection[tuple[int, str]]) -> None:
        """Note that tainted artifacts are removed."""
        if not artifacts:
            return
        table = schema.erasing_artifacts
        row = table.c.shard == bindparam("at_shard"), table.c.key == bindparam("at_key")
        places = [{"at_shard": shard, "at_key": key} for shard, key in sorted(artifacts)]
        self._connection.execute(delete(table).where(*row), places)
        self._note_change()

    def settle(self) -> None:
        """Note which generations every living session has moved to, and of which no byte is left anywhere.

        Times never run backwards, whatever the clock does.
        """
        run, log = self._connection.execute, schema.generations
        self.sessions.bury()
        time, unfinished = now(self._connection), log.c.erased_at.is_(None)
        older = exists().where(schema.sessions.c.generation < log.c.generation)
        waiting = log.c.effective_at.is_(None)
        moved = run(
            update(log).where(unfinished, waiting, ~older).values(effective_at=_not_before(log.c.accepted_at, time))
        ).rowcount
        # Not a subquery a row: thousands may wait, and each would look through them all.
        nothing_left = (log.c.generation.not_in(select(table.c.generation)) for table in _ERASING)
        walked = log.c.generation <= note(self._connection, WALKED)
        done = run(
            update(log)
            .where(unfinished, ~waiting, walked, *nothing_left)
            .values(erased_at=_not_before(log.c.effective_at, time))
        ).rowcount
        if moved or done:
            self._note_change()

    def commit_stage(
        self, stage: Stage, key: str, *, seen: Mapping[Place, SliceState], put: Callable[[], None]
    ) -> bool:
        """Store a trained stage, unless a slice under it has lost a record since it was `seen`, or was losing one.

        Args:
            stage: the stage.
            key: of its artifact.
            seen: every slice in its prefix, as it was before its training began.
            put: stores the artifact. Called within the transaction, so no deletion comes between.

        Returns:
            Whether it was stored.
        """
        # Between an acceptance and the end of its erasure the losses are new, but the file is the old one.
        if any(state.pending for state in seen.values()) or not self.snapshot().still_as(seen):
            return False
        if self.key_destroyed_at() is not None:
            raise KeyDestroyedError("the run's secret was destroyed meanwhile: it cannot train any more")
        put()
        upsert(self._connection, schema.stages, [{"shard": stage.shard, "prefix": prefix_text(stage), "key": key}])
        self._note_change()
        return True

    def forget_stages(self, stages: Iterable[Stage]) -> None:
        """Take stages out of use; their artifacts are then nobody's."""
        gone = list(stages)
        for stage in gone:
            self._connection.execute(delete(schema.stages).where(*of_stage(schema.stages, stage)))
        if gone:
            self._note_change()

    def remember(self, tokens: Collection[bytes], *, generation: int) -> None:
        """Note tokens as deleted, whether or not the ledger knew them."""
        self._upsert(schema.deleted, ({"token": token, "generation": generation} for token in tokens))

    def mend_slice(self, place: Place, *, digest: str) -> None:
        """Note what a slice's file really holds; what was trained on it before counts as trained on another."""
        table = schema.slices
        changed = {"digest": digest, "next_digest": None, "losses": table.c.losses + 1}
        self._connection.execute(update(table).where(*at(table, place)).values(**changed))
        self._note_change()

    def _note_change(self) -> None:
        write_note(self._connection, CHANGES, to=note(self._connection, CHANGES) + 1)
        self._known = None

    def _insert(self, table: Any, rows: list[dict[str, Any]]) -> None:
        for chunk in chunks(rows):
            self._connection.execute(insert(table), chunk)

    def _upsert(self, table: Any, rows: Iterable[dict[str, Any]]) -> None:
        for chunk in chunks(list(rows)):
            upsert(self._connection, table, chunk)


_ERASING = (schema.erasing_records, schema.erasing_artifacts)


def _generation_row(number: int, taken: Acceptance, time: float) -> dict[str, Any]:
    return {
        "generation": number,
        "mark": secrets.token_hex(8),
        "accepted_at": time,
        "records": sum(taken.losses.values()),
        "request": taken.request,
    }


def _not_before(earlier: Any, time: float) -> Any:
    return case((earlier > time, earlier), else_=time)


def _lost_lock(place: Place) -> StorageError:
    return StorageError(
        f"slice {place.slice} of shard {place.shard} was rewritten by another process meanwhile: this one has lost the "
        "run's lock. What was deleted is out of use; open the run again, which goes on"
    )


def _record(row: Any) -> RecordRow:
    return RecordRow(token=row.token, subject=row.subject, place=Place(row.shard, row.slice), copies=row.copies)
