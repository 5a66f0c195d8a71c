"""Reconciling: later deletions are applied again to a run of which an older state was restored.

Three memories know of deletions: the ledger, the versions of slices in the run's folder, and the witness outside of it.
A record is present only if all three say so. Deletions that the ledger does not know are accepted anew, as one
generation above all that were seen. Each slice then gets the version that the ledger asks for.

A version is named by the keyed digest of its rows, so it cannot be made without the run's secret. Of those that are
whole, the one with the fewest records is the newest: a slice only ever loses records. All are compared with the three
memories before anything is changed; a file that no deletion explains is an error.

Without the run's secret records cannot be told apart, but nothing reads slices any more: every version that the ledger
does not name is removed, and current versions that hold deleted records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from s3t.aftermath import RECONCILING, after_refusal
from s3t.core import Place, Secret, tainted_by
from s3t.deletion.acceptance import losses_of
from s3t.deletion.protocol import Eraser
from s3t.deletion.witness import Witness
from s3t.errors import IntegrityError, itemised
from s3t.ledger import Acceptance, Ledger, RecordRow, SliceState, Transaction, schema
from s3t.ledger.damage import contents_of, rebuild_indexes, remove_wrong_records, structure_problems
from s3t.ledger.filling import record_rows
from s3t.ledger.schema import row_of
from s3t.store.artifacts import lost_stages
from s3t.store.disk import storage_errors
from s3t.store.slices import Slices, count_copies, slice_digest, without_records

if TYPE_CHECKING:
    import pyarrow as pa


def mend_ledger(ledger: Ledger, *, secret: Secret, slices: Slices, witnessed: Set[bytes], run: Path) -> int:
    """Mend a ledger in one transaction; returns the number of rows that were written anew.

    Indexes are built anew from their tables. Records that the ledger has lost, or whose rows are wrong, are written
    anew from slices whose digest is right; `witnessed` are the deleted tokens in the witness. If other damage remains,
    nothing is changed.
    """
    with ledger.writing() as transaction:
        if structure_problems(transaction.rows) and (problems := rebuild_indexes(transaction.rows)):
            raise IntegrityError(_damaged(run, problems))
        if left := remove_wrong_records(transaction.rows):
            raise IntegrityError(_damaged(run, [f"rows of the table `{name}` are damaged" for name in left]))
        lost = _lost_records(transaction, secret=secret, slices=slices, witnessed=witnessed, run=run)
        transaction.rows.upsert(schema.records, map(row_of, lost))
        return len(lost)


def _lost_records(
    transaction: Transaction, *, secret: Secret, slices: Slices, witnessed: Set[bytes], run: Path
) -> list[RecordRow]:
    """Records in the slices' files that the ledger counts and has no row of."""
    snapshot = transaction.snapshot()
    contents = contents_of(transaction.rows)
    lost: list[RecordRow] = []
    short: list[str] = []
    for place, state in sorted(snapshot.slices.items()):
        present = contents.records.get(place, {})
        if sum(row.copies for row in present.values()) == state.records:
            continue
        rows = record_rows(place, count_copies(slices.read(place, state.digest)), secret)
        in_file = {row.token: row for row in rows}
        accounted = present.keys() | contents.erasing.get(place, frozenset()) | contents.deleted | witnessed
        missing = [row for token, row in in_file.items() if token not in accounted]
        if sum(row.copies for row in (*present.values(), *missing)) != state.records:
            short.append(f"slice {place.slice} of shard {place.shard} has other records than the ledger counts")
        lost += missing
    if short:
        raise IntegrityError(_damaged(run, short))
    return lost


def _damaged(run: Path, problems: list[str]) -> str:
    return (
        f"the ledger of {run} is damaged, and neither its checks nor the slices tell what it held; nothing was "
        f"changed. Put the ledger back from a backup, then run `s3t reconcile {run}` again:{itemised(problems)}"
    )


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    rows: int
    """Damaged or lost rows of the ledger that were mended."""
    records: int
    """Deleted records that the ledger had as present."""
    slices: tuple[Place, ...]
    """Slices of which a version was put, or, without the run's secret, removed."""
    stages: int
    """Stages that were in use and are not any more."""


@dataclass(frozen=True, kw_only=True)
class _Version:
    """The newest whole version of a slice."""

    digest: str
    rows: pa.Table
    copies: Mapping[bytes, int]
    """Number of rows of each record, by its token."""
    whole: Set[str]
    """Digests of all whole versions of the slice."""


