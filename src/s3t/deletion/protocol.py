"""The durable protocol of a deletion, from the request to the last byte; docs/architecture.md has its steps.

`Deleter` takes a request through all of them. What a crash, a refusal or the recipe left for later, `Eraser` goes on
with from `journal`: an opening, training, a server's thread, `s3t erase`.

A slice's next version is condemned before it is put; the transaction that makes it current condemns the version before
it. So a crash leaves nothing that the ledger does not know. docs/guarantees.md lists the places that are gone through.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from s3t.aftermath import EXCHANGED, NOTHING_CHANGED, OUT_OF_USE, PARTLY_OUT_OF_USE, after_refusal
from s3t.core import Inventory, Place, Secret, slices_among
from s3t.deletion.unfinished import remove_left, remove_unfinished
from s3t.deletion.withdrawal import Withdrawer
from s3t.deletion.witness import Witness, version_of_another_time, why_older
from s3t.errors import BlockedError, FsyncError, IntegrityError, RestoredError, StorageError, itemised
from s3t.events import Progress, WorkStep, silent
from s3t.ledger import Clone, ExportRow, Incoming, Ledger, SliceState, Snapshot, ToErase
from s3t.ledger.locks import RunLock, hold
from s3t.ledger.presence import Presence
from s3t.ledger.rows import LATE
from s3t.results.log import LogEntry
from s3t.store.artifacts import Artifacts, blobs_of
from s3t.store.disk import storage_errors
from s3t.store.folder import Layout, lasting_identity, read_home
from s3t.store.slices import Slices, slice_digest, without_records

if TYPE_CHECKING:  # every opening erases; what accepts is imported by those who delete
    from s3t.deletion.acceptance import Accepted, Acceptor, Batch, Request
    from s3t.deletion.lookup import FileMatches, Lookup

BATCH_NAMES = 10_000
"""Names of a request that are accepted in one transaction."""
PATIENCE_SECONDS = 5.0
"""Time for which `delete` waits for another eraser, and for other open runs to stop, in seconds."""
_FIRST_SECONDS = 0.25
"""Longest wait, in seconds, before erasing, for other open runs to note that they no longer answer with it: erasing
writes to the ledger, too, and would hold them up."""
_POLL_SECONDS = 0.02


class Memory(Protocol):
    """The slices that a process holds in memory."""

    def forget(self, places: Collection[Place]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Eraser:
    """Takes one run's accepted deletions to their end."""

    ledger: Ledger
    store: Artifacts
    secret: Secret
    run: Path
    slices: Slices
    within: float
    """Seconds for which a record may stay in its slice's current version after its deletion was received."""
    memory: Memory
    witness: Witness
    lock: RunLock
    withdrawer: Withdrawer
    _requests: set[object] = field(default_factory=set, init=False, repr=False)
    """Requests of this process with batches that are not accepted yet."""

    def resume(self, *, passive: bool) -> None:
        """At an opening: refuse a run that is an older state of itself, note outside what a killed process accepted,
        and look for what it left. `passive`: only refuse."""
        with self.ledger.reading() as transaction:
            reason = why_older(transaction, self.witness, self.slices)
            snapshot, journal = transaction.snapshot(), self.witness.missing(transaction)
            asked, late = self.witness.asked_late(transaction.rows.note(LATE))
            exports = transaction.rows.all(ExportRow)
        if reason is not None:
            self._refuse_if_older()
        if passive:
            return
        if snapshot.waiting_since is not None:
            self.ledger.confirm()  # the process that accepted may have been killed before that was on the disk
        self.witness.note(*journal)
        if asked:  # a backup from before they asked was put back
            with self.ledger.writing() as transaction:
                transaction.history.note_asked(asked)
                transaction.history.note_late(late)
        if exports or self.withdrawer.memory.noted():
            self.withdrawer.memory.catch_up(self.ledger)
        self.sweep(opening=True)

    def _refuse_if_older(self) -> None:
        """Look again while no deletion can come between two of the readings, and refuse an older state."""
        if self.ledger.read_only:
            with self.ledger.reading() as transaction:
                reason = why_older(transaction, self.witness, self.slices)
        else:
            with hold(self.lock), self.ledger.writing() as transaction:
                reason = why_older(transaction, self.witness, self.slices)
        if reason is not None:
            raise self._older(reason)

    def _older(self, reason: str) -> RestoredError:
        return RestoredError(
            f"{self.run} is an older state of the run ({reason}): a backup was put back, or it is a copy. It "
            f"neither serves nor trains until the later deletions are applied: run `s3t reconcile {self.run}`. If "
            f"it is a copy to try things on, make it a run of its own: `s3t clone --adopt {self.run}`"
        )

    def finish(
        self, *, everything: bool = False, withdraw: bool = False, wait: bool = True, now: Snapshot | None = None
    ) -> None:
        """Erase deleted records that may not wait. After a StorageError the next opening goes on.

        With `everything`, erase also records that may still wait; with `withdraw`, try again to withdraw exports that
        deletions wait for. Without `wait`, leave the work to another eraser, or to a request that is being accepted.
        `now` is the newest state of the ledger, where the caller has just read it.
        """
        snapshot = self.ledger.snapshot() if now is None else now
        if snapshot.condemned or (snapshot.waiting_since is not None and (everything or self.due(snapshot))):
            if self._requests and not wait:  # checked last: such a request may have made it due
                return
            lock = hold(self.lock) if wait else self.lock.try_hold(wait=0)
            with after_refusal(OUT_OF_USE), lock as taken:
                if taken:
                    self.erase(everything=everything, withdraw=withdraw)

    @contextmanager
    def accepting_batches(self) -> Iterator[None]:
        """While within, a `finish` that need not wait leaves erasing to the caller, which accepts batches."""
        request = object()
        self._requests.add(request)
        try:
            yield
        finally:
            self._requests.discard(request)

    def due(self, snapshot: Snapshot) -> bool:
        """True if there are places to go through, or a record has waited long enough."""
        if snapshot.condemned or snapshot.walked < snapshot.generation:
            return True
        return snapshot.pending_since is not None and time.time() >= snapshot.pending_since + self.within

    def erase(self, *, everything: bool = False, withdraw: bool = False, anyway: bool = False) -> None:
        """Go through the places if something is due, and note which deletions are effective, and erased.

        Safe to run twice; after a StorageError the next call goes on. The caller holds the run's lock. Arguments are
        those of `finish`; `anyway`: go through them also if nothing is due.
        """
        try:
            with self.ledger.writing() as transaction:
                # An acceptance that is not on the disk yet may be lost; what is erased for it does not come back.
                transaction.touch()
                transaction.settle()  # it ends sessions of the dead; what they have put is to be erased
                snapshot = transaction.snapshot()
                due = anyway or self.due(snapshot) or (everything and snapshot.pending_since is not None)
                # The process that accepted a deletion may have been killed before it noted it there.
                journal = self.witness.missing(transaction)
                if due:
                    received_by = math.inf if everything else time.time() - self.within
                    work, clones = transaction.to_erase(received_by=received_by), transaction.rows.all(Clone)
                    exports = transaction.exports.standing()
            self.witness.note(*journal)
            if due:
                self._go_through(work, clones, exports)
            elif withdraw:
                self.withdrawer.withdraw_tainted()
                self.settle()
        except (StorageError, IntegrityError):
            with suppress(StorageError):
                self.settle()
            raise

    def _go_through(self, work: ToErase, clones: Collection[Clone], exports: Sequence[ExportRow]) -> None:
        """Go through the places; each is tried, whatever another has refused."""
        artifacts: set[tuple[int, str]] = set()  # removed, which the ledger does not know yet
        versions: set[tuple[Place, str]] = set()  # likewise
        refused: list[StorageError | IntegrityError] = []
        if self.slices.blobs.remote:
            with _collected(refused):
                work = self._with_strays(work)
        steps: tuple[Callable[[], None], ...] = (
            lambda: self.memory.forget(work.since.keys()),  # and the trunk cache
            lambda: self._remove_artifacts(work, artifacts),  # and their manifests
            lambda: self.withdrawer.withdraw_tainted(exports),
            lambda: self._sweep_parts(clones),  # temporary files, unfinished runs
            lambda: self._supersede(work, versions),
            lambda: self._note_removed(artifacts, versions, work),
            lambda: self._refuse_clones(clones),
            self._wipe,
        )
        for step in steps:
            with _collected(refused):
                step()
        _raise_all(refused)
        with self.ledger.writing() as transaction:
            transaction.note_walked(work.generation)
            transaction.settle()

    def settle(self) -> None:
        """Note deletions that are effective or erased by now; a crash may have prevented that."""
        if self.ledger.snapshot().waiting_since is not None:
            with self.ledger.writing() as transaction:
                transaction.settle()

    def sweep(self, *, unknown: bool = False, opening: bool = False) -> None:
        """Remove temporary files that killed processes left, and condemn what the ledger does not name; `unknown`: also
        segments of which it knows nothing. Nothing if another process erases.

        An `opening` asks no bucket: erasing looks through the shards that lost records, the operator's through all.
        """
        with self.lock.try_hold(wait=0) as taken:
            if not taken:
                return
            if not (opening and self.slices.blobs.remote):
                with storage_errors("looking for what killed processes left"):
                    stored = self.store.keys()  # first: artifacts that are put from here on were announced before
                    versions = self.slices.versions()
                self._condemn_strays(stored, versions, unknown=unknown)
            with self.ledger.reading() as transaction:
                exports, clones = transaction.exports.standing(), transaction.rows.all(Clone)
            self.withdrawer.remove_unfinished(exports)
            self._sweep_parts(clones, opening=opening)

    def _condemn_strays(
        self, stored: Set[tuple[int, str]], versions: Mapping[Place, frozenset[str]], *, unknown: bool = False
    ) -> None:
        """Condemn what the ledger does not name of what was found in the store."""
        snapshot = self.ledger.snapshot()
        strays = [*self._strays(versions, snapshot, unknown=unknown)]
        if strays or not stored <= snapshot.artifacts:
            with self.ledger.writing() as transaction:
                transaction.sessions.end_dead()
                named = transaction.snapshot().artifacts | transaction.unfinished_artifacts()
                transaction.rows.condemn(artifacts=stored - named, versions=strays)

    def _with_strays(self, work: ToErase) -> ToErase:
        """The work, with what lies in a bucket, which no opening lists, and the ledger does not know of the shards that
        lost records: of a later state of it, or put by a request that came late.
        """
        for shard in {place.shard for place in work.since}:
            stored, versions = self.store.keys(shard), self.slices.versions(shard)  # first, as in `sweep`
            with self.ledger.reading() as transaction:
                reason = version_of_another_time(transaction, self.slices, versions, shard)
            if reason is not None:
                raise self._older(reason)
            self._condemn_strays(stored, versions)
        with self.ledger.reading() as transaction:
            now = transaction.to_erase()
        return replace(work, artifacts=now.artifacts, put_late=now.put_late, versions=now.versions)

    def _strays(
        self, versions: Mapping[Place, frozenset[str]], snapshot: Snapshot, *, unknown: bool
    ) -> Iterator[tuple[Place, str]]:
        """Versions of slices that are not current, if the current one is whole, or the secret is destroyed.

        Otherwise they may be all that is left of a slice, and of what a newer ledger knew.
        """
        for place, digests in versions.items():
            current = snapshot.slices[place].digest if place in snapshot.slices else ""
            if (strays := digests - {current}) and (
                self.secret.salt is None or (unknown and not current) or self.slices.is_whole(place, current)
            ):
                yield from ((place, digest) for digest in strays)

    def _sweep_parts(self, clones: Collection[Clone], *, opening: bool = False) -> None:
        """Remove unfinished files, except those of living trainers. All other writers hold the run's lock."""
        self._remove_unfinished(clones, opening=opening)
        with storage_errors("removing temporary files"):
            parts = self.store.blobs.parts()  # first, as in `sweep`
            if parts:
                with self.ledger.writing() as transaction:
                    transaction.sessions.end_dead()
                    announced = transaction.unfinished_artifacts()
                self.store.blobs.erase_parts(parts, sparing={name for each in announced for name in blobs_of(*each)})

    def _remove_unfinished(self, clones: Collection[Clone], *, opening: bool) -> None:
        """Remove what killed processes left of this run's init, and of its clones wherever they were to be."""
        places = {self.run}
        with suppress(IntegrityError):
            if (home := read_home(Layout(self.run))) is not None:
                places.add(Path(home.path))  # where init made the run, if it was renamed since
        with storage_errors("removing what a killed init left"):
            for place in places:
                remove_unfinished(place, in_buckets=not opening)
        with storage_errors("removing what a killed clone left"):
            gone = [
                each for each in clones if not _is_elsewhere(each) and remove_left(each.path, in_buckets=not opening)
            ]
        if gone:
            with self.ledger.writing() as transaction:
                transaction.rows.discard(gone)

    def _remove_artifacts(self, work: ToErase, removed: set[tuple[int, str]]) -> None:
        with storage_errors("erasing artifacts"):
            self.store.erase(set(work.artifacts))
        removed.update(work.artifacts)

    def _supersede(self, work: ToErase, removed: set[tuple[Place, str]]) -> None:
        """Give slices a version without their deleted records, and remove condemned versions."""
        new: dict[Place, str] = {}
        refused: list[StorageError | IntegrityError] = []
        slices, versions = work.slices, work.versions
        for place, gone in sorted(work.records.items()):
            with _collected(refused):
                new[place] = self._put_next(place, gone, state=slices[place])
        if new:
            with self.ledger.writing() as transaction:
                for place, digest in new.items():
                    old, gone = slices[place].digest, work.records[place]
                    if not transaction.supersede(place, old=old, new=digest, gone=gone):
                        lost = "was superseded by another process meanwhile: this one has lost the run's lock"
                        refused.append(StorageError(f"slice {place.slice} of shard {place.shard} {lost}"))
                _, versions = transaction.condemned()
        with _collected(refused):
            with storage_errors("erasing versions of slices"):
                self.slices.erase(versions)
            removed.update(versions)
        _raise_all(refused)

    def _put_next(self, place: Place, tokens: Collection[bytes], *, state: SliceState) -> str:
        """Put a slice's next version, without records; returns its digest."""
        kept = without_records(self.slices.read(place, state.digest), tokens, self.secret)
        if kept.num_rows != state.records:
            raise IntegrityError(
                f"slice {place.slice} of shard {place.shard} holds other records than the ledger counts; the deleted "
                f"records are out of use. Run `s3t reconcile {self.run}`, which says what is wrong"
            )
        with self.ledger.writing() as transaction:  # a crash may leave a version that is put and never current
            transaction.rows.condemn(versions=[(place, slice_digest(kept, self.secret))])
        with storage_errors("storing the next version of a slice"):
            return self.slices.put(place, kept)

    def _note_removed(
        self, artifacts: Collection[tuple[int, str]], versions: Collection[tuple[Place, str]], work: ToErase
    ) -> None:
        if artifacts or versions:
            with self.ledger.writing() as transaction:
                transaction.note_removed(artifacts, versions=versions, put_late=work.put_late)

    def check_slices(self) -> None:
        """Compare every slice's current version with its digest: one with other rows may hold deleted records."""
        problems = []
        with hold(self.lock):
            for place, state in sorted(self.ledger.snapshot().slices.items()):
                try:
                    self.slices.read(place, state.digest)
                except IntegrityError as error:
                    problems.append(str(error))
        if problems:
            raise IntegrityError(
                f"{self.run} has files of slices that may hold deleted records (which are out of use). Run "
                f"`s3t reconcile {self.run}`, which mends them from older ones and says of any other what is "
                f"wrong:{itemised(problems)}"
            )

    def _refuse_clones(self, before: Collection[Clone]) -> None:
        """Clones that are being made hold records, too; those of killed processes are gone by now."""
        if not before:
            return
        with self.ledger.reading() as transaction:
            clones = transaction.rows.all(Clone)
        for clone in sorted(clones, key=_is_elsewhere):
            if not _is_elsewhere(clone):
                raise BlockedError(
                    f"a clone of the run with the record is being made in {clone.path}", remedy="wait for it, or end it"
                )
            raise StorageError(
                f"{clone.host} was making a clone of the run with the record in {clone.path}, and the folder in which "
                "that was is not here: it is that host's own, moved, or not mounted",
                remedy=f"run `s3t erase {self.run}` where it is, or, if it is gone for good, with --clones-are-gone",
            )

    def forget_clones(self) -> None:
        """Believe the operator that clones are gone whose places are not to be seen from here."""
        with self.ledger.writing() as transaction:
            transaction.rows.discard(filter(_is_elsewhere, transaction.rows.all(Clone)))

    def _wipe(self) -> None:
        if not self.ledger.wipe():
            raise BlockedError(
                "the ledger keeps rows that were removed, because a reader still uses them",
                remedy="wait for the reader",
            )


