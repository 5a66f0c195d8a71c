"""Erasure: what was accepted for deletion leaves every place of the list (`places.py`), one place after the other.

Each step may be done twice. A slice's next version is condemned before it is put, and current in the transaction that
condemns the one before; what is condemned is removed. So a crash leaves nothing that the ledger does not know.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3t.blobs import Blobs
from s3t.deletion.dataset_cache import remove_copies
from s3t.deletion.places import PLACES
from s3t.disk import storage_errors
from s3t.errors import FsyncError, IntegrityError, StorageError
from s3t.ledger import Ledger, SliceState, ToErase
from s3t.partition import Place, Secret
from s3t.records import Slices, slice_digest, without_records
from s3t.store import Artifacts, blobs_of


@dataclass(frozen=True, kw_only=True)
class Eraser:
    """Erases what one run's ledger says is accepted."""

    ledger: Ledger
    store: Artifacts
    blobs: Blobs
    """That the artifacts are in."""
    secret: Secret
    run: Path
    slices: Slices
    within: float
    """Seconds after its deletion was received for which a record may stay in its slice's current version."""
    forget: Callable[[Collection[Place]], None]
    """Drops what is in memory of slices."""
    unfinished: Callable[[], None]
    """Removes what a killed init left beside the run."""

    def erase(self, *, everything: bool) -> None:
        """Go through the places. The caller holds the run's lock.

        Args:
            everything: also what may still wait.

        Raises:
            StorageError: the disk or the database refused; the next call goes on.
            IntegrityError: a slice's file is not one that the ledger knows.
        """
        with self.ledger.writing() as transaction:
            # An acceptance that is not on the disk yet may go; what is erased for it does not come back.
            transaction.touch()
            transaction.note_accepted()  # here, for this waits for the disk in any case
            transaction.sessions.bury()  # what they were putting is to be erased
            generation = transaction.snapshot().generation
            work = transaction.to_erase(received_by=math.inf if everything else time.time() - self.within)
        steps: dict[str, Callable[[ToErase], None]] = {
            "memory": lambda work: self.forget(work.since.keys()),
            "trunk cache": lambda work: None,  # with memory
            "artifacts": self._remove_artifacts,
            "manifests": lambda work: None,  # with their artifacts
            "temporary files": lambda work: self._sweep_parts(),
            "unfinished runs": lambda work: None,  # with temporary files
            "slices": self._supersede,
            "data set caches": lambda work: self._remove_copies(),
            "ledger": lambda work: self._wipe(),
        }
        refused: list[StorageError | IntegrityError] = []
        for place in PLACES:
            if place.erased is not None:
                try:
                    steps[place.name](work)
                except FsyncError:
                    raise
                except (StorageError, IntegrityError) as error:  # what can go elsewhere goes all the same
                    refused.append(error)
        _raise_all(refused)
        with self.ledger.writing() as transaction:
            transaction.have_walked(generation)

    def due(self) -> bool:
        """Whether something has to be done now: a place to go through, a record that has waited long enough."""
        snapshot = self.ledger.snapshot()
        if snapshot.dead or snapshot.walked < snapshot.generation:
            return True
        return snapshot.pending_since is not None and time.time() >= snapshot.pending_since + self.within

    def sweep(self) -> None:
        """Remove temporary files that killed processes left; condemn what the ledger does not name.

        Lists the store: it is called when a run is opened, and when the operator erases. The caller holds the lock.
        """
        with storage_errors("looking for what killed processes left"):
            lying = self.store.keys()  # first: what is put from here on was announced before
            strays = [*self._strays(self.slices.versions())]
        self._sweep_parts()
        with self.ledger.writing() as transaction:
            transaction.sessions.bury()
            named = {(stage.shard, key) for stage, key in transaction.snapshot().stages.items()}
            orphans = lying - named - transaction.sessions.announced()
            transaction.condemn(artifacts=orphans, versions=strays)

    def _strays(self, versions: Mapping[Place, frozenset[str]]) -> Iterator[tuple[Place, str]]:
        """Versions of slices that are not current, where the current one is whole, or nothing can read one any more.

        Else they may be all that is left of a slice, and of what a newer ledger knew.
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
        """Remove what is half written, but for what living trainers write; everything else is written under the lock,
        which the caller holds."""
        with storage_errors("removing what a killed init left"):
            self.unfinished()
        with storage_errors("removing temporary files"):
            parts = self.blobs.parts()  # first, as above
            if parts:
                with self.ledger.writing() as transaction:
                    transaction.sessions.bury()
                    announced = transaction.sessions.announced()
                self.blobs.erase_parts(parts, sparing={name for each in announced for name in blobs_of(*each)})

    def _remove_artifacts(self, work: ToErase) -> None:
        if not work.artifacts:
            return
        with storage_errors("erasing artifacts"):
            self.store.erase(set(work.artifacts))
        with self.ledger.writing() as transaction:
            transaction.removed(work.artifacts)

    def _supersede(self, work: ToErase) -> None:
        """Give slices a version without what was deleted, and remove the versions of before."""
        new: dict[Place, str] = {}
        refused: list[StorageError | IntegrityError] = []
        for place, gone in sorted(work.records.items()):
            try:
                new[place] = self._put_next(place, gone, known=work.slices[place])
            except FsyncError:
                raise
            except (StorageError, IntegrityError) as error:  # the other slices go on
                refused.append(error)
        if new:
            with self.ledger.writing() as transaction:
                for place, digest in new.items():
                    old = work.slices[place].digest
                    if not transaction.supersede(place, old=old, new=digest, gone=work.records[place]):
                        refused.append(_lost_lock(place))
        try:
            self._remove_versions()
        except FsyncError:
            raise
        except StorageError as error:
            refused.append(error)
        _raise_all(refused)

    def _put_next(self, place: Place, tokens: Collection[bytes], *, known: SliceState) -> str:
        """Put a slice's next version, without records; its digest.

        Raises:
            IntegrityError: the current version is damaged.
        """
        kept = without_records(self.slices.read(place, known.digest), tokens, self.secret)
        if kept.num_rows != known.records:
            raise IntegrityError(
                f"slice {place.slice} of shard {place.shard} holds other records than the ledger counts; the deleted "
                f"records are out of use. Run `s3t reconcile {self.run}`, which says what is wrong"
            )
        with self.ledger.writing() as transaction:  # a crash may leave what is put and never current
            transaction.announce_version(place, slice_digest(kept, self.secret))
        with storage_errors("storing the next version of a slice"):
            return self.slices.put(place, kept)

    def _remove_versions(self) -> None:
        """Remove condemned versions of slices."""
        with self.ledger.reading() as transaction:
            versions = transaction.to_erase(received_by=-math.inf).versions
        if not versions:
            return
        with storage_errors("erasing versions of slices"):
            self.slices.erase(versions)
        with self.ledger.writing() as transaction:
            transaction.removed(versions=versions)

    def check_slices(self) -> None:
        """Compare every slice's current version with its digest. The caller holds the run's lock.

        Raises:
            IntegrityError: some are missing, or others.
        """
        problems = []
        for place, known in sorted(self.ledger.snapshot().slices.items()):
            try:
                self.slices.read(place, known.digest)
            except IntegrityError as error:
                problems.append(str(error))
        if problems:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            raise IntegrityError(
                f"{self.run} has files of slices that may hold deleted records (which are out of use). Run "
                f"`s3t reconcile {self.run}`, which mends them from older ones and says of any other what is "
                f"wrong:{lines}"
            )

    def _remove_copies(self) -> None:
        with self.ledger.reading() as transaction:
            copies = transaction.copies()
        if not copies:
            return
        with storage_errors("removing copies of the data set"):
            left = remove_copies(copies)
        with self.ledger.writing() as transaction:
            transaction.forget_copies(set(copies) - set(left))
        if left:
            raise StorageError(
                f"{left[0].host}, where the run was made, has copies of the records in {left[0].cache}, which is not "
                f"on this host",
                remedy=f"run `s3t erase {self.run}` there, or, if they are gone with that host, here with "
                "--copies-are-gone",
            )

    def forget_copies(self) -> None:
        """Believe the operator that copies on other hosts are gone."""
        with self.ledger.writing() as transaction:
            transaction.forget_copies(copy for copy in transaction.copies() if not copy.cache.is_dir())

    def _wipe(self) -> None:
        if not self.ledger.wipe():
            raise StorageError(
                "the ledger keeps rows that were removed, for a reader holds on to it", remedy="wait for the reader"
            )


def _lost_lock(place: Place) -> StorageError:
    return StorageError(
        f"slice {place.slice} of shard {place.shard} was superseded by another process meanwhile: this one has lost "
        "the run's lock"
    )


def _raise_all(refused: Sequence[StorageError | IntegrityError]) -> None:
    """One error that tells all of them, of the first one's kind."""
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
