"""A deletion from request to the last byte.

    locate  the record's place, by the keyed hash of its id or subject
    accept  one ledger transaction: the record and every stage above it are out of use; durable from here
    erase   artifacts above the slice removed, the slice's file rewritten, temporary files swept
    finish  one ledger transaction: nothing left to erase

A crash before acceptance leaves the run as it was. After it, whoever opens the run next finishes the erasure; each
step may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import BaseFileLock

from s3t.deletion.plan import Plan, after_deletion, plan_deletion
from s3t.disk import storage_errors, sweep_tmp
from s3t.errors import IntegrityError, StorageError
from s3t.inventory import Inventory
from s3t.ledger import Ledger, Located, RecordRow, SliceState
from s3t.partition import Place, Secret
from s3t.records import read_slice, without_records, write_slice
from s3t.sequences import Order
from s3t.store import ArtifactStore


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a request did, or would do."""

    inventory: Inventory
    """After it."""
    plan: Plan
    rows: tuple[RecordRow, ...]
    """The records that left."""
    already: tuple[str, ...]
    """Requested names that had been deleted before, in the order asked."""
    unknown: tuple[str, ...]
    """Requested names that the run has never held."""


class Deleter:
    """Deletes records of one run. One deletion at a time, across processes."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        store: ArtifactStore,
        secret: Secret,
        slices: Path,
        tmp: Path,
        lock: BaseFileLock,
        orders: Callable[[], tuple[tuple[Order, ...], ...]],
        forget: Callable[[Collection[Place]], None],
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._secret = secret
        self._slices = slices
        self._tmp = tmp
        self._lock = lock
        self._orders = orders  # for the report alone: what a deletion erases, the ledger's stages decide
        self._forget = forget  # drops what is in memory of slices

    def delete(self, *, records: Sequence[str], subjects: Sequence[str], dry_run: bool) -> Outcome:
        """Delete records by id and by subject; names that are gone or unknown change nothing.

        Raises:
            StorageError: the disk or the database refused. Before acceptance nothing has changed; after it, the
                records are out of use, and opening the run again finishes the erasure.
        """
        record_tokens = {self._secret.token("ledger", "record", name): name for name in records}
        subject_tokens = {self._secret.token("ledger", "subject", name): name for name in subjects}
        with self.holding_off():
            self._finish("erasing records that were deleted before (of the present request nothing has happened)")
            orders = self._orders()
            with self._ledger.writing() as transaction:
                located = transaction.locate(records=record_tokens.keys(), subjects=subject_tokens.keys())
                before = transaction.snapshot().inventory(orders)
                plan = plan_deletion(before, _losses(located))
                if located.rows and not dry_run:
                    tainted = {stage: before.alive[stage] for stage in plan.tainted}
                    transaction.accept(located.rows, losses=plan.losses, tainted=tainted)
            if located.rows and not dry_run:
                self.finish()
        already, unknown = _absent(located, record_tokens, subject_tokens)
        return Outcome(
            inventory=after_deletion(before, plan),
            plan=plan,
            rows=located.rows,
            already=already,
            unknown=unknown,
        )

    def finish(self) -> None:
        """Erase whatever has been accepted. Does nothing where nothing is left; safe to run twice.

        Raises:
            StorageError: the disk or the database refused; opening the run again goes on.
        """
        self._finish("erasing deleted records (they are out of use already)")

    def _finish(self, doing: str) -> None:
        if not self._ledger.unfinished():
            return
        with self.holding_off(), _erasure_errors(doing):
            with self._ledger.writing() as transaction:
                tokens, artifacts = transaction.to_erase()
                slices = transaction.snapshot().slices
            self._forget(tokens.keys())
            self._store.erase(artifacts)
            self.sweep()
            digests = {
                place: self._erase_from_slice(place, gone, known=slices[place]) for place, gone in tokens.items()
            }
            with self._ledger.writing() as transaction:
                transaction.erased(digests, artifacts)

    @contextmanager
    def holding_off(self) -> Iterator[None]:
        """While within, no other deletion begins, in any process."""
        with storage_errors("locking the run"):
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def sweep(self) -> None:
        """Remove what killed processes left: temporary files, and artifacts that no committed stage names."""
        with storage_errors("sweeping temporary files"):
            sweep_tmp(self._tmp)
        with self._ledger.writing() as transaction, storage_errors("sweeping the artifact store"):
            known = {(stage.shard, key) for stage, key in transaction.snapshot().stages.items()}
            if orphans := self._store.keys() - known:
                self._store.erase(orphans)

    def _erase_from_slice(self, place: Place, tokens: Collection[bytes], *, known: SliceState) -> str:
        """Rewrite a slice's file without the records; its new digest.

        Raises:
            IntegrityError: the file is neither the one that the ledger knows nor that one without the records.
        """
        content = read_slice(self._slices, place, self._secret)
        kept = without_records(content.rows, tokens, self._secret)
        rewritten = kept.num_rows == content.rows.num_rows  # and then a crash came
        if kept.num_rows != known.records or not (rewritten or content.digest == known.digest):
            raise IntegrityError(
                f"the file of slice {place.slice} of shard {place.shard} is not the one that the ledger knows; the "
                "deleted records are out of use. Restore the file from a backup, and open the run to finish"
            )
        if rewritten:
            return content.digest
        return write_slice(self._slices, place, kept, self._secret, tmp=self._tmp)


@contextmanager
def _erasure_errors(doing: str) -> Iterator[None]:
    """Let every refusal, the ledger's too, say what was being done: for it is not true that nothing has changed."""
    try:
        with storage_errors(doing):
            yield
    except StorageError as error:
        reason = getattr(error.__cause__, "orig", None)
        if reason is None:  # the disk's
            raise
        remedy = "free space or mend the disk, then open the run again"
        raise StorageError(f"{doing} failed: the ledger refused ({reason}); {remedy}") from error


def _losses(located: Located) -> dict[Place, int]:
    losses: dict[Place, int] = {}
    for row in located.rows:
        losses[row.place] = losses.get(row.place, 0) + row.copies
    return losses


def _absent(
    located: Located, records: Mapping[bytes, str], subjects: Mapping[bytes, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    present = {row.token for row in located.rows} | {row.subject for row in located.rows}
    absent = [(token, name) for names in (records, subjects) for token, name in names.items() if token not in present]
    return (
        tuple(name for token, name in absent if token in located.already),
        tuple(name for token, name in absent if token not in located.already),
    )
