"""A deletion from request to the last byte.

    accept     one ledger transaction: the records and every stage above them are out of use; durable from here
    witness    the deletion is noted outside of the run folder, so that a backup put back is recognised
    effective  every open run that predicts or trains has stopped what used them
    erased     they have left every place of the list (`places.py`)

A crash before acceptance leaves the run as it was. After it, whoever opens or uses the run next goes on; each step may
be done twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from s3t.aftermath import NOTHING_CHANGED, OUT_OF_USE, PARTLY_OUT_OF_USE, after_refusal
from s3t.deletion.acceptance import Accepted, Acceptor
from s3t.deletion.erasure import Eraser
from s3t.deletion.grouping import Grouped
from s3t.deletion.lookup import Held, Lookup
from s3t.deletion.request import Batch, Request
from s3t.deletion.witness import Witness
from s3t.errors import FsyncError, IntegrityError, StorageError
from s3t.inventory import Inventory
from s3t.ledger import Ledger, LogEntry
from s3t.ledger.locks import RunLock, held, needed
from s3t.ledger.presence import Presence
from s3t.partition import Place
from s3t.progress import Progress, Silent

BATCH_NAMES = 10_000
"""Names of a request that are accepted in one transaction."""
PATIENCE_SECONDS = 5.0
"""How long `delete` waits for who is erasing, and for other open runs to move; what they answer after acceptance is
right in any case."""
_GROUP = 64
_POLL_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a request did, or would do."""

    before: Inventory
    after: Inventory
    losses: dict[Place, int]
    """Records that each slice lost."""
    stages_lost: int
    deleted: int
    """Records that left; of a request that is repeated, those that left the first time."""
    already: tuple[str, ...]
    """Requested names that had been deleted before, in the order asked."""
    unknown: tuple[str, ...]
    """Requested names that the run has never held."""
    entries: tuple[LogEntry, ...]
    """The log's, of the generations that it made."""
    unreadable: tuple[Place, ...]
    """Slices whose files could not be read to look for an unknown name."""
    repeated: bool
    """Whether a request with the same idempotency key had been made before."""


@dataclass
class _Sum:
    """Batches of one request, added up."""

    accepted: list[Accepted] = field(default_factory=list)
    generations: set[int] = field(default_factory=set)
    deleted: int = 0

    def add(self, result: Accepted) -> None:
        self.accepted.append(result)
        if result.generation is not None:
            self.generations.add(result.generation)
        if result.earlier is not None:
            self.generations |= result.earlier.generations
            self.deleted = max(self.deleted, result.earlier.deleted)
        self.deleted += sum(row.copies for row in result.rows)