def _is_elsewhere(clone: Clone) -> bool:
    """True if it cannot be seen from here whether a clone is gone: on another host, or the folder in which it lay is
    moved or not mounted."""
    if os.path.lexists(clone.path):
        return False
    try:
        return clone.host != platform.node() or lasting_identity(clone.path.parent) != clone.beside
    except OSError:
        return True


@contextmanager
def _collected(refused: list[StorageError | IntegrityError]) -> Iterator[None]:
    """Append an error to a list, so that other steps go on. A failed fsync is raised at once."""
    try:
        yield
    except FsyncError:
        raise
    except (StorageError, IntegrityError) as error:
        refused.append(error)


def _raise_all(refused: Sequence[StorageError | IntegrityError]) -> None:
    """Raise one error with all messages, of the first one's kind."""
    if len(refused) == 1:
        raise refused[0]
    if refused:
        first, reasons = refused[0], "; ".join(dict.fromkeys(error.reason for error in refused))
        remedies = list(dict.fromkeys(error.remedy for error in refused if isinstance(error, StorageError)))
        if isinstance(first, StorageError):
            raise StorageError(reasons, remedy=", ".join(remedies)) from first
        raise type(first)(
            ". ".join([reasons, *(f"{remedy[:1].upper()}{remedy[1:]}" for remedy in remedies)])
        ) from first


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


