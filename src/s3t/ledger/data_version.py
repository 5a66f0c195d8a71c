"""Tells whether a SQLite file has changed since the last look. It costs a tenth of reading a row."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from pathlib import Path

from s3t.errors import ClosedError


class DataVersion:
    """SQLite's `PRAGMA data_version`, on a connection of its own.

    Two values are different if anybody else, of this process or another, has committed in between. The connection's own
    commits do not change SQLite's value; this one makes none. Safe to share among threads.
    """

    def __init__(self, database: Path, *, timeout: float) -> None:
        self._database = database
        self._timeout = timeout
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None  # made when it is needed first
        self._closed = False

    def now(self) -> int:
        """The present value."""
        with self._turn:
            if self._closed:
                raise ClosedError
            if self._connection is None:
                address = f"{self._database.absolute().as_uri()}?mode=rw"
                self._connection = sqlite3.connect(
                    address, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False
                )
                # A connection lies in a reference cycle, and would stay open until that is collected.
                weakref.finalize(self, self._connection.close).atexit = False
            cursor = self._connection.execute("PRAGMA data_version")
            try:
                return int(cursor.fetchone()[0])
            finally:
                cursor.close()

    def close(self) -> None:
        """Close the connection. May be called twice."""
        with self._turn:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None
