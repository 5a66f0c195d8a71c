"""A process lets go of SQLite before it forks, so that its child may open the same ledger.

SQLite counts in its own memory what a process has locked, and asks the system for the first lock of a kind only. A
child is born with those counts and without the locks: what it opened itself would lock nothing, and its parent, closing
its last connection, would remove the log that the child writes to, with the deletions in it. So no connection is open
while a process forks. Where one had to be, the child is told that it cannot use SQLite.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

import filelock  # noqa: F401  # its hooks come before ours, so that no lock waits while ours wait for transactions

from s3t.errors import ForkedError

_PATIENCE_SECONDS = 10.0  # not forever: who uses a ledger may itself wait for the thread that forks


class User(Protocol):
    """What has connections to SQLite."""

    def let_go(self) -> bool:
        """Close connections, none of which is in use. They are made again when they are needed.

        Returns:
            Whether none is left open.
        """


class Forks:
    """Uses of SQLite's connections, and forks, which wait until there is none and keep new ones waiting meanwhile."""

    def __init__(self) -> None:
        self._left_open = False
        self._born_with_connections = False
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._uses: Counter[int] = Counter()  # by thread; one may be within another
        self._users: WeakSet[User] = WeakSet()
        self._forker: int | None = None
        self._again = 0  # forks of a signal's handler while its thread is about to fork
        self._over = True

    def enter(self, user: User) -> None:
        """Tell of connections that may be made from now on.

        Raises:
            ForkedError: this process was forked off while its parent had connections.
        """
        if self._born_with_connections:
            raise ForkedError(
                "this process was forked off while its parent was using a ledger in SQLite, whose locks do not survive "
                "that; fork while nothing of s3t is under way, or start processes with multiprocessing's `spawn`"
            )
        with self._changed:
            self._users.add(user)

    def leave(self, user: User) -> None:
        """Tell that no connections will be made any more, and none is left."""
        with self._changed:
            self._users.discard(user)

    @contextmanager
    def using(self) -> Iterator[None]:
        """A time in which connections are in use."""
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: self._forker in (None, me) or self._uses[me] > 0)
            self._uses[me] += 1
        try:
            yield
        finally:
            with self._changed:
                self._uses[me] -= 1
                if self._uses[me] <= 0:  # less in a child that was forked off meanwhile, which knows of no use
                    del self._uses[me]
                self._changed.notify_all()

    def before(self) -> None:
        """Wait until nothing is in use, and close all connections."""
        me = threading.get_ident()
        with self._changed:
            self._over = False
            if self._forker == me:
                self._again += 1
                return
            if self._uses[me]:  # there is nothing to wait for; the child sees that this thread is no `_forker`
                return
            self._changed.wait_for(lambda: self._forker is None)
            self._forker, self._again, self._left_open = me, 0, True
            free = self._changed.wait_for(lambda: not self._uses, _PATIENCE_SECONDS)
            users = tuple(self._users)
        try:
            self._left_open = not (free and all(user.let_go() for user in users))
        except Exception:  # it would be lost in the interpreter, and the fork goes on
            logging.getLogger("s3t").debug("connections could not be closed before a fork", exc_info=True)

    def after_in_parent(self) -> None:
        """Go on as before."""
        with self._changed:
            self._over = True
            if self._forker != threading.get_ident():
                return
            if self._again:
                self._again -= 1
                return
            self._forker = None
            self._changed.notify_all()

    def after_interrupt(self) -> None:
        """Go on as before, also if an interrupt came at the first step of the other."""
        if not self._over:
            self.after_in_parent()

    def after_in_child(self) -> None:
        """Begin anew: of all threads only the one that forked is here."""
        self._born_with_connections |= self._left_open or self._forker != threading.get_ident()
        self._begin()


FORKS = Forks()
"""The process's own."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=FORKS.before, after_in_parent=FORKS.after_in_parent, after_in_child=FORKS.after_in_child)
    os.register_at_fork(after_in_parent=FORKS.after_interrupt)


def refuse_after_fork(process: int) -> None:
    """Raises ForkedError if this process is another than the one that opened the run."""
    if os.getpid() != process:
        raise ForkedError(
            f"the run was opened in process {process}, and this is {os.getpid()}, forked off from it; open "
            "the run again here (`s3t.Run.open`), after the fork"
        )
