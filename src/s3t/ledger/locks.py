"""The run's lock: held while bytes are erased or orders are added, by one thread of one process of one host at a
time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from s3t.disk import storage_errors
from s3t.errors import StorageError

_ERASERS = 0x533355  # beside the schema's own number; another than the writers' lock


NEEDED_SECONDS = 600.0
"""How long who cannot go on without the lock waits for it: longer than slices of gigabytes take to be rewritten. Then
its holder is taken for stuck, and somebody has to look."""
_POLL_SECONDS = 0.01


class RunLock(Protocol):
    """May be taken again by the thread that holds it."""

    def acquire(self, *, wait: float) -> bool:
        """Take it; False if another still has it after so many seconds."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...


@contextmanager
def held(lock: RunLock, *, wait: float) -> Iterator[bool]:
    """The lock while within; whether it could be taken within so many seconds."""
    taken = lock.acquire(wait=wait)
    try:
        yield taken
    finally:
        if taken:
            lock.release()


@contextmanager
def needed(lock: RunLock, *, wait: float = NEEDED_SECONDS) -> Iterator[bool]:
    """The lock while within, for who cannot go on without it.

    Raises:
        StorageError: another held it all the time.
    """
    with held(lock, wait=wait) as mine:
        if not mine:
            raise StorageError(
                f"another process has held the run's lock for {wait:.0f} seconds: it erases, or adds orders, or it is "
                "stuck",
                remedy="see what it does (`s3t status` shows what is not erased yet), end it if it hangs",
            )
        yield mine


class _Nested:
    """Threads of this process first agree among themselves, so that only processes have to poll."""

    def __init__(self) -> None:
        self._mine = threading.RLock()
        self._depth = 0

    def acquire(self, *, wait: float) -> bool:
        until = time.monotonic() + wait
        if not self._mine.acquire(timeout=min(wait, threading.TIMEOUT_MAX)):
            return False
        try:
            if self._depth == 0 and not self._take(wait=max(0.0, until - time.monotonic())):
                self._mine.release()
                return False
        except BaseException:
            self._mine.release()
            raise
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        try:
            if self._depth == 0:
                self._give()
        finally:
            self._mine.release()

    def _take(self, *, wait: float) -> bool:
        raise NotImplementedError

    def _give(self) -> None:
        raise NotImplementedError


class FileRunLock(_Nested):
    """A locked file in the run folder, for processes of one host."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = FileLock(path, mode=0o600, thread_local=False)

    def _take(self, *, wait: float) -> bool:
        with storage_errors("locking the run"):
            try:
                self._file.acquire(timeout=wait, poll_interval=_POLL_SECONDS)
            except Timeout:
                return False
        return True

    def _give(self) -> None:
        self._file.release()


class DatabaseRunLock(_Nested):
    """An advisory lock of PostgreSQL, for all hosts; the server frees it when the connection is lost."""

    def __init__(self, engine: Engine, *, schema: str) -> None:
        super().__init__()
        self._engine = engine
        self._key = f"({_ERASERS}, hashtext('{schema}'))"
        self._connection: Connection | None = None

    def _take(self, *, wait: float) -> bool:
        connection, until = self._connect(), time.monotonic() + wait
        try:
            while not connection.execute(text(f"SELECT pg_try_advisory_lock{self._key}")).scalar_one():
                if time.monotonic() >= until:
                    connection.close()
                    return False
                time.sleep(_POLL_SECONDS)
        except DBAPIError as error:
            connection.invalidate()
            connection.close()
            raise StorageError(
                f"locking the run failed: the ledger's database refused ({error.orig})", remedy="see that it answers"
            ) from error
        self._connection = connection
        return True

    def _connect(self) -> Connection:
        try:
            return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        except DBAPIError as error:
            raise StorageError(
                f"the ledger's database does not answer ({error.orig})", remedy="see that it answers"
            ) from error

    def _give(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:  # by word: the end of a session is noticed a moment later, and others would find the lock held
            connection.execute(text(f"SELECT pg_advisory_unlock{self._key}"))
        except BaseException as error:
            connection.invalidate()  # ends the server's session, and with it the lock, whatever state it is in
            if not isinstance(error, DBAPIError):
                raise
        finally:
            connection.close()
