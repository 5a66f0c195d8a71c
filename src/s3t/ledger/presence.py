"""The session of an open run: it tells the ledger which generation the run has moved to.

Every computation on the run's tensors or records is entered here with what it uses: stages, slices. A thread reads the
ledger several times a second. After a deletion, results of which it took something do not leave any more, and the
ledger is told so: a deletion is effective when no session has an older answer on its way. The computations stop at
their next batch, and the ledger is told that, too: only then may the deletion be erased. Slow work, such as erasure, is
done by a second thread.

A session ends when it is closed or garbage-collected; other processes would otherwise wait for it.

No lease and no clock decides what an answer may use: it leaves only after the ledger was asked once more. For an
answer that is held until it has left (`PendingAnswers`), the lease says that deletions still wait for this session.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from s3t.bugs import log_failure
from s3t.core import Place, Stage
from s3t.errors import ClosedError, EngineError, FsyncError, IntegrityError, MovedError, S3TError
from s3t.ledger.ledger import Ledger
from s3t.ledger.sessions import LEASE_SECONDS, LOG, NO_ANSWERS, note_ended
from s3t.ledger.state import Session, SliceState, Snapshot
from s3t.processes import boot_clock

POLL_SECONDS = 0.1
BEAT_SECONDS = LEASE_SECONDS / 6
TRUSTED_SECONDS = LEASE_SECONDS / 2
"""Time after a heartbeat for which this session trusts that nobody counts it as dead. Clocks may be as far apart."""


class Overtaken(Exception):  # noqa: N818
    """A deletion has taken what a computation uses; its result may not be used."""


@dataclass(frozen=True, kw_only=True)
class Uses:
    """What a computation uses: a deletion of any of it stops the computation."""

    stages: Mapping[Stage, str] = field(default_factory=dict)
    """Live stages and the keys of their artifacts."""
    slices: Mapping[Place, SliceState] = field(default_factory=dict)
    generation: int | None = None
    """Given for a computation that may hold any record, so that each later deletion stops it: the newest before it."""

    def intact_at(self, later: Snapshot) -> bool:
        """True if a newer state of the ledger still has all of it, unchanged."""
        fits = self.generation is None or self.generation == later.generation
        return fits and later.still_has(self.stages) and later.still_as(self.slices)


class Leaving(Enum):
    """When a computation's result may leave this process."""

    NEVER = "never"
    """It gives none: what is trained is refused by the ledger, if a deletion has overtaken it."""
    LATER = "later"
    """Not yet: `may_leave` is asked first."""
    NOW = "now"
    """At any moment: deletions of what it uses wait for it."""


class Work:
    def __init__(self, uses: Uses, ledger: Ledger, leaving: Leaving) -> None:
        self._uses = uses
        self.generation = uses.generation
        self._ledger = ledger
        self.leaving = leaving
        self.overtaken = False

    def may_leave(self) -> bool:
        """True if the result may leave. From here on deletions of what it uses wait until the computation ends."""
        # In this order: who notes that it is overtaken looks at `leaving` after that. So one of both sees the other.
        self.leaving = Leaving.NOW
        return not self.overtaken

    def look(self, snapshot: Snapshot) -> None:
        self.overtaken = self.overtaken or not self._uses.intact_at(snapshot)

    def confirm(self) -> None:
        """Ask the ledger once more: called before a result leaves."""
        self.look(self._ledger.snapshot())
        self.check()

    def check(self) -> None:
        """Stop if a deletion asks for it; called at every batch."""
        if self.overtaken:
            raise Overtaken


class Watcher(Protocol):
    """An open run's memory and eraser, as its session calls them. Neither may hold the ledger up."""

    def forget_stale(self, snapshot: Snapshot) -> None:
        """Drop from memory what a newer state of the ledger does not have."""

    def forget_all(self) -> None:
        """Drop from memory all that belongs to the run."""

    def erase_meanwhile(self) -> object:
        """Erase what has waited long enough. It may take long: a thread of its own calls it, several times a second."""


