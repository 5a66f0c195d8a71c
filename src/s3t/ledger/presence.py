"""An open run as the other users of the run see it: at what generation it is, and that nothing older is in use there.

Every computation on the run's tensors or records is entered here with a question: may it go on at a newer state of the
ledger? A thread looks at the ledger several times a second. When a deletion came, computations that may not go on are
told to stop at their next batch; once they have, the ledger is told that this session has moved. A deletion is
effective when all sessions have. What takes long, such as erasing, is done in a thread beside that one.

A session ends when it is closed, and also when nobody has it any more: other processes see this one alive, and would
wait for it.

What an answer may be made of is decided by no lease and no clock: it leaves only after the ledger was asked once more.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from s3t.errors import ClosedError, FsyncError, IntegrityError, S3TError
from s3t.ledger.ledger import Ledger
from s3t.ledger.sessions import LEASE_SECONDS, Session, ended
from s3t.ledger.state import Snapshot
from s3t.stages import Stage

POLL_SECONDS = 0.1
BEAT_SECONDS = LEASE_SECONDS / 6


class Overtaken(Exception):  # noqa: N818
    """A deletion has taken what a computation uses; its result may not be used."""


class Work:
    """A computation under way."""

    def __init__(self, may_go_on: Callable[[Snapshot], bool]) -> None:
        self._may_go_on = may_go_on
        self.overtaken = False

    def look(self, snapshot: Snapshot) -> None:
        """Compare with a newer state of the ledger."""
        self.overtaken = self.overtaken or not self._may_go_on(snapshot)

    def check(self) -> None:
        """Called at every batch.

        Raises:
            Overtaken: it has to stop.
        """
        if self.overtaken:
            raise Overtaken


class Presence:
    """One open run's session. Safe to share among threads.

    Args:
        ledger: the run's; it is closed if the session is dropped without that.
        moved: told of every newer state of the ledger, to drop what is in memory of records that are gone.
        meanwhile: called several times a second, by a thread of its own: however long it takes, the ledger is looked
            at and told that this session lives.
    """

    def __init__(
        self, ledger: Ledger, *, moved: Callable[[Snapshot], None], meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        self.session = Session()
        self._ended = weakref.finalize(self, ended, self.session)
        self._ledger = ledger
        self._moved = moved
        self._meanwhile = meanwhile
        self._state = threading.Lock()
        self._looking = threading.Lock()
        self._under_way: set[Work] = set()
        self._claims: set[Stage] = set()
        self._claims_in_doubt = False  # the ledger may hold more of them than that
        self._newest: Snapshot | None = None
        self._let_go: int | None = None  # changes of the ledger of which `moved` was told
        self._generation: int | None = None  # as the ledger knows it; None before this is known to the ledger at all
        self._beat_at = 0.0
        self._watched = False
        self._closed = threading.Event()
        self._gone = threading.Event()  # the ledger knows that the session has ended

    @contextmanager
    def working(self, snapshot: Snapshot, may_go_on: Callable[[Snapshot], bool]) -> Iterator[Work]:
        """A computation from a snapshot, while within.

        Args:
            snapshot: what it starts from.
            may_go_on: whether, at a newer snapshot, its result could still be used.

        Raises:
            Overtaken: its result could not be used already.
            ClosedError: the session has ended.
            StorageError: the ledger cannot be told of it.
        """
        work = Work(may_go_on)
        with self._state:
            self._under_way.add(work)
        try:
            self._refuse_if_closed()
            if self._generation is None:
                self._join(snapshot.generation)
            with self._state:
                if self._newest is not None and self._newest.changes > snapshot.changes:
                    work.look(self._newest)
            work.check()
            yield work
        finally:
            with self._state:
                self._under_way.discard(work)
            if work.overtaken:
                with suppress(S3TError):  # the thread tries again
                    self.look()

    def look(self) -> None:
        """Compare all computations with the ledger as it is now; tell it if this session has moved.

        Raises:
            StorageError: the ledger cannot be read or told.
        """
        with self._looking:
            if self._generation is None:
                return
            snapshot = self._ledger.snapshot()
            with self._state:
                self._newest = snapshot
                for work in self._under_way:
                    work.look(snapshot)
                free = not any(work.overtaken for work in self._under_way)
                behind = self._generation < snapshot.generation
            if self._let_go != snapshot.changes:
                self._moved(snapshot)
                self._let_go = snapshot.changes
            if free and behind:
                self._moved(snapshot)  # once more: what has just been stopped may have put something into memory
                self._tell(snapshot.generation, moved=True)
            elif self._claims_in_doubt or time.monotonic() > self._beat_at:
                self._tell(snapshot.generation if free else self._generation, moved=False)

    @contextmanager
    def claimed(self, stage: Stage) -> Iterator[bool]:
        """A claim on a stage while within; whether it is ours.

        Raises:
            ClosedError: the session has ended.
            StorageError: the ledger refused.
        """
        self._refuse_if_closed()
        with self._state:
            taken = stage in self._claims
            self._claims.add(stage)
        if taken:  # by another thread
            yield False
            return
        in_doubt = True
        try:
            with self._ledger.writing() as transaction:
                ours = transaction.sessions.claim(stage, self.session, again=True)
            in_doubt = ours
            try:
                yield ours
            finally:
                if ours:
                    with suppress(S3TError):  # the thread tries again; others would wait for as long as we live
                        with self._ledger.writing() as transaction:
                            transaction.sessions.release(stage, self.session)
                        in_doubt = False
        finally:
            with self._state:
                self._claims.discard(stage)
                self._claims_in_doubt = self._claims_in_doubt or in_doubt

    def do_meanwhile(self) -> None:
        """What the thread beside the one that looks does, several times a second."""
        self._meanwhile()

    def close(self) -> None:
        """End the session. That of a process that was forked off is its parent's, and goes on."""
        if self.session.process != os.getpid():
            return
        self._closed.set()
        self._ended()
        with self._state:
            for work in self._under_way:
                work.overtaken = True  # the ledger will be asked no more whether its answer may leave
        with self._looking:
            self._generation = None
            if self._watched and not self._gone.is_set():
                with suppress(S3TError):  # the thread tries again
                    _end(self._ledger, self.session)
                    self._gone.set()

    def _refuse_if_closed(self) -> None:
        if self._closed.is_set():
            raise ClosedError

    def _join(self, generation: int) -> None:
        with self._looking:
            self._refuse_if_closed()
            if self._generation is not None:
                return
            self._start_threads()  # first: whatever becomes of the row, somebody sees to its end
            if self._ledger.read_only:  # nobody knows of it, and so no deletion waits for it; it looks all the same
                self._gone.set()
                newest = self._ledger.snapshot()
            else:
                with self._ledger.writing() as transaction:
                    transaction.sessions.seen(self.session, generation=generation)
                    newest = transaction.snapshot()
            with self._state:
                # A deletion that was accepted before the session was known did not wait for it.
                self._newest = newest
                for work in self._under_way:
                    work.look(newest)
            self._generation = generation
            self._beat_at = time.monotonic() + BEAT_SECONDS

    def _start_threads(self) -> None:
        """They must not keep this from being dropped."""
        if self._watched:
            return
        this = weakref.ref(self)
        watch = (this, self._closed, self._gone, self._ledger, self.session)
        threading.Thread(target=_watch, args=watch, daemon=True, name="s3t-watch").start()
        beside = (this, self._closed, Presence.do_meanwhile)
        threading.Thread(target=_repeat, args=beside, daemon=True, name="s3t-meanwhile").start()
        self._watched = True

    def _tell(self, generation: int, *, moved: bool) -> None:
        """Tell the ledger that this session lives.

        Args:
            generation: what it has moved to.
            moved: whether that is newer than the ledger knows.
        """
        if self._ledger.read_only:
            self._generation = generation
            return
        self._beat_at = 0.0  # if the ledger refuses, the next look tries again
        with self._ledger.writing() as transaction:
            if moved or not transaction.sessions.beat(self.session):  # taken for dead, for this process slept
                transaction.sessions.seen(self.session, generation=generation)
            with self._state:  # within the transaction: no thread of ours makes a claim meanwhile
                claims, self._claims_in_doubt = set(self._claims), False
            transaction.sessions.release_all_but(claims, self.session)
            transaction.settle()  # another may have died that was waited for
        if moved:
            self._generation = generation
        self._beat_at = time.monotonic() + BEAT_SECONDS