class Deleter:
    """Deletes records of one run. Safe to share among threads; processes and hosts come one after the other."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        acceptor: Acceptor,
        lookup: Lookup,
        eraser: Eraser,
        witness: Witness,
        presence: Presence,
        lock: RunLock,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._ledger = ledger
        self._acceptor = acceptor
        self._lookup = lookup
        self._eraser = eraser
        self._witness = witness
        self._presence = presence
        self._lock = lock
        self._patience = patience
        self._accept = Grouped(self._accept_group, limit=_GROUP)
        self._accepting = 0  # requests of which batches may be to come
        self._counting = threading.Lock()

    def delete(self, request: Request, *, dry_run: bool = False, progress: Progress | None = None) -> Outcome:
        """Delete records by id and by subject; names that are gone or unknown change nothing.

        Raises:
            InputError: the idempotency key was used for other names; nothing has changed.
            IntegrityError: the ledger has lost a record that is in a slice's file; nothing has changed.
            StorageError: the disk or the database refused. Before acceptance nothing has changed; after that of the
                first batch, the message says that records are out of use.
        """
        with after_refusal(NOTHING_CHANGED):
            in_files = self._lookup.held(records=request.records, subjects=request.subjects)
        batches = [replace(batch, held=in_files.of(batch)) for batch in request.batches(BATCH_NAMES)]
        total = _Sum()
        if dry_run:
            with after_refusal(NOTHING_CHANGED):
                for result in self._acceptor.look(batches):
                    total.add(_or_raise(result))
        else:
            with self._counted():
                for batch in batches:
                    with after_refusal(PARTLY_OUT_OF_USE if total.generations else NOTHING_CHANGED):
                        total.add(self._accept(batch))
                    (progress or Silent()).advance(len(batch.records) + len(batch.subjects))
            if total.generations:
                self._after_acceptance(total.generations)
        return _outcome(request, in_files, total, [] if dry_run else self._entries(total))

    def finish(self, *, everything: bool = False, wait: bool = True) -> None:
        """Erase whatever has been accepted and may not wait. Safe to run twice.

        Args:
            everything: also rewrite slices for which there is still time.
            wait: for another that is at it; else leave it to that, or to a request of which batches are to come: it
                erases them all at once.

        Raises:
            StorageError: the disk or the database refused, or another process was at it for minutes; opening the run
                again goes on.
            IntegrityError: a slice's file is not one that the ledger knows.
        """
        snapshot = self._ledger.snapshot()
        if snapshot.dead or (snapshot.waiting_since is not None and (everything or self._eraser.due())):
            if self._accepting and not wait:  # looked at last: what is due may be of such a request
                return
            lock = needed(self._lock) if wait else held(self._lock, wait=0)
            with after_refusal(OUT_OF_USE), lock as mine:
                if mine:
                    self._erase(everything=everything)

    def check_slices(self) -> None:
        """Compare every slice's file with the digest that the ledger knows, while nobody rewrites one.

        Raises:
            IntegrityError: some are others, and may hold what was deleted.
            StorageError: the disk or the database refused.
        """
        with needed(self._lock):
            self._eraser.check_slices()

    def settle(self) -> None:
        """Note what is effective and erased by now; a crash may have come before that."""
        if self._ledger.snapshot().waiting_since is not None:
            with self._ledger.writing() as transaction:
                transaction.settle()

    def sweep(self) -> None:
        """Look for what killed processes left, unless another process is erasing."""
        with held(self._lock, wait=0) as mine:
            if mine:
                self._eraser.sweep()

    @contextmanager
    def holding_off(self) -> Iterator[None]:
        """While within, nothing is erased, and no orders are added, by any process."""
        with needed(self._lock):
            yield

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A request while it is accepted."""
        with self._counting:
            self._accepting += 1
        try:
            yield
        finally:
            with self._counting:
                self._accepting -= 1

    def _entries(self, total: _Sum) -> list[LogEntry]:
        if not total.generations:
            return []
        with after_refusal(OUT_OF_USE):
            with self._ledger.reading() as transaction:
                entries = transaction.log(total.generations)
            if any(entry.accepted_at is None for entry in entries):  # another process has held the lock all the time
                with self._ledger.writing() as transaction:
                    transaction.note_accepted()
                    entries = transaction.log(total.generations)
        return entries

    def _accept_group(self, batches: Sequence[Batch]) -> Sequence[Accepted | Exception]:
        results = self._acceptor.accept(batches)
        accepted = [isinstance(result, Accepted) and result.generation is not None for result in results]
        if any(accepted):
            try:
                with after_refusal(OUT_OF_USE):
                    self._witness.catch_up(self._ledger)
            except FsyncError:
                raise
            except StorageError as error:  # those of whose names nothing was taken have nothing to do with it
                return [error if hit else result for hit, result in zip(accepted, results, strict=True)]
        return results

    def _after_acceptance(self, generations: Collection[int]) -> None:
        with after_refusal(OUT_OF_USE):
            self._witness.catch_up(self._ledger)  # a request that is repeated may be one that could not be noted
            self._presence.look()
            until = time.monotonic() + self._patience
            with held(self._lock, wait=self._patience) as mine:
                if mine and not self._all_erased(generations):  # else somebody was at it, or still is
                    self._erase(everything=False)
            while self._waits_for_others(generations) and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
                self._presence.look()

    def _erase(self, *, everything: bool) -> None:
        """Erase what is due; the caller holds the lock. If it fails, note at least what is effective."""
        # Nothing is erased before the witness has it: who accepted it may have been killed before it was noted.
        self._witness.catch_up(self._ledger)
        try:
            if everything or self._eraser.due():
                self._eraser.erase(everything=everything)
        except (StorageError, IntegrityError):
            with suppress(StorageError), self._ledger.writing() as transaction:
                transaction.settle()
            raise
        with self._ledger.writing() as transaction:
            transaction.settle()

    def _all_erased(self, generations: Collection[int]) -> bool:
        with self._ledger.reading() as transaction:
            return all(entry.erased_at is not None for entry in transaction.log(generations))

    def _waits_for_others(self, generations: Collection[int]) -> bool:
        """Whether an open run has not moved to generations yet."""
        with self._ledger.reading() as transaction:
            if all(entry.effective_at is not None for entry in transaction.log(generations)):
                return False
            behind = transaction.sessions.behind(max(generations))
        if behind == 0:
            with self._ledger.writing() as transaction:
                transaction.settle()
        return True


def _or_raise(result: Accepted | Exception) -> Accepted:
    if isinstance(result, Exception):
        raise result
    return result


def _outcome(request: Request, in_files: Held, total: _Sum, entries: Sequence[LogEntry]) -> Outcome:
    losses: dict[Place, int] = {}
    for result in total.accepted:
        for place, lost in result.plan.losses.items():
            losses[place] = losses.get(place, 0) + lost
    held_now = {token for result in total.accepted for row in result.rows for token in (row.token, row.subject)}
    gone = {token: number for result in total.accepted for token, number in result.gone.items()}
    absent = [(token, name) for token, name in request.names.items() if token not in held_now]
    unknown = {token: name for token, name in absent if token not in gone}
    return Outcome(
        before=total.accepted[0].before,
        after=total.accepted[-1].after,
        losses=losses,
        stages_lost=sum(len(result.plan.tainted) for result in total.accepted),
        deleted=total.deleted,
        already=tuple(name for token, name in absent if token in gone and gone[token] not in total.generations),
        unknown=tuple(unknown.values()),
        unreadable=tuple(place for place, tokens in in_files.unreadable.items() if tokens & unknown.keys()),
        entries=tuple(entries),
        repeated=any(result.earlier is not None for result in total.accepted),
    )