class Deleter:
    """Deletes records of one run. Safe to share among threads; processes and hosts come one after the other."""

    def __init__(self, acceptor: Acceptor, lookup: Lookup, eraser: Eraser, presence: Presence) -> None:
        self._acceptor = acceptor
        self._lookup = lookup
        self._eraser = eraser
        self._presence = presence
        self.patience = PATIENCE_SECONDS  # seconds to wait for sessions, and for another process that erases
        from s3t.deletion.grouping import Grouped

        self._accept = Grouped(self._accept_group)

    def delete(
        self,
        request: Request,
        *,
        dry_run: bool = False,
        until_erased: bool = True,
        progress: Progress = silent,
    ) -> Outcome:
        """Delete records by id and by subject; deleted and unknown names change nothing.

        With `until_erased`, erase, and wait, so long as patience lasts, also for open runs that still use what is
        deleted, but cannot answer with it any more. After an InputError or an IntegrityError nothing has changed; the
        message of a StorageError says whether records are out of use.
        """
        with after_refusal(NOTHING_CHANGED):
            in_files, batches = self._searched(request)
        if dry_run:
            with after_refusal(NOTHING_CHANGED):
                return _outcome(request, in_files, self._acceptor.look(batches), ())
        accepted: list[Accepted] = []
        with self._eraser.accepting_batches():
            for batch in batches:
                with after_refusal(PARTLY_OUT_OF_USE if _generations(accepted) else NOTHING_CHANGED):
                    accepted.append(self._accept(batch))
                progress(WorkStep(count=len(batch.records) + len(batch.subjects)))
        return self.finished(request, in_files, accepted, until_erased=until_erased)

    def exchange(self, request: Request, incoming: Incoming | None) -> tuple[FileMatches, Sequence[Accepted]]:
        """Delete records and take others in, in one transaction. The caller lets go of the run's lock before `finished`
        does what is left to do.

        Raises DataError, and does nothing, if the addition or the deletion does not fit any more.
        """
        in_files, batches = self._searched(request)
        accepted: list[Accepted] = []
        for result in self._accept_group(batches, incoming, whole=True):
            if isinstance(result, Exception):
                raise result
            accepted.append(result)
        return in_files, accepted

    def _searched(self, request: Request) -> tuple[FileMatches, list[Batch]]:
        in_files = self._lookup.search(records=request.records, subjects=request.subjects)
        return in_files, [replace(batch, in_files=in_files.of(batch)) for batch in request.batches(BATCH_NAMES)]

    def finished(
        self, request: Request, in_files: FileMatches, accepted: Sequence[Accepted], *, until_erased: bool = True
    ) -> Outcome:
        """Carry out what was accepted of a request; its result."""
        generations = _generations(accepted)
        entries = self._after_acceptance(generations, until_erased=until_erased) if generations else ()
        return _outcome(request, in_files, accepted, entries)

    def followed(self, outcome: Outcome, generation: int) -> Outcome:
        """The outcome of a request that another process carried out meanwhile, as that generation."""
        entries = tuple(self._after_acceptance([generation], until_erased=True))
        return replace(outcome, entries=entries, deleted=sum(entry.records for entry in entries))

    def _accept_group(
        self, batches: Sequence[Batch], incoming: Incoming | None = None, *, whole: bool = False
    ) -> Sequence[Accepted | Exception]:
        results, journal = self._acceptor.accept(batches, incoming, whole=whole)
        try:
            with after_refusal(OUT_OF_USE if incoming is None else EXCHANGED):
                self._eraser.witness.note(*journal)
        except FsyncError:
            raise
        except StorageError as error:  # it does not concern requests that deleted nothing
            return [
                result if isinstance(result, Exception) or result.generation is None else error for result in results
            ]
        return results

    def _after_acceptance(self, generations: Collection[int], *, until_erased: bool) -> list[LogEntry]:
        """Fence, erase, and wait; the entries of the log in the end."""
        ledger = self._eraser.ledger
        with after_refusal(OUT_OF_USE):
            self._eraser.witness.catch_up(ledger, to=max(generations))  # of a repeated one it may have failed
            self._presence.look()
            until = time.monotonic() + self.patience
            first = min(until, time.monotonic() + _FIRST_SECONDS) if until_erased else until
            entries = self._fence(generations, until=first, answering=True)
            if until_erased and not _are_erased(entries):
                while not self._erase() and time.monotonic() < until:
                    time.sleep(_FIRST_SECONDS)
                entries = self._fence(generations, until=until, answering=False)
            if not _are_erased(entries):
                with ledger.writing() as transaction:
                    transaction.settle()  # it may have waited for a process that was killed
                    entries = transaction.history.log(generations)
        return entries

    def _erase(self) -> bool:
        """False if a reader, a clone or another eraser is in the way; an open run, or the next opening, goes on."""
        with self._eraser.lock.try_hold(wait=self.patience) as taken, suppress(BlockedError):
            if taken:
                self._eraser.erase()
                return True
        return False

    def _fence(self, generations: Collection[int], *, until: float, answering: bool) -> list[LogEntry]:
        """Wait while an open run may use, or, `answering`, answer with, what generations took; their entries then."""
        while True:
            with self._eraser.ledger.reading() as transaction:
                entries = transaction.history.log(generations)
                behind = transaction.sessions.count_behind(max(generations), answering=answering)
            if not behind or time.monotonic() >= until:
                return entries
            time.sleep(_POLL_SECONDS)
            self._presence.look()