def _end(ledger: Ledger, session: Session) -> None:
    with ledger.writing() as transaction:
        transaction.sessions.end([session.name])
        transaction.settle()


def _watch(
    presence: weakref.ref[Presence],
    closed: threading.Event,
    gone: threading.Event,
    ledger: Ledger,
    session: Session,
) -> None:
    """What the thread that looks does; once the session is closed or dropped, it sees to it that the ledger knows."""
    if not _repeat(presence, closed, Presence.look):
        return
    pause = BEAT_SECONDS if closed.is_set() else 0.0  # `close` tells the ledger itself, if that lets it
    while not gone.wait(pause):
        pause = BEAT_SECONDS
        try:
            with closing(ledger.again()) as own:  # the run's may be closed by now
                _end(own, session)
            gone.set()
        except (FsyncError, IntegrityError):  # the second: the ledger is gone, and the session with it
            break
        except Exception:
            logging.getLogger("s3t").debug("the ledger could not be told that a session has ended", exc_info=True)
    if not closed.is_set():
        ledger.close()


def _repeat(presence: weakref.ref[Presence], closed: threading.Event, act: Callable[[Presence], None]) -> bool:
    """What a thread does until the session is closed or dropped. False if this process may do nothing more."""
    level = logging.WARNING
    while not closed.wait(POLL_SECONDS):
        watched = presence()
        if watched is None:
            return True
        try:
            act(watched)
        except FsyncError:
            return False
        except S3TError:
            logging.getLogger("s3t").debug("the ledger could not be watched", exc_info=True)
        except Exception:  # whatever it is: without this thread, deletions would wait for this session for ever
            logging.getLogger("s3t").log(level, "watching for deletions failed, and is tried again", exc_info=True)
            level = logging.DEBUG  # ten times a second is too often
        del watched
    return True
