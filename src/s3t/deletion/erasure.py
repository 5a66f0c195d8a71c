"""Erasure: what was accepted for deletion leaves every place of the list (`places.py`), one place after the other.

Each step may be done twice. What a slice's file shall be is in the ledger, and what its digest will be is noted there
before the file is rewritten, so a crash leaves either the one or the other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from s3t.deletion.dataset_cache import remove_copies
from s3t.deletion.places import PLACES
from s3t.disk import storage_errors, sweep_tmp, sync_folder
from s3t.errors import FsyncError, IntegrityError, StorageError
from s3t.ledger import Ledger, SliceState, ToErase
from s3t.partition import Place, Secret
from s3t.records import read_slice, slice_digest, slice_path, without_records, write_slice
from s3t.store import ArtifactStore


@dataclass(frozen=True, kw_only=True)
class Eraser:
    """Erases what one run's ledger says is accepted."""

    ledger: Ledger
    store: ArtifactStore
    secret: Secret
    run: Path
    slices: Path
    tmp: Path
    within: float
    """Seconds after its deletion was received for which a record may stay in its slice's file."""
    forget: Callable[[Collection[Place]], None]
    """Drops what is in memory of slices."""
    unfinished: Callable[[], None]
    """Removes what a killed init left beside the run."""
    mark: Callable[[int], None]
    """Notes in the folder how many rewritings it has seen."""

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
            generation = transaction.snapshot().generation
            work = transaction.to_erase(received_by=math.inf if everything else time.time() - self.within)
        steps: dict[str, Callable[[ToErase], None]] = {
            "memory": lambda work: self.forget(work.since.keys()),
            "trunk cache": lambda work: None,  # with memory
            "artifacts": self._remove_artifacts,
            "manifests": lambda work: None,  # with their artifacts
            "temporary files": lambda work: self.sweep(),
            "unfinished runs": lambda work: None,  # with temporary files
            "slices": self._rewrite_slices,
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
        """Remove what killed processes left: temporary files, and artifacts that no committed stage names.

        All that is written goes through the folder of temporary files, under the run's lock or in a writing
        transaction. Here both are held, so whatever lies there is nobody's, of whichever host.
        """
        with storage_errors("removing what a killed init left"):
            self.unfinished()
        with self.ledger.writing() as transaction, storage_errors("sweeping what killed processes left"):
            sweep_tmp(self.tmp)
            known = {(stage.shard, key) for stage, key in transaction.snapshot().stages.items()}
            if orphans := self.store.keys() - known:
                self.store.erase(orphans)

    def _remove_artifacts(self, work: ToErase) -> None:
        with storage_errors("erasing artifacts"):
            self.store.erase(set(work.artifacts))
        with self.ledger.writing() as transaction:
            transaction.removed(work.artifacts)

    def _rewrite_slices(self, work: ToErase) -> None:
        if not work.records:
            return
        digests, refused = {}, []
        for place, gone in sorted(work.records.items()):
            try:
                digests[place] = self._without(place, gone, known=work.slices[place])
            except FsyncError:
                raise
            except (StorageError, IntegrityError) as error:  # the other slices go on
                refused.append(error)
        if digests:
            self._note_rewritten(digests, work)
        _raise_all(refused)

    def _note_rewritten(self, digests: Mapping[Place, str], work: ToErase) -> None:
        # First in the folder, then in the ledger: a folder that counts fewer than its ledger is an older one.
        with storage_errors("marking the run folder"):
            self.mark(work.erasures + 1)
        with self.ledger.writing() as transaction:
            for place, digest in digests.items():
                transaction.rewritten(place, digest, work.records[place])
            transaction.count_erasure()

    def _without(self, place: Place, tokens: Collection[bytes], *, known: SliceState) -> str:
        """Rewrite a slice's file without records; its new digest.

        Raises:
            IntegrityError: the file is neither the one that the ledger knows nor the one that it shall become.
        """
        content = read_slice(self.slices, place, self.secret)
        kept = without_records(content.rows, tokens, self.secret)
        if kept.num_rows != known.records or content.digest not in (known.digest, known.next_digest):
            raise IntegrityError(
                f"the file of slice {place.slice} of shard {place.shard} is not the one that the ledger knows; the "
                f"deleted records are out of use. Run `s3t reconcile {self.run}`, which takes them out of an older "
                "file and says of any other what is wrong"
            )
        if kept.num_rows == content.rows.num_rows:  # rewritten, and then a crash came; is the new name on the disk?
            with storage_errors("erasing records from a slice"):
                sync_folder(slice_path(self.slices, place).parent)
            return content.digest
        digest = slice_digest(kept, self.secret)
        with self.ledger.writing() as transaction:
            transaction.will_rewrite(place, known=known, now=content.digest, then=digest)
        with storage_errors("erasing records from a slice"):
            write_slice(self.slices, place, kept, tmp=self.tmp, around=self.still_rewriting(place, digest))
        return digest

    def check_slices(self) -> None:
        """Compare every slice's file with the digest that the ledger knows. The caller holds the run's lock.

        Raises:
            IntegrityError: some are others, and may hold what was deleted.
        """
        problems = []
        for place, known in sorted(self.ledger.snapshot().slices.items()):
            try:
                digest = read_slice(self.slices, place, self.secret).digest
            except IntegrityError as error:
                problems.append(str(error))
                continue
            if digest not in (known.digest, known.next_digest):
                problems.append(f"{slice_path(self.slices, place)} is not the file that the ledger knows")
        if problems:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            raise IntegrityError(
                f"{self.run} has files of slices that may hold deleted records (which are out of use). Run "
                f"`s3t reconcile {self.run}`, which takes them out of older files and says of any other what is "
                f"wrong:{lines}"
            )

    @contextmanager
    def still_rewriting(self, place: Place, digest: str) -> Iterator[None]:
        """A moment in which nobody else changes the ledger, if a slice's next file is still the one with a digest.

        Raises:
            StorageError: another process has rewritten the slice.
        """
        with self.ledger.writing() as transaction:
            transaction.still_rewriting(place, digest)
            yield

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