def _are_erased(entries: Sequence[LogEntry]) -> bool:
    return all(entry.erased_at is not None for entry in entries)


def _generations(accepted: Sequence[Accepted]) -> set[int]:
    """The deletions that a request is; of a repeated one, those that it was the first time, too."""
    made = {result.generation for result in accepted if result.generation is not None}
    return made.union(*(result.earlier.generations for result in accepted if result.earlier is not None))


def _outcome(
    request: Request, in_files: FileMatches, accepted: Sequence[Accepted], entries: Sequence[LogEntry]
) -> Outcome:
    from s3t.deletion.acceptance import losses_of

    generations, deleted = _generations(accepted), 0
    for result in accepted:
        deleted = max(deleted, 0 if result.earlier is None else result.earlier.deleted)
        deleted += sum(row.copies for row in result.rows)
    present = {token for result in accepted for row in result.rows for token in (row.token, row.subject)}
    gone = {token: number for result in accepted for token, number in result.gone.items()}
    absent = [(token, name) for token, name in request.names.items() if token not in present]
    unknown = {token: name for token, name in absent if token not in gone}
    return Outcome(
        before=accepted[0].before,
        after=accepted[-1].after,
        losses=losses_of(row for result in accepted for row in result.rows),
        stages_lost=sum(len(result.tainted) for result in accepted),
        deleted=deleted,
        already=tuple(name for token, name in absent if token in gone and gone[token] not in generations),
        unknown=tuple(unknown.values()),
        unreadable=slices_among(place for place, tokens in in_files.unreadable.items() if tokens & unknown.keys()),
        entries=tuple(entries),
        repeated=any(result.earlier is not None for result in accepted),
    )
