"""The run's lock: held while bytes are erased or orders are added, by one thread of one process of one host."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from s3t.errors import StorageError
from s3t.store.disk import OpenedFolder, storage_errors

_LOCK = 0x533355  # first number of PostgreSQL's advisory lock; the second is the schema's

NEEDED_SECONDS = 600.0
"""Time after which the lock's holder counts as stuck: longer than new versions of slices of gigabytes take."""
_POLL_SECONDS = 0.01

Give: TypeAlias = Callable[[], object]
"""Gives a lock back."""
Take: TypeAlias = Callable[[], Give | None]
"""Takes a lock; None if another process has it."""


class RunLock:
    """The run's lock. The thread that holds it may take it again.

    Threads of this process first agree among themselves, so that only processes have to poll. `check` raises
    MovedError if the run was moved since it was opened; it is asked once the lock is taken.
    """

    def __init__(self, take: Take, *, check: Callable[[], object] = lambda: None) -> None:
        self._take = take
        self._check = check
        self._threads = threading.RLock()
        self._depth = 0

    @contextmanager
    def try_hold(self, *, wait: float) -> Iterator[bool]:
        """Hold the lock while within; yields False if it could not be taken within `wait` seconds."""
        until = time.monotonic() + wait
        if not self._threads.acquire(timeout=min(wait, threading.TIMEOUT_MAX)):
            yield False
            return
        with ExitStack() as held:
            held.callback(self._threads.release)
            if self._depth == 0:
                while (give := self._take()) is None:
                    if time.monotonic() >= until:
                        held.close()
                        yield False
                        return
                    time.sleep(_POLL_SECONDS)
                held.callback(give)
                self._check()
            self._depth += 1
            try:
                yield True
            finally:
                self._depth -= 1


@contextmanager
def hold(lock: RunLock) -> Iterator[bool]:
    with lock.try_hold(wait=NEEDED_SECONDS) as taken:
        if not taken:
            raise StorageError(
                f"another process has held the run's lock for {NEEDED_SECONDS:.0f} seconds: it erases, or adds "
                "records or orders, or it is stuck",
                remedy="see what it does (`s3t status` shows what is not erased yet), end it if it hangs",
            )
        yield True


def file_lock(path: Path) -> Take:
    """A locked file (`flock`) in the run folder, for processes of one host. It makes the file, and no folder.

    The folder is known again if it was moved.
    """
    run = OpenedFolder.of(path.parent)

    def take() -> Give | None:
        with storage_errors("locking the run"):
            with run.descriptor() as folder:
                file = os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=folder)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BaseException as error:
                os.close(file)
                if isinstance(error, BlockingIOError):
                    return None
                raise

        def give() -> None:
            fcntl.flock(file, fcntl.LOCK_UN)  # a forked child may have the descriptor, too
            os.close(file)

        return give

    return take


def database_lock(engine: Engine, *, schema: str) -> Take:
    """An advisory lock of PostgreSQL, for all hosts; the server frees it when the connection is lost."""
    key = f"({_LOCK}, hashtext('{schema}'))"

    def take() -> Give | None:
        try:
            connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            try:
                taken = connection.execute(text(f"SELECT pg_try_advisory_lock{key}")).scalar_one()
            except BaseException:
                connection.invalidate()  # ends the server's session, and with it a lock that it may have
                connection.close()
                raise
        except DBAPIError as error:
            raise StorageError(
                f"locking the run failed: the ledger's database refused ({error.orig})", remedy="see that it answers"
            ) from error
        if not taken:
            connection.close()
            return None

        def give() -> None:
            try:  # explicitly: the server notices the end of a session a moment later
                connection.execute(text(f"SELECT pg_advisory_unlock{key}"))
            except BaseException as error:
                connection.invalidate()  # ends the server's session, and with it the lock, whatever state it is in
                if not isinstance(error, DBAPIError):
                    raise
            finally:
                connection.close()

        return give

    return take
