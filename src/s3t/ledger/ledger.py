"""The ledger's operations. A state and the record of it change in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import DatabaseError

from s3t.disk import storage_errors
from s3t.errors import IntegrityError, StorageError
from s3t.ledger import schema
from s3t.ledger.state import Located, RecordRow, SliceState, Snapshot
from s3t.partition import Place
from s3t.stages import Stage

# SQLite takes 32,766 variables in a statement.
_CHUNK = 10_000


class Ledger:
    """A run's ledger. Safe to share among threads; several processes may have it open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def create(cls, path: Path, *, slices: Mapping[Place, SliceState], records: Iterable[RecordRow]) -> Ledger:
        """A new ledger at generation 0.

        Raises:
            StorageError: the disk or the database refused.
        """
        with storage_errors("making the ledger"):
            path.touch(mode=0o600)  # SQLite gives its log the same mode
        ledger = cls.open(path)
        try:
            with ledger._transaction(writing=True) as connection:
                schema.metadata.create_all(connection)
                now = time.time()
                first = {"generation": 0, "accepted_at": now, "erased_at": now, "records": 0}
                connection.execute(insert(schema.generations), [first])
                connection.execute(insert(schema.slices), [_slice_row(*item) for item in slices.items()])
                for chunk in _chunks([_record_row(row) for row in records]):
                    connection.execute(insert(schema.records), chunk)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """The ledger in a file.

        Raises:
            IntegrityError: there is no such file.
        """
        if not path.is_file():
            raise IntegrityError(f"{path}: the run's ledger is missing; restore the run from a backup")
        return cls(schema.sqlite_engine(path))

    def close(self) -> None:
        """Release connections."""
        self._engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that no other writer overlaps. On leaving without an error it is durable.

        Raises:
            StorageError: the disk or the database refused; nothing of the transaction happened.
        """
        with self._transaction(writing=True) as connection:
            yield Transaction(connection)

    def snapshot(self) -> Snapshot:
        """The ledger at its present generation."""
        with self._transaction(writing=False) as connection:
            return Transaction(connection).snapshot()

    def generation(self) -> int:
        """The present generation; one more with every accepted deletion."""
        with self._transaction(writing=False) as connection:
            return _generation(connection)

    def unfinished(self) -> bool:
        """Whether an accepted deletion has bytes left to erase."""
        with self._transaction(writing=False) as connection:
            return any(
                connection.execute(select(table.c.shard).limit(1)).first() is not None
                for table in (schema.erasing_records, schema.erasing_artifacts)
            )

    @contextmanager
    def _transaction(self, *, writing: bool) -> Iterator[Connection]:
        try:
            with (
                self._engine.connect().execution_options(s3t_writing=writing) as connection,
                connection.begin(),
            ):
                yield connection
        except DatabaseError as error:
            remedy = "Free space or mend the disk, then run the same command again"
            if "locked" in str(error.orig):
                remedy = "Another process holds it; run the same command again later"
            raise StorageError(f"the ledger refused ({error.orig}); nothing was changed. {remedy}") from error


class Transaction:
    """What can be done to the ledger within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def snapshot(self) -> Snapshot:
        """The ledger as this transaction sees it."""
        run = self._connection.execute
        pending = {
            Place(*row)
            for row in run(select(schema.erasing_records.c.shard, schema.erasing_records.c.slice).distinct())
        }
        slices = {
            Place(row.shard, row.slice): SliceState(
                records=row.records,
                losses=row.losses,
                digest=row.digest,
                pending=Place(row.shard, row.slice) in pending,
            )
            for row in run(select(schema.slices))
        }
        stages = {Stage(row.shard, _parse_prefix(row.prefix)): row.key for row in run(select(schema.stages))}
        return Snapshot(generation=_generation(self._connection), slices=slices, stages=stages)

    def locate(self, *, records: Collection[bytes], subjects: Collection[bytes]) -> Located:
        """The present records among the requested, and which requested tokens were deleted before."""
        table = schema.records
        rows = {row.token: row for row in self._select_in(select(table), table.c.token, records)}
        rows |= {row.token: row for row in self._select_in(select(table), table.c.subject, subjects)}
        asked = [*records, *subjects]
        gone = self._select_in(select(schema.deleted.c.token), schema.deleted.c.token, asked)
        located = (
            RecordRow(token=row.token, subject=row.subject, place=Place(row.shard, row.slice), copies=row.copies)
            for row in rows.values()
        )
        return Located(
            rows=tuple(sorted(located, key=lambda row: row.token)),
            already=frozenset(row.token for row in gone),
        )

    def accept(self, rows: Sequence[RecordRow], *, losses: Mapping[Place, int], tainted: Mapping[Stage, str]) -> int:
        """Take records and the stages above them out of everything that serves or trains; the new generation.

        Their bytes are still there; what has to be erased is noted in the same transaction.

        Args:
            rows: the records.
            losses: how many records each slice loses.
            tainted: the live stages trained on those slices, and their keys.
        """
        run = self._connection.execute
        generation = _generation(self._connection) + 1
        entry = {"generation": generation, "accepted_at": time.time(), "records": sum(losses.values())}
        run(insert(schema.generations), [entry])
        tokens = [row.token for row in rows]
        for chunk in _chunks(tokens):
            run(delete(schema.records).where(schema.records.c.token.in_(chunk)))
        subjects = {row.subject for row in rows if row.subject is not None}
        left = self._select_in(select(schema.records.c.subject).distinct(), schema.records.c.subject, subjects)
        emptied = subjects - {row.subject for row in left}
        self._insert(schema.deleted, [{"token": token, "generation": generation} for token in (*tokens, *emptied)])
        self._insert(
            schema.erasing_records,
            [{"token": row.token, "shard": row.place.shard, "slice": row.place.slice} for row in rows],
        )
        for place, lost in losses.items():
            run(
                update(schema.slices)
                .where(*_at(schema.slices, place))
                .values(records=schema.slices.c.records - lost, losses=schema.slices.c.losses + 1)
            )
        hit = [
            {"stage_shard": stage.shard, "stage_prefix": _prefix_text(stage), "key": key}
            for stage, key in tainted.items()
        ]
        if hit:
            table = schema.stages
            row = table.c.shard == bindparam("stage_shard"), table.c.prefix == bindparam("stage_prefix")
            run(delete(table).where(*row), hit)
            self._insert(
                schema.erasing_artifacts, [{"shard": entry["stage_shard"], "key": entry["key"]} for entry in hit]
            )
        return generation

    def to_erase(self) -> tuple[dict[Place, set[bytes]], set[tuple[int, str]]]:
        """Record tokens by the slice whose file still holds them, and (shard, key) of tainted artifacts."""
        tokens: dict[Place, set[bytes]] = {}
        for row in self._connection.execute(select(schema.erasing_records)):
            tokens.setdefault(Place(row.shard, row.slice), set()).add(row.token)
        artifacts = {(row.shard, row.key) for row in self._connection.execute(select(schema.erasing_artifacts))}
        return tokens, artifacts

    def erased(self, digests: Mapping[Place, str], artifacts: Collection[tuple[int, str]]) -> None:
        """Note that slices were rewritten (their new digests) and artifacts removed."""
        run = self._connection.execute
        for place, digest in digests.items():
            run(update(schema.slices).where(*_at(schema.slices, place)).values(digest=digest))
            run(delete(schema.erasing_records).where(*_at(schema.erasing_records, place)))
        table = schema.erasing_artifacts
        for shard, key in artifacts:
            run(delete(table).where(table.c.shard == shard, table.c.key == key))
        run(update(schema.generations).where(schema.generations.c.erased_at.is_(None)).values(erased_at=time.time()))

    def commit_stage(
        self, stage: Stage, key: str, *, seen: Mapping[Place, SliceState], put: Callable[[], None]
    ) -> bool:
        """Store a trained stage, unless a slice under it has lost a record since it was `seen`, or was losing one.

        Args:
            stage: the stage.
            key: of its artifact.
            seen: every slice in its prefix, as it was before its training began.
            put: stores the artifact. Called within the transaction, so no deletion comes between.

        Returns:
            Whether it was stored.
        """
        run = self._connection.execute
        table, erasing = schema.slices, schema.erasing_records
        for place, state in seen.items():
            now = run(select(table.c.losses, table.c.digest).where(*_at(table, place))).one()
            # Between an acceptance and the end of its erasure the losses are new, but the file is the old one.
            pending = run(select(erasing.c.shard).where(*_at(erasing, place)).limit(1)).first() is not None
            if pending or state.pending or (now.losses, now.digest) != (state.losses, state.digest):
                return False
        put()
        row = {"shard": stage.shard, "prefix": _prefix_text(stage), "key": key}
        run(delete(schema.stages).where(*(schema.stages.c[name] == row[name] for name in ("shard", "prefix"))))
        run(insert(schema.stages), [row])
        return True

    def _insert(self, table: Any, rows: list[dict[str, Any]]) -> None:
        for chunk in _chunks(rows):
            self._connection.execute(insert(table).prefix_with("OR REPLACE", dialect="sqlite"), chunk)

    def _select_in(self, statement: Any, column: Any, values: Collection[Any]) -> list[Any]:
        return [
            row
            for chunk in _chunks(list(values))
            for row in self._connection.execute(statement.where(column.in_(chunk)))
        ]


def _generation(connection: Connection) -> int:
    return int(connection.execute(select(func.max(schema.generations.c.generation))).scalar_one())


def _at(table: Any, place: Place) -> tuple[Any, Any]:
    return table.c.shard == place.shard, table.c.slice == place.slice


def _slice_row(place: Place, state: SliceState) -> dict[str, Any]:
    return {
        "shard": place.shard,
        "slice": place.slice,
        "records": state.records,
        "losses": state.losses,
        "digest": state.digest,
    }


def _record_row(row: RecordRow) -> dict[str, Any]:
    return {
        "token": row.token,
        "subject": row.subject,
        "shard": row.place.shard,
        "slice": row.place.slice,
        "copies": row.copies,
    }


def _prefix_text(stage: Stage) -> str:
    return ",".join(map(str, stage.prefix))


def _parse_prefix(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _chunks(rows: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]
