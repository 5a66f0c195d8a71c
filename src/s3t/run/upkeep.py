"""Erasure by an open run: when it is opened, before it answers, trains, audits or shows its status, and in time.

The roles call `erase_due` or `erase_all`. Once a run has predicted or trained, its thread calls `erase_meanwhile`
several times a second (`ledger/presence.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from s3t.deletion.protocol import Eraser
from s3t.errors import FsyncError, IntegrityError, MovedError, S3TError, StorageError
from s3t.ledger import Snapshot
from s3t.run.latest import Latest
from s3t.store.folder import Layout, moved_error

if TYPE_CHECKING:
    from s3t.run.parts import LazyWorkshop

AGAIN_SECONDS = 1.0
"""Retry delay after a failed erasure, in seconds."""
OTHERS_FIRST_SECONDS = 2.0
"""Time that the process which accepted a deletion has to erase it, before others do that in the background. Likewise,
time that the process which approved a held request has to carry it out."""
APPROVED_AGAIN_SECONDS = 30.0
"""Time from one try to carry out approved requests to the next: each reads every slice's names."""
_LOOK_SECONDS = 0.05


@dataclass
class Upkeep:
    """Erases in one open run, unless that only reads. Safe to share among threads."""

    layout: Layout
    run: str
    """The run's id."""
    latest: Latest
    eraser: Eraser
    loaded: LazyWorkshop
    carry_out: Callable[[], dict[str, S3TError]]
    """Carries out requests that are approved; returns the errors of those that fail."""
    overdue: S3TError | None = field(default=None, init=False)
    """Error of the last erasure, if that failed; its deletion is accepted, and not erased yet."""
    not_carried_out: dict[str, S3TError] = field(default_factory=dict, init=False)
    """Errors of approved requests at the last try, by id."""
    is_background: bool = field(default=False, init=False)
    """True in a repair beside a server: before it trains, it lets the server erase first."""
    _again_at: float = field(default=0.0, init=False)
    _noticed: tuple[int, float] | None = field(default=None, init=False)
    """The generation at which something is to erase, and since when this process knows."""
    _own: int = field(default=0, init=False)
    """The last generation whose erasure this process has left to its second thread."""
    _approved: frozenset[str] = field(default=frozenset(), init=False)
    """Approved requests that this process has seen and not carried out."""
    _carry_out_at: float = field(default=0.0, init=False)
    _carrying: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def passive(self) -> bool:
        """True if this open run erases nothing, and changes nothing."""
        return self.latest.only_serves or self.eraser.ledger.read_only or self.elsewhere is not None

    @cached_property
    def elsewhere(self) -> MovedError | None:
        """The error if the folder is not the run's home; None if it is."""
        return moved_error(self.layout, run=self.run)

    def resume(self) -> None:
        """Finish what a crash left undone. A run that is an older state of itself is refused."""
        self.eraser.resume(passive=self.passive)
        if not self.passive:
            self.carry_out_approved(at_once=True)
            self.erase_due()
            self.eraser.settle()

    def carry_out_approved(self, *, at_once: bool = False) -> Snapshot:
        """Carry out held requests that were approved, and stopped by a crash or an error. What fails is tried again.

        With `at_once`, leave no time to the process that has approved. Returns the ledger afterwards.
        """
        snapshot = self.latest.snapshot()
        if self.passive or (not snapshot.approved and not self._approved):
            return snapshot
        with self._carrying:
            if snapshot.approved - self._approved:
                self._carry_out_at = time.monotonic() + OTHERS_FIRST_SECONDS
            self._approved, before = snapshot.approved, self.not_carried_out
            self.not_carried_out = {id: error for id, error in before.items() if id in self._approved}
            if not self._approved or (not at_once and time.monotonic() < self._carry_out_at):
                return snapshot
            self.not_carried_out = self.carry_out()
            self.erase_soon(self.latest.snapshot().generation)
            for id, error in self.not_carried_out.items():
                if str(before.get(id)) != str(error):
                    logging.getLogger("s3t.run").warning("request %s, approved, was not carried out: %s", id, error)
            self._approved = frozenset(self.not_carried_out)
            self._carry_out_at = time.monotonic() + APPROVED_AGAIN_SECONDS
        return self.latest.snapshot()

    def forget_stale(self, snapshot: Snapshot) -> None:
        self.loaded.forget_stale(snapshot)

    def forget_all(self) -> None:
        """Drop the model, and all records and stages, from memory."""
        self.loaded.drop()

    def erase_due(self) -> Snapshot:
        """Erase what has waited long enough, and drop from memory what the ledger has no more.

        If it cannot be erased (a full disk), what is alive serves on without it: the status warns. It is tried again
        after `AGAIN_SECONDS`. Another process that is erasing is not waited for. Returns the ledger afterwards.
        """
        snapshot = self.carry_out_approved()
        self.forget_stale(snapshot)
        if not self.passive and time.monotonic() >= self._again_at:
            self._finish(snapshot, everything=False)
            if snapshot.condemned or snapshot.waiting_since is not None:  # else there was nothing to erase
                return self.latest.snapshot()
        return snapshot

    def erase_meanwhile(self) -> None:
        """As `erase_due`, in the background: only what the process that accepted it has not erased in time."""
        snapshot = self.carry_out_approved()
        if self._is_left_to_others(snapshot):
            self.forget_stale(snapshot)
        else:
            self.erase_due()

    def erase_soon(self, generation: int) -> None:
        """Leave a deletion that this process has accepted to the session's second thread."""
        self._own = max(self._own, generation)

    def _is_left_to_others(self, snapshot: Snapshot) -> bool:
        if not snapshot.condemned and snapshot.waiting_since is None:
            self._noticed = None
            return False
        if snapshot.generation <= self._own:
            return False
        now = time.monotonic()
        if self._noticed is None or self._noticed[0] != snapshot.generation:
            self._noticed = snapshot.generation, now
        return now < self._noticed[1] + OTHERS_FIRST_SECONDS

    def erase_all(self) -> None:
        """Erase also what may still wait: before training, which reads the slices."""
        snapshot, until = self.latest.snapshot(), time.monotonic() + OTHERS_FIRST_SECONDS
        while self.is_background and time.monotonic() < until:
            if not snapshot.condemned and snapshot.pending_since is None:
                break  # what is left is an export to be withdrawn, which training need not wait for
            time.sleep(_LOOK_SECONDS)
            snapshot = self.latest.snapshot()
        snapshot = self.carry_out_approved()
        self.forget_stale(snapshot)
        if not self.passive:
            self._finish(snapshot, everything=True)

    def _finish(self, snapshot: Snapshot, *, everything: bool) -> None:
        try:
            self.eraser.finish(everything=everything, wait=everything, now=snapshot)
            self.overdue = None
        except FsyncError:
            raise
        except (StorageError, IntegrityError) as error:
            self.overdue = error
            self._again_at = time.monotonic() + AGAIN_SECONDS

    def note_erased(self) -> None:
        """Forget a failed erasure: everything is erased."""
        self.overdue, self._again_at = None, 0.0