@dataclass(frozen=True, kw_only=True)
class _Remembered:
    """Facts about a slice that ledger and witness know."""

    digest: str
    """Digest of the version that the ledger takes for current."""
    condemned: Set[str]
    """Digests of versions that were announced or superseded."""
    present: Mapping[bytes, int]
    """The ledger's records, and the number of rows of each."""
    erasing: Set[bytes]
    """Deleted records that are still in the ledger's current version."""
    deleted: Set[bytes]
    """Deleted records of any slice, by ledger or witness."""

    def problem(self, version: _Version, secret: Secret) -> str | None:
        """The reason why deletions do not explain a version; None if they do."""
        if foreign := version.copies.keys() - self.present.keys() - self.deleted:
            return f"holds records that were never in this slice: {len(foreign)}. Is it the file of another?"
        both = self.present.keys() & version.copies.keys()
        if version.digest == self.digest and (lost := self.present.keys() - both):
            return f"lacks {len(lost)} of {len(self.present)} records, and nothing says that they were deleted"
        if any(version.copies[token] != self.present[token] for token in both):
            return "holds a record more often or less often than the ledger says"
        if self.present.keys() <= version.copies.keys() and not self._knows(version, secret):
            return "holds the right ids, but other records than any state of the run did"
        return None

    def _knows(self, version: _Version, secret: Secret) -> bool:
        """True if the ledger's current version is that one, or is left of it after later deletions."""
        if version.digest in {self.digest, *self.condemned}:
            return True
        for tokens in (self.present.keys(), self.present.keys() | self.erasing):
            left = without_records(version.rows, version.copies.keys() - tokens, secret)
            if slice_digest(left, secret) == self.digest:
                return True
        return False


