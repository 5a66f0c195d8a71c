"""Reads and changes of one transaction. A state and the record of it change together."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Select, and_, exists, func, or_, select, tuple_, union

from s3t.core import Place, Stage
from s3t.errors import KeyDestroyedError
from s3t.ledger import schema
from s3t.ledger.exports import ExportRows
from s3t.ledger.filling import write_slices
from s3t.ledger.history import History
from s3t.ledger.rows import (
    CHANGES,
    COMMITS,
    CONFIRMED,
    KEY_DESTROYED,
    LEARNED,
    PUT_LATE,
    REMOVALS,
    TAUGHT,
    WALKED,
    Rows,
    chunks,
    damaged,
)
from s3t.ledger.schema import of_artifact, of_place, of_stage, place_at, stage_at, value_of
from s3t.ledger.servers import HeldRequests, Repairs
from s3t.ledger.sessions import Sessions
from s3t.ledger.state import (
    Acceptance,
    Checkpoint,
    Incoming,
    LiveStages,
    Located,
    NewLabel,
    RecordRow,
    SliceState,
    Snapshot,
    ToErase,
    Trained,
)
from s3t.results.base import utc
from s3t.results.log import AdditionEntry


class Transaction:
    """Reads records, slices and stages; in a writing transaction, also changes them.

    `latest` is an earlier snapshot, returned again if nothing has changed since. `live` are stages that were alive at
    some time, so that only those since are read.
    """

    def __init__(self, rows: Rows, *, latest: Snapshot | None = None, live: LiveStages | None = None) -> None:
        self.rows = rows
        self.latest = latest
        self.live = live
        self.sessions = Sessions(rows)
        self.history = History(rows)
        self.exports = ExportRows(rows)
        self.repairs = Repairs(rows)
        self.held = HeldRequests(rows)
        self._run = rows.connection.execute
        self._first_new = math.inf  # first generation of this transaction: it is not durable yet

    def snapshot(self) -> Snapshot:
        changes = self.rows.note(CHANGES)
        if self.latest is not None and changes < self.latest.changes:  # a backup was put back: its counters mean others
            self.live = None
        if self.latest is None or self.latest.changes != changes:
            self.latest = self._read_snapshot(changes)
        return self.latest

    def _read_snapshot(self, changes: int) -> Snapshot:
        table, erasing, log = schema.slices, schema.erasing_records, schema.generations
        holds = exists().where(*(erasing.c[name] == table.c[name] for name in Place._fields))
        slices = {
            place_at(row): SliceState(records=row.records, digest=row.digest, pending=bool(row.holds), after=row.after)
            for row in self.rows.checked(table, self._run(select(table, holds.label("holds"))))
        }
        newest = select(log).order_by(log.c.generation.desc()).limit(1)
        waiting = select(log).where(log.c.erased_at.is_(None)).order_by(log.c.received_at).limit(1)
        pending = waiting.where(log.c.generation.in_(select(erasing.c.generation)))

        def first(query: Select[Any]) -> Any:
            return next(iter(self.rows.checked(log, self._run(query))), None)

        last, oldest_waiting = first(newest), first(waiting)
        oldest_pending = None if oldest_waiting is None else first(pending)
        if last is None:
            raise damaged(log, 1)
        return Snapshot(
            generation=last.generation,
            changes=changes,
            slices=slices,
            new_labels=self._new_labels() if any(place.segment for place in slices) else (),
            live=self._read_live(),
            learned=self.rows.note(LEARNED),
            walked=self.rows.note(WALKED),
            pending_since=None if oldest_pending is None else oldest_pending.received_at,
            waiting_since=None if oldest_waiting is None else oldest_waiting.received_at,
            condemned=self._run(select(schema.condemned.c.name).limit(1)).first() is not None,
            approved=self.held.approved(),
        )

    def _new_labels(self) -> tuple[NewLabel, ...]:
        found = tuple(self.rows.all(NewLabel))
        if [each.number for each in found] != list(range(len(found))):  # a head's outputs would have others' names
            raise damaged(schema.labels, 1)
        return found

    def _read_live(self) -> LiveStages:
        """The live stages. Of those that are known already, only shards that have gained some are read again."""
        table, known = schema.stages, self.live
        commits, removals = self.rows.note(COMMITS), self.rows.note(REMOVALS)
        if known is not None and (known.commits, known.removals) == (commits, removals):
            return known
        if known is None or known.removals != removals:
            kept, rows = {}, self.rows.read(table)
        else:
            counts = self._run(select(table.c.shard, func.count()).group_by(table.c.shard))
            before = Counter(stage.shard for stage in known.artifacts)
            gained = {shard for shard, count in counts if count != before[shard]}
            kept = {stage: each for stage, each in known.artifacts.items() if stage.shard not in gained}
            rows = self.rows.read_in(table, table.c.shard, gained)
        read = {stage_at(row.shard, row.prefix): (row.key, row.manifest) for row in rows}
        self.live = LiveStages(artifacts={**kept, **read}, commits=commits, removals=removals)
        return self.live

    def _remove_stages(self, stages: Collection[Stage]) -> None:
        live = self._read_live()
        self.rows.remove(schema.stages, map(of_stage, stages))
        self.rows.raise_note(REMOVALS)
        left = {stage: each for stage, each in live.artifacts.items() if stage not in stages}
        self.live = LiveStages(artifacts=left, commits=live.commits, removals=live.removals + 1)
        self.history.note_depths({stage.shard for stage in stages}, before=live.keys, after=self.live.keys)

    def locate(self, *, records: Collection[bytes], subjects: Collection[bytes]) -> Located:
        """Present records among the requested tokens, and the generations of those that were deleted before."""
        table, gone = schema.records, schema.deleted
        rows = {row.token: row for row in self.rows.read_in(table, table.c.token, records)}
        rows |= {row.token: row for row in self.rows.read_in(table, table.c.subject, subjects)}
        before = self.rows.read_in(gone, gone.c.token, [*records, *subjects])
        return Located(
            rows=tuple(value_of(RecordRow, row) for _, row in sorted(rows.items())),
            gone={row.token: row.generation for row in before},
        )

    def places_of(self, records: Collection[bytes]) -> dict[bytes, Place]:
        """Where the present ones among some records lie."""
        table = schema.records
        return {row.token: place_at(row) for row in self.rows.read_in(table, table.c.token, records)}

    def gone(self, records: Collection[bytes], subjects: Collection[bytes]) -> dict[bytes, int]:
        """Records and subjects whose deletion was asked for and that are not there again, with the generation."""
        table, gone = schema.records, schema.deleted
        wanted = {*records, *subjects}
        more = self._run(select(gone.c.token).offset(len(wanted)).limit(1)).first()
        found = self.rows.read_in(gone, gone.c.token, wanted) if more else self.rows.read(gone)  # few are read at once
        before = {row.token: row.generation for row in found if row.asked and row.token in wanted}
        again = self.rows.read_in(table, table.c.subject, before.keys() & {*subjects})
        there = {*self.places_of(before.keys() & {*records}), *(row.subject for row in again)}
        return {token: generation for token, generation in before.items() if token not in there}

    def slices_of(self, subjects: Collection[bytes], *, but: Collection[bytes] = ()) -> dict[bytes, set[int]]:
        """The slices that hold records of some subjects, apart from some records."""
        table, found = schema.records, dict[bytes, set[int]]()
        for row in self.rows.read_in(table, table.c.subject, subjects):
            if row.token not in but:
                found.setdefault(row.subject, set()).add(row.slice)
        return found

    def records_in(self, place: Place) -> list[RecordRow]:
        return self.rows.all(RecordRow, **of_place(place))

    def accept(self, acceptances: Sequence[Acceptance], *, above: int = 0) -> list[int]:
        """Take records, and the stages trained on them, out of use; returns the new generations.

        Their bytes are still there; the same transaction notes what is to be erased. No record or stage is in two of
        the acceptances, one for each generation, in order.
        """
        first = max(above, self.snapshot().generation) + 1
        self._first_new = min(self._first_new, first)
        numbered = list(enumerate(acceptances, start=first))
        time = self.rows.now()
        generations = (
            {
                "generation": number,
                "mark": secrets.token_hex(8),
                "received_at": time - acceptance.waited,
                "records": sum(acceptance.losses.values()),
                "request": acceptance.request,
            }
            for number, acceptance in numbered
        )
        self.rows.insert(schema.generations, generations)
        self._take_out_stages(numbered)  # first: depths before it are those of slices with their records
        self._take_out_records(numbered)
        self._take_out_checkpoints(numbered)
        self.exports.taint(numbered)
        self.rows.note_change()
        return [number for number, _ in numbered]

    def _take_out_records(self, numbered: Sequence[tuple[int, Acceptance]]) -> None:
        on_request = [acceptance for _, acceptance in numbered if acceptance.asked]
        asked = {token for each in on_request for token in (*each.subjects, *(row.token for row in each.rows))}
        taken = {row.token: (row, number) for number, acceptance in numbered for row in acceptance.rows}
        self.rows.remove(schema.records, ({"token": token} for token in taken))
        subjects = {row.subject: number for row, number in taken.values() if row.subject is not None}
        column = schema.records.c.subject
        left = {row.subject for row in self.rows.select_in(select(column).distinct(), column, subjects)}
        gone = {token: number for token, (_, number) in taken.items()}
        gone |= {subject: number for subject, number in subjects.items() if subject not in left}
        self.rows.upsert(
            schema.deleted,
            ({"token": token, "generation": gone[token], "asked": int(token in asked)} for token in gone),
        )
        erasing = ({"token": row.token, **of_place(row.place), "generation": number} for row, number in taken.values())
        self.rows.upsert(schema.erasing_records, erasing)
        lost = sum((Counter(acceptance.losses) for _, acceptance in numbered), Counter[Place]())
        before = self.snapshot().slices
        fewer = (
            {**of_place(place), "records": state.records - count, "digest": state.digest, "after": state.after}
            for place, count in lost.items()
            for state in [before[place]]
        )
        self.rows.upsert(schema.slices, fewer)

    def _take_out_stages(self, numbered: Sequence[tuple[int, Acceptance]]) -> None:
        hit = [(number, stage, key) for number, each in numbered for stage, key in each.tainted.items()]
        if not hit:
            return
        self._remove_stages({stage for _, stage, _ in hit})
        rows = ({**of_artifact(stage.shard), "name": key, "generation": number} for number, stage, key in hit)
        self.rows.upsert(schema.condemned, rows)

    def _take_out_checkpoints(self, numbered: Sequence[tuple[int, Acceptance]]) -> None:
        kept = self.rows.all(Checkpoint)
        for number, acceptance in numbered:
            hit = {(place.shard, place.slice) for place in acceptance.losses}
            lost = [each for each in kept if not hit.isdisjoint((each.stage.shard, one) for one in each.stage.prefix)]
            self._condemn_checkpoints(lost, generation=number)

    def _condemn_checkpoints(self, kept: Sequence[Checkpoint], *, generation: int = 0) -> None:
        self.rows.discard(kept)
        self.rows.condemn(artifacts={(each.stage.shard, each.key) for each in kept}, generation=generation)

    def to_erase(self, *, received_by: float = math.inf) -> ToErase:
        """Records, artifacts and versions of slices that are to be erased.

        Records of a slice are listed only if a deletion of one of them was received by then (seconds since the epoch).
        """
        table, log = schema.erasing_records, schema.generations
        oldest = func.coalesce(func.min(log.c.received_at), 0.0).label("received_at")
        generations = table.outerjoin(log, table.c.generation == log.c.generation)
        names = [table.c[name] for name in Place._fields]
        rows = self._run(select(*names, oldest).select_from(generations).group_by(*names))
        since = {place_at(row): row.received_at for row in rows}
        records: dict[Place, set[bytes]] = {place: set() for place, time in since.items() if time <= received_by}
        for row in self.rows.read_in(table, tuple_(*names), records):
            records[place_at(row)].add(row.token)
        condemned = self.rows.read(schema.condemned)
        artifacts, versions = _by_kind(condemned)
        return ToErase(
            generation=self.snapshot().generation,
            since=since,
            records={place: frozenset(tokens) for place, tokens in records.items()},
            artifacts=artifacts,
            put_late=frozenset((row.shard, row.name) for row in condemned if row.generation == PUT_LATE),
            versions=versions,
            slices=self.snapshot().slices,
        )

    def add(self, addition: Incoming) -> bool:
        """Take segments and their records in. False, and nothing is done, if one of the records is present, or was
        deleted on request, as its subject may have been, and was not to come back; or if a version is not condemned any
        more: this process has lost the run's lock, and another has erased it.
        """
        _, condemned = self.condemned()
        versions = [(place, state.digest) for place, state in addition.slices.items()]
        if not condemned.issuperset(versions):
            return False
        for some in chunks(addition.records):
            tokens = [row.token for row in some]
            gone = self.gone(tokens, {row.subject for row in some if row.subject})
            if self.places_of(tokens) or not gone.items() <= addition.back.items():
                return False
        number = max(place.segment for place in addition.slices)
        known = {new.label for new in self.snapshot().new_labels}
        for place, label in enumerate([each for each in addition.labels if each not in known], start=len(known)):
            self.rows.add(NewLabel(number=place, label=label, addition=number))
        after = self.snapshot().generation
        slices = {place: replace(state, after=after) for place, state in addition.slices.items()}
        write_slices(self.rows, slices, addition.records)
        self.note_removed(versions=versions)
        entry = AdditionEntry(
            addition=number,
            added_at=utc(self.rows.now()),
            records=sum(state.records for state in slices.values()),
            readmitted=addition.readmitted,
        )
        self.rows.add(entry)
        self.rows.note_change()
        every = addition.learn_every
        if every is not None and self.snapshot().added - self.rows.note(LEARNED) >= every:
            self.learn()
        return True

    def learn(self) -> None:
        """Have models trained on all that was added by now."""
        if self.rows.note(LEARNED) < (added := self.snapshot().added):
            self.rows.write_note(LEARNED, to=added)
            self.rows.note_change()

    def is_learning(self) -> bool:
        """True if there is an addition that is to be learned, and no training has done so."""
        return self.rows.note(TAUGHT) < self.rows.note(LEARNED)

    def condemned(self) -> tuple[frozenset[tuple[int, str]], frozenset[tuple[Place, str]]]:
        """Artifacts, (shard, key), and versions of slices that must not stay in the store."""
        return _by_kind(self.rows.read(schema.condemned))

    def supersede(self, place: Place, *, old: str, new: str, gone: Collection[bytes]) -> bool:
        """Make a version that was put a slice's current one, and condemn the old one.

        Erasure has to go through all places (again) for the deletions before it. For a slice may have been left for
        later, and its old version leaves new traces, such as rows in the ledger's log. `gone` are tokens that the new
        version does not hold.

        False if the old version is not current any more: this process has lost the run's lock. The new version may hold
        what was deleted meanwhile, and is condemned.
        """
        slices, table = schema.slices, schema.erasing_records
        row = next(iter(self.rows.read(slices, **of_place(place))), None)
        if row is None:
            raise damaged(slices, 1)
        if row.digest != old:
            self.rows.condemn(versions=[(place, new)])
            return False
        erased = [each for each in self.rows.read(table, **of_place(place)) if each.token in gone]
        generations = [each.generation for each in erased]
        self.rows.remove(table, ({"token": each.token, **of_place(place)} for each in erased))
        if new != old:
            self.rows.upsert(slices, [{**row._mapping, "digest": new}])
            self.note_removed(versions=[(place, new)])
            self.rows.condemn(versions=[(place, old)], generation=min(generations, default=0))
        self.rows.walk_again(min(generations, default=None))
        self.rows.note_change()
        return True

    def note_removed(
        self,
        artifacts: Collection[tuple[int, str]] = (),
        *,
        versions: Collection[tuple[Place, str]] = (),
        put_late: Collection[tuple[int, str]] = (),
    ) -> None:
        """Note what was removed from the store; but not of an artifact that was put late meanwhile."""
        gone = [{**of_artifact(shard), "name": key} for shard, key in artifacts]
        gone += ({**of_place(place), "name": digest} for place, digest in versions)
        if gone:
            known = [{**of_artifact(shard), "name": key} for shard, key in put_late]
            self.rows.remove(schema.condemned, gone, schema.condemned.c.generation != PUT_LATE)
            self.rows.remove(schema.condemned, [each for each in gone if each in known])
            self.rows.note_change()

    def note_walked(self, generation: int) -> None:
        """Note that erasure went through every place for the generations up to one.

        Nothing is noted while anything is condemned that no deletion has condemned: it may hold any deleted record.
        """
        table = schema.condemned
        if self._run(select(table.c.name).where(table.c.generation <= 0).limit(1)).first() is None:
            self.rows.write_note(WALKED, to=max(generation, self.rows.note(WALKED)))
            self.rows.note_change()

    def settle(self) -> None:
        """Note which generations are accepted, effective and erased by now, and which sessions are dead.

        Times never run backwards, whatever the clock does. The transaction that makes a generation cannot note its
        acceptance: a prediction may begin before the commit, without seeing it. After a crash between the two this
        comes late, and the time is later than the true one.
        """
        living = self.sessions.end_dead()
        answered = min((row.answers for row in living), default=math.inf)
        used = min((row.generation for row in living), default=math.inf)
        log, walked = schema.generations, self.rows.note(WALKED)
        # Only rows that may change are read: thousands may wait for erasure, and each deletion settles.
        holding = (schema.erasing_records, schema.condemned, schema.withdrawals)
        left = log.c.generation.in_(union(*(select(table.c.generation) for table in holding)))
        gone = and_(log.c.generation <= walked, ~left)
        may_change = log.c.erased_at.is_(None), or_(log.c.effective_at.is_(None), gone)
        time, changes = self.rows.now(), []
        for row in self.rows.checked(log, self._run(select(log, left.label("left")).where(*may_change))):
            accepted, effective, erased = row.accepted_at, row.effective_at, None
            if accepted is None and row.generation < self._first_new:
                accepted = max(row.received_at, time)
            if effective is None and accepted is not None and answered >= row.generation:
                effective = max(accepted, time)
            passed = row.generation <= min(walked, used)  # every place was gone through, and no memory has it any more
            if effective is not None and passed and not row.left:
                erased = max(effective, time)
            if (accepted, effective, erased) != (row.accepted_at, row.effective_at, None):
                times = {"accepted_at": accepted, "effective_at": effective, "erased_at": erased}
                changes.append({**row._mapping, **times})
        if changes:
            self.rows.upsert(log, changes)
            self.rows.note_change()

    def announce(self, trained: Trained) -> bool:
        """Note that a stage's artifact is about to be put; False if it could not be committed any more."""
        # An artifact that is being erased under that key would be erased after it is put.
        erasing = self.rows.read(schema.condemned, shard=trained.stage.shard, name=trained.key)
        return (
            not erasing
            and self._may_be_committed(trained)
            and self.sessions.announce(trained.stage, trained.key, trained.session)
        )

    def commit(self, trained: Trained) -> bool:
        """Take a stage into use whose artifact was announced and put.

        False if a slice under it has lost a record since it was seen, or was losing one. False, too, if a stage that it
        was trained on is gone, or the session has lost its claim: then what it has put is condemned (once more, if it
        was put after that was erased), unless another session has announced it.
        """
        before, stage, key = self.snapshot(), trained.stage, trained.key
        if not self._may_be_committed(trained) or not self.sessions.has_announced(stage, key, trained.session):
            if (stage.shard, key) not in before.artifacts | self.sessions.announced():
                self.rows.condemn(artifacts=[(stage.shard, key)], generation=PUT_LATE)
            return False
        self.rows.upsert(schema.stages, [{**of_stage(stage), "key": key, "manifest": trained.manifest}])
        self.rows.upsert(schema.durations, [{**of_stage(stage), "seconds": trained.seconds}])
        self.rows.raise_note(REMOVALS if stage in before.stages else COMMITS)
        self._condemn_checkpoints(self.rows.all(Checkpoint, **of_stage(stage)))
        self.sessions.release(stage, trained.session)
        self.rows.note_change()
        if stage not in before.stages:
            artifacts = {**before.live.artifacts, stage: (key, trained.manifest)}
            self.live = replace(before.live, artifacts=artifacts, commits=before.live.commits + 1)
            self.history.note_depths({stage.shard}, before=before.stages, after=self.live.keys)
            if self.rows.note(CHANGES) == before.changes + 1:  # nothing else has changed
                self.latest = replace(before, changes=before.changes + 1, live=self.live)
        return True

    def checkpoint(self, stage: Stage) -> Checkpoint | None:
        """The newest checkpoint of a stage."""
        return next(iter(self.rows.all(Checkpoint, **of_stage(stage))), None)

    def keep(self, made: Trained, *, stage_key: str, put: bool) -> None:
        """Keep a stage's checkpoint that was announced, and put, in the place of the one before. If it was not, or the
        stage could not be committed any more, it is condemned."""
        stage, key = made.stage, made.key
        if put and self._may_be_committed(made) and self.sessions.has_announced(stage, key, made.session):
            self._condemn_checkpoints(self.rows.all(Checkpoint, **of_stage(stage)))
            self.rows.add(
                Checkpoint(stage=stage, stage_key=stage_key, key=key, digest=made.manifest, seconds=made.seconds)
            )
        else:
            self.rows.condemn(artifacts=[(stage.shard, key)], generation=PUT_LATE)
        self.sessions.announce(stage, None, made.session)

    def note_training(self, missing: Collection[Stage], *, learned: int) -> None:
        """Note what a training has left, of models of an addition. Checkpoints of other stages go: more was lost or
        learned since."""
        self._condemn_checkpoints([each for each in self.rows.all(Checkpoint) if each.stage not in missing])
        if not missing and self.rows.note(TAUGHT) < learned:
            self.rows.write_note(TAUGHT, to=learned)

    def unfinished_artifacts(self) -> set[tuple[int, str]]:
        """Artifacts, (shard, key), of stages that are not committed: those that living sessions are putting, and
        checkpoints."""
        return self.sessions.announced() | {(each.stage.shard, each.key) for each in self.rows.all(Checkpoint)}

    def _may_be_committed(self, trained: Trained) -> bool:
        """True if its slices have lost no record since it was trained, the stages before it are alive, and no more was
        added that a model is to learn."""
        if self.rows.note(KEY_DESTROYED):
            raise KeyDestroyedError("the run's secret was destroyed meanwhile: it cannot train any more")
        now, stage = self.snapshot(), trained.stage
        is_newest = stage.kind != "model" or stage.seen == now.learned
        return is_newest and now.still_as(trained.seen) and now.still_has(trained.parents)

    def forget_stages(self, stages: Mapping[Stage, str]) -> None:
        """Take stages out of use if they still have those keys, and condemn their artifacts."""
        live = self.snapshot().stages
        gone = {stage: key for stage, key in stages.items() if live.get(stage) == key}
        if gone:
            self._remove_stages(gone.keys())
        self.rows.condemn(artifacts={(stage.shard, key) for stage, key in gone.items()})

    def forget_run(self) -> None:
        """Forget what belongs to the run alone that this ledger was copied from."""
        for table in schema.of_one_run:
            self.rows.delete(table)

    def touch(self) -> None:
        """Write something, so that the end of the transaction waits for the disk."""
        self.rows.raise_note(CONFIRMED)


def _by_kind(condemned: Iterable[Any]) -> tuple[frozenset[tuple[int, str]], frozenset[tuple[Place, str]]]:
    """Rows of what is condemned as artifacts, (shard, key), and versions of slices."""
    artifacts = frozenset((row.shard, row.name) for row in condemned if row.slice == schema.NO_SLICE)
    return artifacts, frozenset((place_at(row), row.name) for row in condemned if row.slice != schema.NO_SLICE)
