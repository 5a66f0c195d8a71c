"""Reconciling: later deletions are applied again to a run of which an older state was restored.

Three memories know of deletions: the ledger, the versions of slices in the run's folder, and the witness outside of it.
A record is present only if all three say so; a deletion tells nothing of a record that came back after it, in a segment
that is newer. Deletions that the ledger does not know are accepted anew, as one generation above all that were seen.
Each slice then gets the version that the ledger asks for.

A version is named by the keyed digest of its rows, so it cannot be made without the run's secret. Of those that are
whole, the one with the fewest records is the newest: a slice only ever loses records. All are compared with the three
memories before anything is changed; a file that no deletion explains is an error.

Without the run's secret records cannot be told apart, but nothing reads slices any more: every version that the ledger
does not name is removed, and current versions that hold deleted records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from s3t.aftermath import RECONCILING, after_refusal
from s3t.core import Place, Secret, tainted_by
from s3t.deletion.acceptance import losses_of
from s3t.deletion.protocol import Eraser
from s3t.errors import IntegrityError, itemised
from s3t.ledger import Acceptance, RecordRow, SliceState, Transaction, schema
from s3t.ledger.damage import Contents, contents_of, rebuild_indexes, remove_wrong_rows, structure_problems
from s3t.ledger.filling import record_rows
from s3t.ledger.rows import damaged
from s3t.ledger.schema import row_of
from s3t.results.changes import Reconciliation
from s3t.store.artifacts import lost_stages
from s3t.store.disk import storage_errors
from s3t.store.slices import copies_in_order, slice_digest, without_records

if TYPE_CHECKING:
    import pyarrow as pa


def reconcile(eraser: Eraser) -> Reconciliation:
    """Apply later deletions of any of the three memories to a run, whose lock the caller holds.

    If no deletion explains some slices' files, nothing is changed, and the error lists them. After a StorageError,
    running it again goes on.
    """
    witnessed, ledger = eraser.witness.tokens(), eraser.ledger
    rows, versions = 0, dict[Place, _Version]()
    if eraser.secret.salt is not None:
        rows = _mend_ledger(eraser, witnessed)
        versions = _explained(eraser, witnessed)
    before = len(ledger.snapshot().stages)
    taken = _accept_later(eraser, versions, witnessed)  # compares tokens, which needs no key
    with after_refusal(RECONCILING):
        mended = _carry_out(eraser, versions)
    now = ledger.snapshot()
    lost = before - len(now.stages)
    return Reconciliation(generation=now.generation, rows=rows, records=taken, slices=mended, stages_lost=lost)


def _last_deletions(contents: Contents, witnessed: Mapping[bytes, int]) -> dict[bytes, int]:
    """The last deletion of each token that the ledger or the witness knows."""
    last = dict(contents.deleted)
    for token, generation in witnessed.items():
        last[token] = max(generation, last.get(token, 0))
    return last


def _mend_ledger(eraser: Eraser, witnessed: Mapping[bytes, int]) -> int:
    """Mend the ledger in one transaction; returns the number of rows that were written anew.

    Indexes are built anew from their tables. Records that the ledger has lost, or whose rows are wrong, are written
    anew from slices whose digest is right; `witnessed` are the deletions in the witness. If other damage remains,
    nothing is changed.
    """
    with eraser.ledger.writing() as transaction:
        rows = transaction.rows
        if structure_problems(rows) and (problems := rebuild_indexes(rows)):
            raise _damaged(eraser.run, problems)
        if left := remove_wrong_rows(rows):
            raise _damaged(eraser.run, (f"rows of the table `{name}` are damaged" for name in left))
        contents = contents_of(rows)
        deleted = _last_deletions(contents, witnessed)
        lost: list[RecordRow] = []
        short: list[str] = []
        for place, state in sorted(transaction.snapshot().slices.items()):
            present = contents.records.get(place, {})
            if sum(row.copies for row in present.values()) == state.records:
                continue
            in_file = record_rows(place, dict(copies_in_order(eraser.slices.read(place, state.digest))), eraser.secret)
            accounted = present.keys() | contents.erasing.get(place, frozenset())
            missing = [
                row for row in in_file if row.token not in accounted and deleted.get(row.token, 0) <= state.after
            ]
            if sum(row.copies for row in (*present.values(), *missing)) != state.records:
                short.append(f"slice {place.slice} of shard {place.shard} has other records than the ledger counts")
            lost += missing
        if short:
            raise _damaged(eraser.run, short)
        rows.upsert(schema.records, map(row_of, lost))
        return len(lost)


def _damaged(run: Path, problems: Iterable[str]) -> IntegrityError:
    return IntegrityError(
        f"the ledger of {run} is damaged, and neither its checks nor the slices tell what it held; nothing was "
        f"changed. Put the ledger back from a backup, then run `s3t reconcile {run}` again:{itemised(problems)}"
    )


@dataclass(frozen=True, kw_only=True)
class _Version:
    """The newest whole version of a slice."""

    digest: str
    rows: pa.Table
    copies: Mapping[bytes, int]
    """Number of rows of each record, by its token."""
    whole: Set[str]
    """Digests of all whole versions of the slice."""


def _explained(eraser: Eraser, witnessed: Mapping[bytes, int]) -> dict[Place, _Version]:
    """The newest whole version of every slice, if deletions explain them all."""
    with storage_errors("looking at the slices"):
        stored = eraser.slices.versions()
    newest: dict[Place, _Version] = {}
    problems: dict[Place, str] = {}
    for place, state in sorted(eraser.ledger.snapshot().slices.items()):
        try:
            newest[place] = _newest(eraser, place, {state.digest, *stored.get(place, ())}, state=state)
        except IntegrityError as error:
            problems[place] = str(error)
    with eraser.ledger.reading() as transaction:
        slices, contents = transaction.snapshot().slices, _contents(transaction)
        _, announced = transaction.condemned()  # or superseded
    deleted = _last_deletions(contents, witnessed)
    for place, rows in contents.records.items():  # the memory may name some that are still to be deleted
        for token in rows.keys() & deleted.keys():
            if deleted[token] > slices[place].after:
                del deleted[token]
    for place, version in newest.items():
        present, erasing = contents.records.get(place, {}), contents.erasing.get(place, frozenset())
        problem = _problem(version, slices[place], present, erasing, deleted)
        if problem is None and (place, version.digest) not in announced:
            problem = _unknown(version, slices[place], present.keys(), erasing, eraser.secret)
        if problem is not None:
            problems[place] = f"{eraser.slices.where(place, version.digest)} {problem}"
    if problems:
        run, lines = eraser.run, itemised(problem for _, problem in sorted(problems.items()))
        raise IntegrityError(
            f"{run} holds files of slices that no deletion explains; nothing was changed. Put the right ones back "
            f"from a backup, then run `s3t reconcile {run}` again:{lines}"
        )
    return newest


def _newest(eraser: Eraser, place: Place, digests: Collection[str], *, state: SliceState) -> _Version:
    """The newest whole version of a slice. If none is whole, the error is about the current one."""
    whole: dict[str, pa.Table] = {}
    refused: dict[str, IntegrityError] = {}
    for digest in sorted(digests):
        try:
            whole[digest] = eraser.slices.read(place, digest)
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
        raise IntegrityError(f"{eraser.slices.where(place, digest)} is not the file of a slice")
    copies = Counter(eraser.secret.token("ledger", "record", name) for name in rows["record"].to_pylist())
    return _Version(digest=digest, rows=rows, copies=copies, whole=whole.keys())


def _contents(transaction: Transaction) -> Contents:
    """The ledger's rows, by which slices are rewritten: an IntegrityError if one is wrong."""
    contents = contents_of(transaction.rows)
    for name, count in contents.wrong.items():
        raise damaged(schema.metadata.tables[name], count)
    return contents