class Presence:
    """The session of one open run. Safe to share among threads.

    The ledger is closed if the session is garbage-collected without `close`.
    """

    def __init__(self, ledger: Ledger, watcher: Watcher) -> None:
        self.session = Session()
        self._ended = weakref.finalize(self, note_ended, self.session)
        self._ledger = ledger
        self._watcher = watcher
        self._state = threading.RLock()  # a generator that garbage collection ends may enter it again
        self._looking = threading.Lock()
        self._running: set[Work] = set()
        self._claims: dict[Stage, str] = {}  # and the device that trains each
        self._claims_in_doubt = False  # the ledger may have claims of this session that are not in that set
        self._newest: Snapshot | None = None
        self._moved_at: int | None = None  # `changes` of the snapshot that the watcher was called with last
        self._generation: int | None = None  # as the ledger knows it; None before the session is entered
        self._answers = NO_ANSWERS  # likewise
        self._beat_at = 0.0
        self._is_left = False  # True if the folder was moved, and the session is to end in the ledger
        self._told_at = -math.inf  # when the ledger was last told that the session lives, before it was
        self._watched = False
        self.poll_seconds = POLL_SECONDS  # between two looks at the ledger; the second thread keeps to POLL_SECONDS
        self._closed = threading.Event()
        self._gone = threading.Event()  # the ledger knows that the session has ended

    def working(
        self, snapshot: Snapshot, uses: Uses, *, leaving: Leaving = Leaving.NOW
    ) -> AbstractContextManager[Work]:
        return self.pending(snapshot, uses, leaving=leaving, look_at_end=True)

    @contextmanager
    def pending(
        self, snapshot: Snapshot, uses: Uses, *, leaving: Leaving = Leaving.LATER, look_at_end: bool = False
    ) -> Iterator[Work]:
        """As `working`; its end may come in a thread that must not wait: the session's own tells the ledger of it."""
        work = Work(uses, self._ledger, leaving)
        with self._state:
            self._running.add(work)
        try:
            self._refuse_if_closed()
            gives = work.leaving is not Leaving.NEVER
            if self._generation is None or (gives and self._answers == NO_ANSWERS):
                self._enter(snapshot.generation, gives_answers=gives)
            with self._state:
                if self._newest is not None and self._newest.changes > snapshot.changes:
                    work.look(self._newest)
            work.check()
            try:
                yield work
            except (IntegrityError, EngineError):
                if work.generation is None:
                    work.confirm()  # an artifact was erased under its hands, or an engine was told to forget it
                raise
        finally:
            with self._state:
                self._running.discard(work)
            if look_at_end and work.overtaken:
                with suppress(S3TError):  # the thread tries again
                    self.look()

    @contextmanager
    def answering(self, snapshot: Snapshot, uses: Uses) -> Iterator[Work]:
        """Like `working`, for a result that leaves only if the ledger, read again, still has all that it uses."""
        with self.working(snapshot, uses) as work:
            yield work
            work.confirm()

    @property
    def lease_is_fresh(self) -> bool:
        """True if nobody counts this session as dead: no deletion can have become effective without it.

        One that was stopped comes back with an old lease: `renew` it before an answer leaves. Deletions never wait for
        a session that is read-only (`run.reporting.READ_ONLY`).
        """
        return boot_clock() - self._told_at <= TRUSTED_SECONDS

    def renew(self) -> None:
        """Look at the ledger, and tell it that this session lives; StorageError if that cannot be done."""
        with self._looking:
            self._beat_at = 0.0
        self.look()

    def look(self) -> None:
        """Compare all computations with the newest state of the ledger, and note there if this session has moved."""
        with self._looking:
            if self._is_left:
                self._end_left()
            if self._generation is None:
                return
            try:
                snapshot = self._ledger.snapshot()
            except MovedError:
                self._leave()
                raise
            with self._state:
                self._compare(snapshot)
                overtaken = [work for work in self._running if work.overtaken]
                held = any(work.leaving is Leaving.NOW for work in overtaken)
            # Of what may hold any record, the oldest tells how far this session has come.
            ages = (self._generation if work.generation is None else work.generation for work in overtaken)
            generation = max(self._generation, min([snapshot.generation, *ages]))
            answers = self._answers if held or self._answers == NO_ANSWERS else snapshot.generation
            if self._moved_at != snapshot.changes:
                self._watcher.forget_stale(snapshot)
                self._moved_at = snapshot.changes
            if self._generation < generation or self._answers < answers:
                if self._generation < generation:  # what has just stopped may have put something into memory
                    self._watcher.forget_stale(snapshot)
                self._tell(generation, answers, moved=True)
            elif self._claims_in_doubt or time.monotonic() > self._beat_at:
                self._tell(generation, answers, moved=False)

    def _leave(self) -> None:
        """End the session in the ledger that was moved, once all its computations have stopped.

        The process may enter it again, if the folder comes back.
        """
        with self._state:
            for work in self._running:
                work.overtaken = True
            if self._running:
                return
            self._watcher.forget_all()
            self._generation, self._answers, self._claims_in_doubt = None, NO_ANSWERS, False
            self._is_left = not self._ledger.read_only
        if self._is_left:
            self._end_left()

    def _end_left(self) -> None:
        _end(self._ledger, self.session)
        self._is_left = False

    def _compare(self, snapshot: Snapshot) -> None:
        """Compare all computations with a newer state of the ledger; within the lock of the state."""
        self._newest = snapshot
        for work in tuple(self._running):
            work.look(snapshot)

    @contextmanager
    def claimed(self, stage: Stage, *, device: str = "cpu") -> Iterator[bool]:
        """A claim on a stage while within; yields False if another thread or session has it."""
        self._refuse_if_closed()
        with self._state:
            taken = stage in self._claims
            self._claims.setdefault(stage, device)
        if taken:  # by another thread
            yield False
            return
        in_doubt = True
        try:
            with self._ledger.writing() as transaction:
                ours = transaction.sessions.claim(stage, self.session, device=device)
            in_doubt = ours
            try:
                yield ours
            finally:
                if ours:
                    with suppress(S3TError):  # the thread tries again; until then other sessions wait for the stage
                        with self._ledger.writing() as transaction:
                            transaction.sessions.release(stage, self.session)
                        in_doubt = False
        finally:
            with self._state:
                del self._claims[stage]
                self._claims_in_doubt = self._claims_in_doubt or in_doubt

    def do_meanwhile(self) -> None:
        """The task of the second thread, several times a second."""
        self._watcher.erase_meanwhile()

    def close(self) -> None:
        """End the session. A forked child does nothing: the session is its parent's."""
        if self.session.process != os.getpid():
            return
        self._closed.set()
        self._ended()
        with self._state:
            for work in self._running:
                work.overtaken = True  # the ledger cannot be asked any more whether its answer may leave
        with self._looking:
            self._generation = None
            if self._watched and not self._gone.is_set():
                with suppress(S3TError):  # the thread tries again
                    _end(self._ledger, self.session)
                    self._gone.set()

    def _refuse_if_closed(self) -> None:
        if self._closed.is_set():
            raise ClosedError

    def start(self) -> None:
        """Begin to look at the ledger before the first computation; not where nothing can be changed."""
        if not self._ledger.read_only:
            with self._looking:
                self._refuse_if_closed()
                self._start_threads()

    def _enter(self, generation: int, *, gives_answers: bool) -> None:
        with self._looking:
            self._refuse_if_closed()
            if self._generation is not None and not (gives_answers and self._answers == NO_ANSWERS):
                return
            uses = generation if self._generation is None else self._generation
            self._start_threads()  # first: whatever becomes of the row, a thread removes it
            self._tell(uses, generation if gives_answers else NO_ANSWERS, moved=True)
            self._is_left = False

    def _start_threads(self) -> None:
        """Start both threads, which hold only weak references, so that the session can be garbage-collected."""
        if self._watched:
            return
        this = weakref.ref(self)
        for name, task, arguments in (
            ("s3t-watch", _watch, (this, self._closed, self._gone, self._ledger, self.session)),
            ("s3t-meanwhile", _repeat, (this, self._closed, Presence.do_meanwhile)),
        ):
            threading.Thread(target=task, args=arguments, daemon=True, name=name).start()
        self._watched = True

    def _tell(self, generation: int, answers: int, *, moved: bool) -> None:
        """Note in the ledger that this session lives, and, if it has `moved`, both generations."""
        began = boot_clock()
        if self._ledger.read_only:  # the session cannot be entered, so no deletion waits for it
            self._gone.set()
            with self._state:
                self._compare(self._ledger.snapshot())
        else:
            self._beat_at = 0.0  # if the ledger refuses, the next look tries again
            with self._ledger.writing() as transaction:
                alive = transaction.sessions.beat(self.session)
                if not alive and self._generation is not None:  # it slept, and was removed as dead
                    LOG.info("lease lost: this process counted as dead, and deletions did not wait for it; it is back")
                if moved or not alive:
                    transaction.sessions.enter(self.session, generation=generation, answers=answers)
                newest = transaction.snapshot()
                with self._state:  # within the transaction, where no thread of this process makes a claim
                    claims, self._claims_in_doubt = dict(self._claims), False
                    self._compare(newest)  # deletions did not wait for one that is new, or had counted as dead
                transaction.sessions.release_all_but(claims, self.session)
                if not alive:
                    for stage, device in claims.items():  # unless another trains it by now
                        transaction.sessions.claim(stage, self.session, device=device)
                transaction.settle()  # a session that deletions waited for may be dead
        if moved:
            self._generation, self._answers = generation, answers
        self._beat_at, self._told_at = time.monotonic() + BEAT_SECONDS, began


