"""Erasure: deleted records, and what was trained on them, leave every place that docs/guarantees.md lists, one by one.

Each step may be done twice. A slice's next version is condemned before it is put; the transaction that makes it current
condemns the version before it. So a crash leaves nothing that the ledger does not know.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from s3t.aftermath import OUT_OF_USE, after_refusal
from s3t.core import Place, Secret
from s3t.deletion.withdrawal import Withdrawer
from s3t.deletion.witness import Witness
from s3t.disk import storage_errors
from s3t.errors import BlockedError, FsyncError, IntegrityError, StorageError, itemised
from s3t.ledger import Clone, Ledger, SliceState, Snapshot, ToErase
from s3t.ledger.locks import RunLock, hold, try_hold
from s3t.records.slices import Slices, slice_digest, without_records
from s3t.store import Artifacts, blobs_of
from s3t.store.blobs import Blobs
from s3t.store.folder import Layout, read_home, remove_left, remove_unfinished


class Memory(Protocol):
    """The slices that a process holds in memory."""

    def forget(self, places: Collection[Place]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Eraser:
    """Erases one run's deleted records. The caller of `erase` and `carry_out` holds the run's lock."""

    ledger: Ledger
    store: Artifacts
    blobs: Blobs
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

    def finish(
        self, *, everything: bool = False, withdraw: bool = False, wait: bool = True, now: Snapshot | None = None
    ) -> None:
        """Erase deleted records that may not wait. Safe to run twice; after a StorageError the next opening goes on.

        With `everything`, erase also records that may still wait; with `withdraw`, try again to withdraw exports that
        deletions wait for. Without `wait`, leave the work to another eraser, or to a request that is being accepted.
        `now` is the newest state of the ledger, where the caller has just read it.
        """
        snapshot = self.ledger.snapshot() if now is None else now
        if snapshot.condemned or (snapshot.waiting_since is not None and (everything or self.due())):
            if self._requests and not wait:  # checked last: such a request may have made it due
                return
            lock = hold(self.lock) if wait else try_hold(self.lock, wait=0)
            with after_refusal(OUT_OF_USE), lock as taken:
                if taken:
                    self.carry_out(everything=everything, withdraw=withdraw)

    @contextmanager
    def accepting_batches(self) -> Iterator[None]:
        """While within, a `finish` that need not wait leaves erasing to the caller, which accepts batches."""
        request = object()
        self._requests.add(request)
        try:
            yield
        finally:
            self._requests.discard(request)

    def carry_out(self, *, everything: bool, withdraw: bool = False) -> None:
        """Erase what is due. If that fails, still note what is effective. The caller holds the run's lock."""
        # First the witness: the process that accepted a deletion may have been killed before it noted it there.
        self.witness.catch_up(self.ledger)
        try:
            if self.due() or (everything and self.ledger.snapshot().pending_since is not None):
                self.erase(everything=everything)
                return
            if withdraw:
                self.withdrawer.withdraw_tainted()
            self.settle()
        except (StorageError, IntegrityError):
            with suppress(StorageError):
                self.settle()
            raise

    def settle(self) -> None:
        """Note deletions that are effective or erased by now; a crash may have prevented that."""
        if self.ledger.snapshot().waiting_since is not None:
            with self.ledger.writing() as transaction:
                transaction.settle()

    def erase(self, *, everything: bool) -> None:
        """Go through the places, and note which deletions are erased. After a StorageError the next call goes on.

        With `everything`, erase also what may still wait.
        """
        with self.ledger.writing() as transaction:
            # An acceptance that is not on the disk yet may be lost; what is erased for it does not come back.
            transaction.touch()
            transaction.note_accepted()
            transaction.sessions.end_dead()  # what they have put is to be erased
            generation = transaction.snapshot().generation
            work = transaction.to_erase(received_by=math.inf if everything else time.time() - self.within)
        refused: list[StorageError | IntegrityError] = []
        with _collected(refused):
            self.memory.forget(work.since.keys())  # and the trunk cache
        with _collected(refused):
            self._remove_artifacts(work)  # and their manifests
        with _collected(refused):
            self.withdrawer.withdraw_tainted()
        with _collected(refused):
            self._sweep_parts()  # temporary files, unfinished runs
        with _collected(refused):
            self._supersede(work)
        with _collected(refused):
            self._refuse_clones()
        with _collected(refused):
            self._wipe()
        _raise_all(refused)
        with self.ledger.writing() as transaction:
            transaction.note_walked(generation)
            transaction.settle()

    def due(self) -> bool:
        """True if there are places to go through, or a record has waited long enough."""
        snapshot = self.ledger.snapshot()
        if snapshot.condemned or snapshot.walked < snapshot.generation:
            return True
        return snapshot.pending_since is not None and time.time() >= snapshot.pending_since + self.within

    def sweep(self) -> None:
        """Remove temporary files that killed processes left, and condemn what the ledger does not name.

        Lists the store; called when a run is opened, and when the operator erases. Nothing if another process erases.
        """
        with try_hold(self.lock, wait=0) as taken:
            if taken:
                self.withdrawer.remove_unfinished()
                self._sweep()

    def _sweep(self) -> None:
        with storage_errors("looking for what killed processes left"):
            stored = self.store.keys()  # first: artifacts that are put from here on were announced before
            strays = [*self._strays(self.slices.versions())]
        self._sweep_parts()
        with self.ledger.writing() as transaction:
            transaction.sessions.end_dead()
            named = {(stage.shard, key) for stage, key in transaction.snapshot().stages.items()}
            orphans = stored - named - transaction.sessions.announced()
            transaction.condemn(artifacts=orphans, versions=strays)

    def _strays(self, versions: Mapping[Place, frozenset[str]]) -> Iterator[tuple[Place, str]]:
        """Versions of slices that are not current, if the current one is whole, or the secret is destroyed.

        Otherwise they may be all that is left of a slice, and of what a newer ledger knew.
        """
        slices = self.ledger.snapshot().slices
        for place, digests in versions.items():
            current = slices[place].digest if place in slices else ""
            if (strays := digests - {current}) and (self.secret.salt is None or self._is_whole(place, current)):
                yield from ((place, digest) for digest in strays)

    def _is_whole(self, place: Place, digest: str) -> bool:
        try:
            self.slices.read(place, digest)
        except IntegrityError:
            return False
        return True

    def _sweep_parts(self) -> None:
        """Remove unfinished files, except those of living trainers. All other writers hold the run's lock."""
        self._remove_unfinished()
        with storage_errors("removing temporary files"):
            parts = self.blobs.parts()  # first, as in `sweep`
            if parts:
                with self.ledger.writing() as transaction:
                    transaction.sessions.end_dead()
                    announced = transaction.sessions.announced()
                self.blobs.erase_parts(parts, sparing={name for each in announced for name in blobs_of(*each)})

    def _remove_unfinished(self) -> None:
        """Remove what killed processes left of this run's init, and of its clones wherever they were to be."""
        places = {self.run}
        with suppress(IntegrityError):
            if (home := read_home(Layout(self.run))) is not None:
                places.add(Path(home.path))  # where init made the run, if it was renamed since
        with storage_errors("removing what a killed init left"):
            for place in places:
                remove_unfinished(place)
        with self.ledger.reading() as transaction:
            clones = transaction.history.clones()
        with storage_errors("removing what a killed clone left"):
            gone = [clone for clone in clones if not _is_elsewhere(clone) and remove_left(clone.path)]
        if gone:
            with self.ledger.writing() as transaction:
                transaction.history.forget_clones(gone)

    def _remove_artifacts(self, work: ToErase) -> None:
        if not work.artifacts:
            return
        with storage_errors("erasing artifacts"):
            self.store.erase(set(work.artifacts))
        with self.ledger.writing() as transaction:
            transaction.note_removed(work.artifacts)

    def _supersede(self, work: ToErase) -> None:
        """Give slices a version without their deleted records, and remove condemned versions."""
        new: dict[Place, str] = {}
        refused: list[StorageError | IntegrityError] = []
        for place, gone in sorted(work.records.items()):
            with _collected(refused):
                new[place] = self._put_next(place, gone, state=work.slices[place])
        if new:
            with self.ledger.writing() as transaction:
                for place, digest in new.items():
                    old = work.slices[place].digest
                    if not transaction.supersede(place, old=old, new=digest, gone=work.records[place]):
                        refused.append(_lost_lock(place))
        with _collected(refused):
            self._remove_versions()
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
            transaction.condemn(versions=[(place, slice_digest(kept, self.secret))])
        with storage_errors("storing the next version of a slice"):
            return self.slices.put(place, kept)

    def _remove_versions(self) -> None:
        with self.ledger.reading() as transaction:
            versions = transaction.to_erase(received_by=-math.inf).versions
        if not versions:
            return
        with storage_errors("erasing versions of slices"):
            self.slices.erase(versions)
        with self.ledger.writing() as transaction:
            transaction.note_removed(versions=versions)

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

    def _refuse_clones(self) -> None:
        """Clones that are being made hold records, too; those of killed processes are gone by now."""
        with self.ledger.reading() as transaction:
            clones = transaction.history.clones()
        for clone in sorted(clones, key=_is_elsewhere):
            if not _is_elsewhere(clone):
                raise BlockedError(
                    f"a clone of the run with the record is being made in {clone.path}", remedy="wait for it, or end it"
                )
            raise StorageError(
                f"{clone.host} was making a clone of the run with the record in {clone.path}, which is not here",
                remedy=f"run `s3t erase {self.run}` there, or, if it is gone with that host, here with "
                "--clones-are-gone",
            )

    def forget_clones(self) -> None:
        """Believe the operator that clones which other hosts were making are gone."""
        with self.ledger.writing() as transaction:
            transaction.history.forget_clones(filter(_is_elsewhere, transaction.history.clones()))

    def _wipe(self) -> None:
        if not self.ledger.wipe():
            raise BlockedError(
                "the ledger keeps rows that were removed, because a reader still uses them",
                remedy="wait for the reader",
            )


def _is_elsewhere(clone: Clone) -> bool:
    return clone.host != platform.node() and not clone.path.parent.is_dir()


def _lost_lock(place: Place) -> StorageError:
    return StorageError(
        f"slice {place.slice} of shard {place.shard} was superseded by another process meanwhile: this one has lost "
        "the run's lock"
    )


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
