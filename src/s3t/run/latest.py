"""The newest state of a run, as every operation on it begins: what is accepted for deletion has been erased by then."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

from s3t.aftermath import NOTHING_CHANGED, OUT_OF_USE, after_refusal
from s3t.deletion.reconcile import refuse_if_restored
from s3t.errors import FsyncError, IntegrityError, MovedError, RestoredError, S3TError, StorageError
from s3t.ledger import Snapshot
from s3t.run.home import moved_error
from s3t.run.parts import Parts

AGAIN_SECONDS = 1.0
"""After an erasure that failed, before whoever only serves tries it again."""


class Latest:
    """Looks at one open run's ledger. Safe to share among threads.

    Args:
        parts: of the run.
        forget_stale: drops what is in memory of records that are gone.
    """

    def __init__(self, parts: Parts, *, forget_stale: Callable[[Snapshot], None]) -> None:
        self._parts = parts
        self._forget_stale = forget_stale
        self._newest = 0
        self._again_at = 0.0
        self.overdue: S3TError | None = None
        """Why an accepted deletion is not erased yet."""

    @property
    def only_serves(self) -> bool:
        """Whether the run's secret was destroyed."""
        return self._parts.secret.salt is None

    @property
    def passive(self) -> bool:
        """Whether nothing is erased, or otherwise changed, by this open run."""
        return self.only_serves or self._parts.ledger.read_only or self.elsewhere is not None

    @cached_property
    def elsewhere(self) -> MovedError | None:
        """Why the folder is not the run's home; None if it is."""
        return moved_error(self._parts.layout, run=self._parts.description.run)

    def resume(self) -> None:
        """Finish what a crash left undone.

        Raises:
            RestoredError: the run is an older state of itself.
            StorageError: the disk or the database refused.
        """
        parts = self._parts
        refuse_if_restored(
            parts.ledger,
            parts.witness,
            lock=parts.lock,
            run=parts.layout.root,
            slices=parts.slices,
        )
        if self.passive:
            return
        if parts.ledger.snapshot().waiting_since is not None:
            parts.ledger.confirm()  # whoever accepted may have been killed before that was on the disk
        parts.witness.catch_up(parts.ledger)
        parts.deleter.sweep()
        self.snapshot()
        parts.deleter.settle()

    def snapshot(self, *, everything: bool = False) -> Snapshot:
        """The ledger now, after what is accepted has been erased.

        If it cannot be erased (a full disk), what is alive serves on without it: the status warns. Who only serves
        does not wait for another process that is erasing.

        Args:
            everything: also from slices for which there is still time; for training, which reads them.
        """
        if not self.passive and (everything or time.monotonic() >= self._again_at):
            self._finish(everything=everything)
        snapshot = self.as_it_is()
        self._forget_stale(snapshot)
        return snapshot

    def erase(self, *, copies_are_gone: bool) -> None:
        """Erase everything that is accepted.

        Args:
            copies_are_gone: of the records, on other hosts.

        Raises:
            MovedError: the folder is a copy, or was moved.
            StorageError: the disk or the database refused.
            IntegrityError: a slice's file is not one that the ledger knows, whether or not something was to erase: it
                may hold what was deleted.
        """
        self._parts.check_changeable()
        with after_refusal(NOTHING_CHANGED):
            waits = self._parts.ledger.snapshot().waiting_since is not None
        with after_refusal(OUT_OF_USE if waits else NOTHING_CHANGED):
            if copies_are_gone:
                self._parts.eraser.forget_copies()
            self._parts.presence.look()  # else the deletions would wait for this very session
            self._parts.deleter.sweep()
            self._parts.deleter.finish(everything=True)
            self._parts.deleter.settle()
            if not self.only_serves:
                self._parts.deleter.check_slices()
        self.overdue, self._again_at = None, 0.0

    def keep_the_time(self) -> None:
        """Erase what has waited long enough: called now and then, also while nobody asks for anything."""
        if not self.passive and time.monotonic() >= self._again_at:
            self._finish(everything=False)

    def _finish(self, *, everything: bool) -> None:
        try:
            self._parts.deleter.finish(everything=everything, wait=everything)
            self.overdue = None
        except FsyncError:
            raise
        except (StorageError, IntegrityError) as error:
            self.overdue = error
            self._again_at = time.monotonic() + AGAIN_SECONDS

    def as_it_is(self) -> Snapshot:
        """The ledger now. It never goes back, unless somebody puts an old one in its place.

        Raises:
            RestoredError: somebody did.
        """
        seen = self._newest  # before the ledger is asked: another thread may see a newer one meanwhile
        snapshot = self._parts.ledger.snapshot()
        if snapshot.generation < seen:
            run = self._parts.layout.root
            raise RestoredError(
                f"the ledger of {run} went back from generation {seen} to {snapshot.generation}: a backup was put "
                f"back. Run `s3t reconcile {run}`"
            )
        self._newest = max(self._newest, snapshot.generation)
        return snapshot