@dataclass(frozen=True, kw_only=True)
class Reconciler:
    """Reconciles one run. The caller holds the run's lock."""

    ledger: Ledger
    witness: Witness
    eraser: Eraser
    secret: Secret

    def reconcile(self) -> Reconciled:
        """Apply later deletions of any of the three memories.

        If no deletion explains some slices' files, nothing is changed, and the error lists them. After a StorageError,
        running it again goes on.
        """
        witnessed, has_key = frozenset(self.witness.tokens()), self.secret.salt is not None
        rows = 0
        if has_key:
            slices, run = self.eraser.slices, self.eraser.run
            rows = mend_ledger(self.ledger, secret=self.secret, slices=slices, witnessed=witnessed, run=run)
        versions = self._explained(witnessed) if has_key else {}
        before = len(self.ledger.snapshot().stages)
        taken = self._accept_later(versions, witnessed)  # compares tokens, which needs no key
        with after_refusal(RECONCILING):
            mended = self._carry_out(versions)
        return Reconciled(rows=rows, records=taken, slices=mended, stages=before - len(self.ledger.snapshot().stages))

    def _carry_out(self, versions: Mapping[Place, _Version]) -> tuple[Place, ...]:
        """Change folder and witness to the ledger's state; returns the slices that were changed."""
        has_key = self.secret.salt is not None
        if has_key:
            mended = tuple(place for place, version in versions.items() if self._mend(place, version))
        else:
            mended = self._remove_unknown()
        with storage_errors("looking at the artifacts"):  # stages trained after the backup have none
            lost = lost_stages(self.eraser.store, self.ledger.snapshot().stages)
        with self.ledger.writing() as transaction:
            if has_key:  # else they cannot be trained again, but a newer backup may have their artifacts
                transaction.forget_stages(lost)
        self.eraser.withdrawer.memory.catch_up(self.ledger)  # slices are now those that exports are compared with
        self.eraser.sweep()
        self.eraser.erase(everything=True, anyway=True)
        self.witness.catch_up(self.ledger)
        self.witness.note_again(self.ledger)
        return mended

    def _explained(self, witnessed: Set[bytes]) -> dict[Place, _Version]:
        """The newest whole version of every slice, if deletions explain them all."""
        with storage_errors("looking at the slices"):
            stored = self.eraser.slices.versions()
        newest: dict[Place, _Version] = {}
        problems: dict[Place, str] = {}
        for place, state in sorted(self.ledger.snapshot().slices.items()):
            try:
                newest[place] = self._newest(place, {state.digest, *stored.get(place, ())}, state=state)
            except IntegrityError as error:
                problems[place] = str(error)
        for place, remembered in self._remembered(newest, witnessed).items():
            if (problem := remembered.problem(newest[place], self.secret)) is not None:
                problems[place] = f"{self.eraser.slices.where(place, newest[place].digest)} {problem}"
        if problems:
            run, lines = self.eraser.run, itemised(problem for _, problem in sorted(problems.items()))
            raise IntegrityError(
                f"{run} holds files of slices that no deletion explains; nothing was changed. Put the right ones back "
                f"from a backup, then run `s3t reconcile {run}` again:{lines}"
            )
        return newest

    def _newest(self, place: Place, digests: Collection[str], *, state: SliceState) -> _Version:
        """The newest whole version of a slice. If none is whole, the error is about the current one."""
        whole: dict[str, pa.Table] = {}
        refused: dict[str, IntegrityError] = {}
        for digest in sorted(digests):
            try:
                whole[digest] = self.eraser.slices.read(place, digest)
            except IntegrityError as error:
                refused[digest] = error
        if not whole:
            raise refused[state.digest]
        newer = [digest for digest, rows in whole.items() if rows.num_rows < state.records]
        # If none is newer than the ledger, its version is right; what a killed process has put beside it is swept.
        candidates = newer or [digest for digest in whole if digest == state.digest] or list(whole)
        digest = min(candidates, key=lambda each: whole[each].num_rows)
        rows = whole[digest]
        if "record" not in rows.column_names:
            raise IntegrityError(f"{self.eraser.slices.where(place, digest)} is not the file of a slice")
        copies = Counter(self.secret.token("ledger", "record", name) for name in rows["record"].to_pylist())
        return _Version(digest=digest, rows=rows, copies=copies, whole=whole.keys())

    def _remembered(self, newest: Mapping[Place, _Version], witnessed: Set[bytes]) -> dict[Place, _Remembered]:
        with self.ledger.reading() as transaction:
            snapshot, work = transaction.snapshot(), transaction.to_erase()
            present = {place: {row.token: row.copies for row in transaction.records_in(place)} for place in newest}
            others = {token for place, each in newest.items() for token in each.copies.keys() - present[place].keys()}
            located = transaction.locate(records=others, subjects=())
        elsewhere = {row.token for row in located.rows}  # present in another slice, though it may be deleted later
        return {
            place: _Remembered(
                digest=snapshot.slices[place].digest,
                condemned={digest for where, digest in work.versions if where == place},
                present=present[place],
                erasing=work.records.get(place, frozenset()),
                deleted=(located.gone.keys() | witnessed) - elsewhere,
            )
            for place in newest
        }

    def _accept_later(self, newest: Mapping[Place, _Version], witnessed: Set[bytes]) -> int:
        """Accept deletions that the witness or the folder knows and the ledger does not; returns deleted rows."""
        seen = self.witness.newest()
        with self.ledger.writing() as transaction:
            snapshot = transaction.snapshot()
            located = transaction.locate(records=witnessed, subjects=())
            later = witnessed - located.gone.keys()
            rows: dict[bytes, RecordRow] = {row.token: row for row in located.rows}
            lacking: dict[Place, list[bytes]] = {}
            for place, version in newest.items():
                missing = {row.token: row for row in transaction.records_in(place) if row.token not in version.copies}
                rows |= missing
                if missing:
                    lacking[place] = list(missing)
            if not rows and not later and seen <= snapshot.generation:
                return 0
            losses = losses_of(rows.values())
            tainted = {stage: snapshot.stages[stage] for stage in tainted_by(losses, snapshot.stages)}
            taken = Acceptance(rows=list(rows.values()), losses=losses, tainted=tainted)
            (generation,) = transaction.accept([taken], above=seen)
            transaction.history.remember(later, generation=generation)
            for place, gone in lacking.items():  # their newest versions are newer than the ledger
                old = snapshot.slices[place].digest
                transaction.supersede(place, old=old, new=newest[place].digest, gone=gone)
        return sum(losses.values())

    def _mend(self, place: Place, newest: _Version) -> bool:
        """Make a slice's current version the one that the ledger asks for; True if it was not stored."""
        with self.ledger.reading() as transaction:
            current = transaction.snapshot().slices[place].digest
            erasing = transaction.to_erase().records.get(place, frozenset())
            gone = newest.copies.keys() - {row.token for row in transaction.records_in(place)}
        kept = without_records(newest.rows, gone, self.secret) if gone else newest.rows
        digest = slice_digest(kept, self.secret)
        if digest not in newest.whole:
            with self.ledger.writing() as transaction:
                transaction.rows.condemn(versions=[(place, digest)])
        with storage_errors("reconciling a slice"):  # also if it is stored: its name may not be on the disk
            self.eraser.slices.put(place, kept)
        with self.ledger.writing() as transaction:
            if digest != current:
                stages = transaction.snapshot().stages
                transaction.forget_stages({stage: stages[stage] for stage in tainted_by([place], stages)})
            transaction.supersede(place, old=current, new=digest, gone=erasing)
        return digest not in newest.whole

    def _remove_unknown(self) -> tuple[Place, ...]:
        """Without the run's secret: remove versions that may hold a deleted record; returns their slices.

        Those are versions that the ledger does not name. Current versions are removed if they hold a record whose
        deletion the ledger knows, hold more records than it counts, or cannot be read.
        """
        with storage_errors("looking at the slices"):
            stored = self.eraser.slices.versions()
        with self.ledger.reading() as transaction:
            snapshot, work = transaction.snapshot(), transaction.to_erase()
        current = {(place, state.digest): state.records for place, state in snapshot.slices.items()}
        versions = [
            (place, digest)
            for place, digests in stored.items()
            for digest in sorted(digests)
            if place in work.records or not self._holds_at_most(place, digest, current.get((place, digest)))
        ]
        with storage_errors("removing versions of slices"):
            self.eraser.slices.erase(versions)
        with self.ledger.writing() as transaction:
            for place, tokens in work.records.items():
                digest = snapshot.slices[place].digest
                transaction.supersede(place, old=digest, new=digest, gone=tokens)
        return tuple(sorted({place for place, _ in versions}))

    def _holds_at_most(self, place: Place, digest: str, records: int | None) -> bool:
        """True if a version can be read and holds at most a number of records; False if that number is None."""
        rows = self.eraser.slices.count_rows(place, digest)
        return rows is not None and records is not None and rows <= records
