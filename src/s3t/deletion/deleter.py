"""A deletion from request to the last byte.

    accept     one ledger transaction: the records and every stage above them are out of use, durably
    witness    the deletion is noted outside of the run folder, so that a restored backup is recognised
    effective  no open run has an answer on its way that uses them
    erased     they have left every place (docs/guarantees.md lists them), the memory of open runs first

A crash before acceptance leaves the run as it was. After it, the next process that opens or uses the run goes on; each
step may be done twice.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from s3t.aftermath import NOTHING_CHANGED, OUT_OF_USE, PARTLY_OUT_OF_USE, after_refusal
from s3t.core import Inventory, Place
from s3t.deletion.acceptance import Accepted, Acceptor
from s3t.deletion.erasure import Eraser
from s3t.deletion.grouping import Grouped
from s3t.deletion.lookup import FileMatches, Lookup
from s3t.deletion.request import Batch, Request
from s3t.errors import BlockedError, FsyncError, StorageError
from s3t.events import Progress, WorkStep, silent
from s3t.ledger import Ledger
from s3t.ledger.locks import try_hold
from s3t.ledger.presence import Presence
from s3t.results.log import LogEntry

BATCH_NAMES = 10_000
"""Names of a request that are accepted in one transaction."""
PATIENCE_SECONDS = 5.0
"""Time for which `delete` waits for another eraser, and for other open runs to stop, in seconds."""
_FIRST_SECONDS = 0.25
"""Longest wait, in seconds, before erasing, for other open runs to note that they no longer answer with it: erasing
writes to the ledger, too, and would hold them up."""
_GROUP = 64
_POLL_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of a request, or of its dry run."""

    before: Inventory
    after: Inventory
    losses: dict[Place, int]
    stages_lost: int
    deleted: int
    """Deleted rows; of a repeated request, those that it deleted the first time."""
    already: tuple[str, ...]
    """Requested names that had been deleted before, in the order asked."""
    unknown: tuple[str, ...]
    """Requested names that the run has never held."""
    entries: tuple[LogEntry, ...]
    unreadable: tuple[Place, ...]
    """Slices whose files could not be searched for an unknown name."""
    repeated: bool
    """True if there was a request with the same idempotency key before."""


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
        ledger: Ledger,
        acceptor: Acceptor,
        lookup: Lookup,
        eraser: Eraser,
        presence: Presence,
    ) -> None:
        self._ledger = ledger
        self._acceptor = acceptor
        self._lookup = lookup
        self._eraser = eraser
        self._presence = presence
        self.patience = PATIENCE_SECONDS  # seconds to wait for sessions, and for another process that erases
        self._accept = Grouped(self._accept_group, limit=_GROUP)

    def delete(
        self,
        request: Request,
        *,
        dry_run: bool = False,
        until_erased: bool = True,
        progress: Progress = silent,
    ) -> Outcome:
        """Delete records by id and by subject; deleted and unknown names change nothing.

        With `until_erased`, wait, so long as patience lasts, also for open runs that still use what is deleted, but
        cannot answer with it any more. After an InputError or an IntegrityError nothing has changed; the message of a
        StorageError says whether records are out of use.
        """
        with after_refusal(NOTHING_CHANGED):
            search = self._lookup.search if request.held is None else self._lookup.search_tokens
            in_files = search(records=request.records, subjects=request.subjects)
        batches = [replace(batch, in_files=in_files.of(batch)) for batch in request.batches(BATCH_NAMES)]
        total = _Sum()
        if dry_run:
            with after_refusal(NOTHING_CHANGED):
                for result in self._acceptor.look(batches):
                    total.add(_or_raise(result))
        else:
            with self._eraser.accepting_batches():
                for batch in batches:
                    with after_refusal(PARTLY_OUT_OF_USE if total.generations else NOTHING_CHANGED):
                        total.add(self._accept(batch))
                    progress(WorkStep(count=len(batch.records) + len(batch.subjects)))
            if total.generations:
                self._after_acceptance(total.generations, until_erased=until_erased)
        return _outcome(request, in_files, total, [] if dry_run else self._entries(total))

    def _entries(self, total: _Sum) -> list[LogEntry]:
        if not total.generations:
            return []
        with after_refusal(OUT_OF_USE):
            with self._ledger.reading() as transaction:
                entries = transaction.history.log(total.generations)
            if any(entry.accepted_at is None for entry in entries):  # another process has held the lock
                with self._ledger.writing() as transaction:
                    transaction.note_accepted()
                    entries = transaction.history.log(total.generations)
        return entries

    def _accept_group(self, batches: Sequence[Batch]) -> Sequence[Accepted | Exception]:
        results = self._acceptor.accept(batches)
        accepted = [isinstance(result, Accepted) and result.generation is not None for result in results]
        if any(accepted):
            try:
                with after_refusal(OUT_OF_USE):
                    self._eraser.witness.catch_up(self._ledger)
            except FsyncError:
                raise
            except StorageError as error:  # it does not concern requests that deleted nothing
                return [error if hit else result for hit, result in zip(accepted, results, strict=True)]
        return results

    def _after_acceptance(self, generations: Collection[int], *, until_erased: bool) -> None:
        with after_refusal(OUT_OF_USE):
            self._eraser.witness.catch_up(self._ledger)  # a repeated request may be one that could not be noted
            self._presence.look()
            until = time.monotonic() + self.patience
            self._wait_for_others(generations, until=min(until, time.monotonic() + _FIRST_SECONDS), until_erased=False)
            with try_hold(self._eraser.lock, wait=self.patience) as taken:
                if taken and not self._all_erased(generations):  # by another process meanwhile
                    with suppress(BlockedError):  # accepted; the session's thread, or the next opening, tries again
                        self._eraser.carry_out(everything=False)
            self._wait_for_others(generations, until=until, until_erased=until_erased)
            self._eraser.settle()  # it may have waited for a process that was killed

    def _all_erased(self, generations: Collection[int]) -> bool:
        with self._ledger.reading() as transaction:
            return all(entry.erased_at is not None for entry in transaction.history.log(generations))

    def _wait_for_others(self, generations: Collection[int], *, until: float, until_erased: bool) -> None:
        """Wait while an open run may answer with what generations took, or, `until_erased`, use it."""
        while self._count_behind(max(generations), answering=not until_erased) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            self._presence.look()

    def _count_behind(self, generation: int, *, answering: bool) -> int:
        with self._ledger.reading() as transaction:
            return transaction.sessions.count_behind(generation, answering=answering)


def _or_raise(result: Accepted | Exception) -> Accepted:
    if isinstance(result, Exception):
        raise result
    return result


def _outcome(request: Request, in_files: FileMatches, total: _Sum, entries: Sequence[LogEntry]) -> Outcome:
    losses: dict[Place, int] = {}
    for result in total.accepted:
        for place, lost in result.plan.losses.items():
            losses[place] = losses.get(place, 0) + lost
    present = {token for result in total.accepted for row in result.rows for token in (row.token, row.subject)}
    gone = {token: number for result in total.accepted for token, number in result.gone.items()}
    absent = [(token, name) for token, name in request.names.items() if token not in present]
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
