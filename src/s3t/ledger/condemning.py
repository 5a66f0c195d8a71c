"""The queue of what is to be erased: artifacts and versions of slices that must not stay in the store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import bindparam, delete, func, select

from s3t.core import Place
from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.statements import WALKED


def condemn(
    rows: Rows,
    *,
    artifacts: Collection[tuple[int, str]] = (),
    versions: Collection[tuple[Place, str]] = (),
    generation: int = 0,
) -> None:
    """Put artifacts, (shard, key), and versions of slices into the queue; current versions are left out.

    Args:
        generation: the deletion that condemned them, or 0. With 0 they may hold any deleted record. So no unfinished
            deletion counts as erased before every place was gone through once more.
    """
    current = {(Place(row.shard, row.slice), row.digest) for row in rows.read(schema.slices)} if versions else set()
    queue = [artifact_entry(shard, key, generation) for shard, key in artifacts]
    queue += [
        {"shard": place.shard, "slice": place.slice, "name": digest, "generation": generation}
        for place, digest in {*versions} - current
    ]
    if not queue:
        return
    rows.upsert(schema.condemned, queue)
    if generation == 0:
        log = schema.generations
        oldest = select(func.min(log.c.generation)).where(log.c.erased_at.is_(None))
        walk_again(rows, rows.connection.execute(oldest).scalar_one())
    rows.note_change()


def artifact_entry(shard: int, key: str, generation: int) -> dict[str, Any]:
    """The row of the queue for an artifact."""
    return {"shard": shard, "slice": None, "name": key, "generation": generation}


def note_removed(
    rows: Rows, *, artifacts: Collection[tuple[int, str]] = (), versions: Collection[tuple[Place, str]] = ()
) -> None:
    """Take artifacts and versions of slices out of the queue."""
    table = schema.condemned
    names = [*artifacts, *((place.shard, digest) for place, digest in versions)]
    if names:
        row = table.c.shard == bindparam("at_shard"), table.c.name == bindparam("at_name")
        values = [{"at_shard": shard, "at_name": name} for shard, name in names]
        rows.connection.execute(delete(table).where(*row), values)
        rows.note_change()


def walk_again(rows: Rows, generation: int | None) -> None:
    """Note that erasure has to go through all places (again) for a generation and those after it."""
    if generation is not None and generation <= rows.note(WALKED):
        rows.write_note(WALKED, to=generation - 1)