def _problem(
    version: _Version,
    state: SliceState,
    present: Mapping[bytes, RecordRow],
    erasing: Set[bytes],
    deleted: Mapping[bytes, int],
) -> str | None:
    """The reason why deletions do not explain the records of a version; None if they do."""
    others = version.copies.keys() - present.keys() - erasing
    if foreign := {token for token in others if deleted.get(token, 0) <= state.after}:
        return f"holds records that were never in this slice: {len(foreign)}. Is it the file of another?"
    both = present.keys() & version.copies.keys()
    if version.digest == state.digest and (lost := present.keys() - both):
        return f"lacks {len(lost)} of {len(present)} records, and nothing says that they were deleted"
    if any(version.copies[token] != present[token].copies for token in both):
        return "holds a record more often or less often than the ledger says"
    return None


def _unknown(
    version: _Version, state: SliceState, present: Set[bytes], erasing: Set[bytes], secret: Secret
) -> str | None:
    """The problem of a version of which the ledger's current one cannot be left; None if it can, if it is that, and if
    it is newer than the ledger."""
    if not present <= version.copies.keys() or version.digest == state.digest:
        return None
    for tokens in (present, present | erasing):
        left = without_records(version.rows, version.copies.keys() - tokens, secret)
        if slice_digest(left, secret) == state.digest:
            return None
    return "holds the right ids, but other records than any state of the run did"


