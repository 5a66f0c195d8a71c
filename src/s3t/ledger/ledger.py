"""A run's ledger: transactions, snapshots, and the database's own upkeep."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import DBAPIError

from s3t.disk import note_failed_fsync, refuse_after_failed_fsync, storage_errors, sync_folder
from s3t.errors import ClosedError, ForkedError, FsyncError, IntegrityError, StorageError
from s3t.ledger import schema
from s3t.ledger.address import Address, PostgresAddress, kind_of
from s3t.ledger.engines import BUSY_TIMEOUT_SECONDS, engine_at
from s3t.ledger.filling import fill
from s3t.ledger.forks import FORKS
from s3t.ledger.locks import DatabaseRunLock, FileRunLock, RunLock
from s3t.ledger.migrating import create_tables, migrate
from s3t.ledger.state import Copy, RecordRow, SliceState, Snapshot
from s3t.ledger.transaction import Transaction
from s3t.partition import Place

_LONG_LOG_BYTES = 4 * 2**20
_CHECKPOINT_SECONDS = 2.0


class Ledger:
    """A run's ledger. Safe to share among threads; several processes may have it open, on PostgreSQL several hosts."""

    def __init__(self, address: Address, engine: Engine) -> None:
        self._address = address
        self._engine = engine
        self._process = os.getpid()
        self._turn = threading.Lock()  # threads queue here, fairly, and not in the database, which would poll
        self._known: Snapshot | None = None
        self._long_log = _LONG_LOG_BYTES
        self._closed = False
        if isinstance(address, Path):
            FORKS.enter(self)
            # Connections do not outlive what a fork asks to let go of them, as those of a cycle would.
            weakref.finalize(self, engine.dispose).atexit = False

    @classmethod
    def create(
        cls,
        address: Address,
        *,
        slices: Mapping[Place, SliceState],
        records: Iterable[RecordRow],
        copies: Sequence[Copy] = (),
    ) -> Ledger:
        """A new ledger at generation 0.

        Args:
            address: where it shall be.
            slices: every slice.
            records: every record.
            copies: files outside the run that hold records.

        Raises:
            StorageError: the disk or the database refused; nothing is left.
        """
        if isinstance(address, Path):
            with storage_errors("making the ledger"):
                address.touch(mode=0o600)  # SQLite gives its log the same mode
        ledger, made = cls(address, engine_at(address)), False
        try:
            with ledger._transaction(writing=True) as connection:
                create_tables(connection, address)
                made = True
                fill(connection, slices, records, copies)
        except BaseException:
            with suppress(StorageError):
                if made:  # a lost connection does not tell whether the end was reached
                    ledger.drop()
            ledger.close()
            raise
        return ledger

    @classmethod
    def open(cls, address: Address) -> Ledger:
        """The ledger at an address; one that an older version wrote is brought up to date.

        Raises:
            IntegrityError: there is none.
            RunFolderError: a newer version wrote it.
            StorageError: the disk or the database refused.
        """
        ledger = cls._at(address)
        try:
            with ledger._transaction(writing=False) as connection:
                current = migrate(connection, address, check=True)
            if not current:
                with ledger._transaction(writing=True) as connection:
                    migrate(connection, address)
            if isinstance(address, Path):
                with storage_errors("opening the ledger"):
                    sync_folder(address.parent)  # the name of SQLite's log; SQLite does it, but hides whether it could
        except BaseException:
            ledger.close()
            raise
        return ledger

    @property
    def kind(self) -> str:
        """Which database it is in, in words: SQLite, or PostgreSQL and its host."""
        return kind_of(self._address)

    @classmethod
    def made_at(cls, address: Address) -> float:
        """When the ledger at an address was made, in seconds since the epoch; whatever version wrote it.

        Raises:
            IntegrityError: there is none.
            StorageError: the disk or the database refused.
        """
        ledger, table = cls._at(address), schema.generations
        try:
            with ledger._transaction(writing=False) as connection:
                first = select(table.c.accepted_at).where(table.c.generation == 0)
                return float(connection.execute(first).scalar_one())
        finally:
            ledger.close()

    @classmethod
    def _at(cls, address: Address) -> Ledger:
        if isinstance(address, Path) and not address.is_file():
            raise IntegrityError(f"{address}: the run's ledger is missing; restore the run from a backup")
        return cls(address, engine_at(address))

    def close(self) -> None:
        """Write SQLite's log back and release connections; after a fork those are the parent's, and left alone.

        Who uses it afterwards is told so. May be called twice.
        """
        if os.getpid() != self._process:
            self._engine.dispose(close=False)
            return
        self._closed = True
        with self._in_use():
            if self.let_go():
                self._engine.pool.dispose()  # a thread that was overtaken may still connect; that is closed afterwards
                FORKS.leave(self)

    def let_go(self) -> bool:
        """Write SQLite's log back and release connections; they are made again when they are needed.

        Returns:
            Whether none is left open.
        """
        if isinstance(self._address, Path) and self._address.is_file():
            try:
                self._checkpoint("PASSIVE")  # SQLite does it, too, but hides whether it could
            except FsyncError:
                return False  # nor may SQLite try it again, as it would when the last connection closes
            except StorageError:  # nothing is lost: the log stays beside the database
                logging.getLogger("s3t").debug("the ledger's log could not be written back", exc_info=True)
        self._engine.dispose()
        return True

    def again(self) -> Ledger:
        """Another handle on it, also if this one is closed.

        Raises:
            IntegrityError: it is gone.
        """
        return self._at(self._address)

    def drop(self) -> None:
        """Remove a ledger that no run has, if it is there: PostgreSQL's tables. A SQLite file goes with its folder."""
        if isinstance(self._address, PostgresAddress):
            with self._transaction(writing=True) as connection:
                connection.execute(text(f'DROP SCHEMA IF EXISTS "{self._address.schema}" CASCADE'))

    @classmethod
    def drop_at(cls, address: Address) -> None:
        """Remove the ledger at an address, if it is there, as one that no run has.

        Raises:
            StorageError: the database refused.
        """
        ledger = cls(address, engine_at(address))
        try:
            ledger.drop()
        finally:
            ledger.close()

    def lock(self, path: Path) -> RunLock:
        """The run's lock: the file at `path`, or one of the database's, where hosts share that."""
        if isinstance(self._address, Path):
            return FileRunLock(path)
        return DatabaseRunLock(self._engine, schema=self._address.schema)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that no other writer overlaps. On leaving without an error it is durable.

        Raises:
            StorageError: the disk or the database refused; unless the message says that nobody can know, nothing of the
                transaction happened.
            ClosedError: this ledger was closed.
        """
        with self._transaction(writing=True) as connection:
            yield Transaction(connection, known=self._known)
        if isinstance(self._address, Path) and _size_of_log(self._address) > self._long_log:
            try:
                self._checkpoint("PASSIVE")
            except FsyncError:
                raise
            except StorageError:  # the transaction is durable all the same
                logging.getLogger("s3t").debug("the ledger's log could not be written back", exc_info=True)
            self._long_log = _size_of_log(self._address) + _LONG_LOG_BYTES  # SQLite begins it anew, but at its length

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that sees one state and changes nothing."""
        with self._transaction(writing=False) as connection:
            yield Transaction(connection, known=self._known)

    def snapshot(self, *, anew: bool = False) -> Snapshot:
        """The ledger at its present generation. Cheap if nothing has changed since the last.

        Args:
            anew: read everything, whether or not the ledger says that it has changed.
        """
        if anew:
            self._known = None
        with self.reading() as transaction:
            snapshot = transaction.snapshot()
        self._known = snapshot
        return snapshot

    def confirm(self) -> None:
        """Make everything durable that this ledger shows: who wrote it may have been killed before it was on the disk.

        Called before anything is done that cannot be undone and that rests on what another process wrote.

        Raises:
            StorageError: the disk or the database refused.
        """
        with self.writing() as transaction:
            transaction.touch()

    def key_destroyed_at(self) -> float | None:
        """When the run's secret was destroyed, in seconds since the epoch; None if it was not."""
        with self.reading() as transaction:
            return transaction.key_destroyed_at()

    def wipe(self) -> bool:
        """Let go of what the database keeps of rows that were changed or removed: SQLite's log, PostgreSQL's dead rows.

        Returns:
            Whether it could be done; a reader of the log may be in the way for longer than a moment.

        Raises:
            StorageError: the disk or the database refused.
        """
        self._refuse_if_closed()
        if isinstance(self._address, Path):
            return self._checkpoint("TRUNCATE")
        with self._refusals(), self._engine.connect() as connection:
            bare = connection.execution_options(isolation_level="AUTOCOMMIT")
            if _vacuum(bare):
                return True
            # Rows that others have changed meanwhile are dead, too. While none may, what stays is kept for a reader.
            with self._transaction(writing=True):
                until = time.monotonic() + _CHECKPOINT_SECONDS
                while not (done := _vacuum(bare)) and time.monotonic() < until:
                    time.sleep(0.05)
                return done

    def _checkpoint(self, mode: str) -> bool:
        until = time.monotonic() + _CHECKPOINT_SECONDS
        with self._in_use(), self._turn, self._refusals(), self._engine.connect() as connection:
            raw = connection.connection.cursor()  # no transaction: a checkpoint within one is refused
            try:
                raw.execute("PRAGMA busy_timeout=50")
                while True:
                    busy, *_ = raw.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
                    if not busy or time.monotonic() > until:
                        return not busy
                    time.sleep(0.01)
            finally:
                raw.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")
                raw.close()

    @contextmanager
    def _transaction(self, *, writing: bool) -> Iterator[Connection]:
        self._refuse_after_fork()
        ending = False
        with self._in_use(), self._turn if writing else nullcontext():
            self._refuse_if_closed()
            refuse_after_failed_fsync()
            try:
                with self._engine.connect().execution_options(s3t_writing=writing) as connection:
                    begun = connection.begin()
                    try:
                        yield connection
                    except BaseException:
                        begun.rollback()
                        raise
                    if writing:
                        refuse_after_failed_fsync()  # it may have failed in another thread meanwhile
                    ending = True
                    begun.commit()
            except DBAPIError as error:
                raise self._refusal(error, ending=ending and writing) from error

    def _in_use(self) -> AbstractContextManager[None]:
        return FORKS.using() if isinstance(self._address, Path) else nullcontext()

    def _refuse_after_fork(self) -> None:
        if os.getpid() != self._process:
            raise ForkedError(
                f"the run was opened in process {self._process}, and this is {os.getpid()}, forked off from it; open "
                "the run again here (`s3t.Run.open`), after the fork"
            )

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClosedError

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        refuse_after_failed_fsync()
        try:
            yield
        except (DBAPIError, sqlite3.Error) as error:  # the second from a cursor of SQLite's own
            raise self._refusal(error) from error

    def _refusal(self, error: Exception, *, ending: bool = False) -> StorageError:
        """What to tell of an error of the database."""
        reason = getattr(error, "orig", None) or error
        if "FSYNC" in getattr(reason, "sqlite_errorname", ""):
            return note_failed_fsync(f"the ledger ({reason})")
        state = getattr(reason, "sqlstate", None)
        if ending and state != _THROWN_OUT and not isinstance(self._address, Path):
            return StorageError(
                f"the ledger's database failed while it committed ({reason}); whether the change was made nobody can "
                "know. Run the same command again: what was deleted already is reported as such"
            )
        remedy = "Free space or mend the disk, then run the same command again"
        if state == _LOCK_TIMEOUT or (isinstance(self._address, Path) and "locked" in str(reason)):
            remedy = "Another process holds it; run the same command again later"
        elif not isinstance(self._address, Path):
            remedy = f"See that the database answers ({self._address}), then run the same command again"
        return StorageError(f"the ledger refused ({reason}); nothing was changed. {remedy}")


def _vacuum(connection: Connection) -> bool:
    """Take dead rows out of PostgreSQL's files; False if some had to stay, which an older snapshot may still read."""
    for table in _VACUUMED:
        connection.execute(text(f"VACUUM {table.name}"))
    dead = " + ".join(f"pg_stat_get_dead_tuples('{table.name}'::regclass)" for table in _VACUUMED)
    return int(connection.execute(text(f"SELECT {dead}")).scalar_one()) == 0


def _size_of_log(database: Path) -> int:
    try:
        return database.with_name(database.name + "-wal").stat().st_size
    except OSError:
        return 0


_LOCK_TIMEOUT = "55P03"
_THROWN_OUT = "25P03"  # PostgreSQL's word that it ended a transaction that was idle for too long: before any commit
_BUSY_MILLISECONDS = 1000 * BUSY_TIMEOUT_SECONDS
_VACUUMED = (
    schema.records,
    schema.slices,
    schema.stages,
    schema.erasing_records,
    schema.erasing_artifacts,
)
