"""Tells whether a SQLite file has changed since the last look. It costs a tenth of reading a row."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from contextlib import suppress
from pathlib import Path

from s3t.errors import ClosedError


class DataVersion:
    """SQLite's `PRAGMA data_version`, on a connection of its own.

    Two values are different if anybody else, of this process or another, has committed in between, or has put another
    file in its place. SQLite's value counts for its connection alone, and the connection's own commits do not change
    it; this one makes none. Safe to share among threads.
    """

    def __init__(self, database: Path, *, timeout: float) -> None:
        self._database = database
        self._timeout = timeout
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None  # made when it is needed first
        self._file: tuple[int, int] | None = None  # the file that it is to
        self._made = 0  # connections so far
        self._closed = False

    def now(self) -> tuple[int, int]:
        """The present value.

        Raises:
            ClosedError: this was closed.
            sqlite3.Error: the file cannot be read.
        """
        with self._turn:
            if self._closed:
                raise ClosedError
            if self._connection is not None and self._file_there() != self._file:
                self._connection.close()
                self._connection = None
            if self._connection is None:
                self._file, self._made = self._file_there(), self._made + 1
                address = f"{self._database.absolute().as_uri()}?mode=rw"
                self._connection = sqlite3.connect(
                    address, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False
                )
                # A connection lies in a reference cycle, and would stay open until that is collected.
                weakref.finalize(self, self._connection.close).atexit = False
            cursor = self._connection.execute("PRAGMA data_version")
            try:
                return self._made, int(cursor.fetchone()[0])
            finally:
                cursor.close()

    def _file_there(self) -> tuple[int, int] | None:
        with suppress(OSError):
            found = self._database.stat()
            return found.st_dev, found.st_ino
        return self._file  # it was removed: the connection's is all there is

    def close(self) -> None:
        """Close the connection. May be called twice."""
        with self._turn:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None