def _accept_later(eraser: Eraser, newest: Mapping[Place, _Version], witnessed: Mapping[bytes, int]) -> int:
    """Accept deletions that the witness or the folder knows and the ledger does not; returns deleted rows."""
    seen, last = eraser.witness.newest(), eraser.witness.last()
    unasked = {token for token, (_, asked) in last.items() if not asked}
    with eraser.ledger.writing() as transaction:
        snapshot = transaction.snapshot()
        located = transaction.locate(records=witnessed, subjects=())
        later = witnessed.keys() - located.gone.keys()
        # The witness may number another history's deletions: what this one never deleted never came back.
        still = (
            row
            for row in located.rows
            if row.token not in located.gone or witnessed[row.token] > snapshot.slices[row.place].after
        )
        rows: dict[bytes, RecordRow] = {row.token: row for row in still}
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
        taken = Acceptance(rows=list(rows.values()), losses=losses, tainted=tainted, asked=False)
        (generation,) = transaction.accept([taken], above=seen)
        transaction.history.remember(later, generation=generation)
        transaction.history.note_asked((witnessed.keys() | rows.keys()) - unasked)
        for place, gone in lacking.items():  # their newest versions are newer than the ledger
            old = snapshot.slices[place].digest
            transaction.supersede(place, old=old, new=newest[place].digest, gone=gone)
    return sum(losses.values())


def _carry_out(eraser: Eraser, versions: Mapping[Place, _Version]) -> tuple[Place, ...]:
    """Change folder and witness to the ledger's state; returns the slices that were changed."""
    ledger = eraser.ledger
    if eraser.secret.salt is None:
        mended = _remove_unknown(eraser)  # lost stages cannot be trained again, but a newer backup may have them
    else:
        with ledger.reading() as transaction:
            contents = _contents(transaction)
        mended = tuple(place for place, version in versions.items() if _mend(eraser, place, version, contents))
        with storage_errors("looking at the artifacts"):  # stages trained after the backup have none
            lost = lost_stages(eraser.store, ledger.snapshot().stages)
        with ledger.writing() as transaction:
            transaction.forget_stages(lost)
    eraser.withdrawer.memory.catch_up(ledger)  # slices are now those that exports are compared with
    eraser.sweep(unknown=True)
    eraser.erase(everything=True, anyway=True)
    eraser.witness.catch_up(ledger)
    eraser.witness.note_again(ledger)
    return mended


def _mend(eraser: Eraser, place: Place, newest: _Version, contents: Contents) -> bool:
    """Make a slice's current version the one that the ledger asks for; True if it was not stored."""
    ledger, secret = eraser.ledger, eraser.secret
    current, erasing = ledger.snapshot().slices[place].digest, contents.erasing.get(place, frozenset())
    gone = newest.copies.keys() - contents.records.get(place, {}).keys()
    kept = without_records(newest.rows, gone, secret) if gone else newest.rows
    digest = slice_digest(kept, secret)
    if digest not in newest.whole:
        with ledger.writing() as transaction:
            transaction.rows.condemn(versions=[(place, digest)])
    with storage_errors("reconciling a slice"):  # also if it is stored: its name may not be on the disk
        eraser.slices.put(place, kept)
    with ledger.writing() as transaction:
        if digest != current:
            stages = transaction.snapshot().stages
            transaction.forget_stages({stage: stages[stage] for stage in tainted_by([place], stages)})
        transaction.supersede(place, old=current, new=digest, gone=erasing)
    return digest not in newest.whole


def _remove_unknown(eraser: Eraser) -> tuple[Place, ...]:
    """Without the run's secret: remove versions that may hold a deleted record; returns their slices.

    Those are versions that the ledger does not name. Current versions are removed if they hold a record whose
    deletion the ledger knows, hold more records than it counts, or cannot be read.
    """
    slices = eraser.slices
    with storage_errors("looking at the slices"):
        stored = slices.versions()
    with eraser.ledger.reading() as transaction:
        states, work = transaction.snapshot().slices, transaction.to_erase()

    def may_stay(place: Place, digest: str) -> bool:
        if place in work.records or place not in states or states[place].digest != digest:
            return False
        rows = slices.count_rows(place, digest)
        return rows is not None and rows <= states[place].records

    versions = [(place, each) for place, digests in stored.items() for each in digests if not may_stay(place, each)]
    with storage_errors("removing versions of slices"):
        slices.erase(sorted(versions))
    with eraser.ledger.writing() as transaction:
        for place, tokens in work.records.items():
            digest = states[place].digest
            transaction.supersede(place, old=digest, new=digest, gone=tokens)
    return tuple(sorted({place for place, _ in versions}))
