"""Recognition of a run that is an older state of itself: a backup that was put back, or a copy.

folder with its ledger    the witness has seen a later generation, or a deletion that the ledger does not know
folder or slices alone    a slice has another version than the one that the ledger names
ledger alone              as above; or a version has fewer rows than the ledger counts
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from s3t.deletion.witness import Line, Witness
from s3t.errors import RestoredError
from s3t.ledger import Ledger, Transaction
from s3t.ledger.locks import RunLock, hold
from s3t.records.slices import Slices


def refuse_if_restored(ledger: Ledger, witness: Witness, *, lock: RunLock, run: Path, slices: Slices) -> None:
    with ledger.reading() as transaction:
        reason = _why_older(transaction, witness, slices)
    if reason is not None:  # a deletion may have come between two of the readings: again, while none can come
        with ledger.reading() if ledger.read_only else _alone(ledger, lock) as transaction:
            reason = _why_older(transaction, witness, slices)
    if reason is not None:
        raise RestoredError(
            f"{run} is an older state of the run ({reason}): a backup was put back, or it is a copy. It neither "
            f"serves nor trains until the later deletions are applied: run `s3t reconcile {run}`. If it is a copy to "
            f"try things on, make it a run of its own: `s3t clone --adopt {run}`"
        )


@contextmanager
def _alone(ledger: Ledger, lock: RunLock) -> Iterator[Transaction]:
    """A transaction while nothing is accepted and nothing erased."""
    with hold(lock), ledger.writing() as transaction:
        yield transaction


def _why_older(transaction: Transaction, witness: Witness, slices: Slices) -> str | None:
    snapshot, seen = transaction.snapshot(), witness.newest()
    if seen > snapshot.generation:
        return f"its ledger is at generation {snapshot.generation}, but {witness.path} has seen generation {seen}"
    if (number := _unknown_deletion(transaction, witness)) is not None:
        return f"generation {number} of its ledger is another deletion than the one that {witness.path} has seen"
    return _version_of_another_time(transaction, slices)


def _unknown_deletion(transaction: Transaction, witness: Witness) -> int | None:
    """The generation of a deletion in the witness of which the ledger does not know every token."""
    strangers = witness.strangers(transaction)
    if not strangers or not _unknown(transaction, witness, strangers):
        return None
    return next((line.generation for line in strangers if _unknown(transaction, witness, [line])), None)


def _unknown(transaction: Transaction, witness: Witness, lines: Sequence[Line]) -> bool:
    tokens = witness.tokens(lines)
    located = transaction.locate(records=tokens, subjects=())
    return bool(located.rows) or len(located.gone) < len(tokens)


def _version_of_another_time(transaction: Transaction, slices: Slices) -> str | None:
    """The problem of a slice of which only an older version is stored, or a newer one than the current one.

    A slice without any version, or with a damaged one, is no older state: reading it is an error, and other slices
    serve on. Older versions beside the current one are swept as long as the run has its secret.
    """
    destroyed = transaction.history.key_destroyed_at() is not None
    stored = slices.versions()
    for place, state in sorted(transaction.snapshot().slices.items()):
        others = stored.get(place, frozenset()) - {state.digest}
        alone = state.digest not in stored.get(place, frozenset())
        for digest in sorted(others):
            name, rows = slices.where(place, digest), slices.count_rows(place, digest)
            if alone or destroyed:
                return f"{name} is not the version of the slice that its ledger names"
            if rows is not None and rows < state.records:
                return f"its ledger counts {state.records} records in a slice of which {name} holds {rows}"
    return None
