"""Repair of a damaged ledger from its tables, the slices and the witness."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from s3t.errors import IntegrityError, itemised
from s3t.ledger import Ledger, RecordRow, Transaction
from s3t.ledger.damage import contents_of, rebuild_indexes, remove_wrong_records, structure_problems
from s3t.ledger.filling import record_rows
from s3t.partition import Secret
from s3t.records.slices import Slices, count_copies


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
        transaction.add_records(lost)
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