def _end(ledger: Ledger, session: Session) -> None:
    with ledger.writing(anywhere=True) as transaction:
        transaction.sessions.end([session.name])
        transaction.settle()


def _watch(
    presence: weakref.ref[Presence],
    closed: threading.Event,
    gone: threading.Event,
    ledger: Ledger,
    session: Session,
) -> None:
    """Look at the ledger until the session is closed or garbage-collected; then note its end there."""
    if not _repeat(presence, closed, Presence.look):
        return
    pause = BEAT_SECONDS if closed.is_set() else 0.0  # `close` notes the end itself, if the ledger lets it
    while not gone.wait(pause):
        pause = BEAT_SECONDS
        try:
            try:
                _end(ledger, session)
            except ClosedError:
                with closing(ledger.again()) as handle:
                    _end(handle, session)
            gone.set()
        except (FsyncError, IntegrityError):  # the second: the ledger is gone, and the session with it
            break
        except Exception:
            logging.getLogger("s3t").debug("the ledger could not be told that a session has ended", exc_info=True)
    if not closed.is_set():
        ledger.close()


def _repeat(presence: weakref.ref[Presence], closed: threading.Event, act: Callable[[Presence], None]) -> bool:
    """Act several times a second until the session is closed or garbage-collected; False after a failed fsync."""
    level = logging.WARNING
    pause = POLL_SECONDS
    while not closed.wait(pause):
        session = presence()
        if session is None:
            return True
        pause = session.poll_seconds if act is Presence.look else POLL_SECONDS
        try:
            act(session)
        except FsyncError:
            return False
        except S3TError:
            logging.getLogger("s3t").debug("the ledger could not be watched", exc_info=True)
        except Exception as error:  # any error: without this thread, deletions would wait for this session for ever
            log_failure(error, command="watching for deletions, which is tried again", level=level)
            level = logging.DEBUG  # ten warnings a second would be too many
        del session
    return True
