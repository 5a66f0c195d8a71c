"""The queue of what is to be erased: artifacts and versions of slices that must not stay in the store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import func, select

from s3t.core import Place
from s3t.ledger import schema
from s3t.ledger.rows import WALKED, Rows


def condemn(
    rows: Rows,
    *,
    artifacts: Collection[tuple[int, str]] = (),
    versions: Collection[tuple[Place, str]] = (),
    generation: int = 0,
) -> None:
    """Put artifacts, (shard, key), and versions of slices into the queue; current versions are left out.

    `generation` is the deletion that condemned them. With 0 they may hold any deleted record: no unfinished deletion
    then counts as erased before every place was gone through once more.
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


def walk_again(rows: Rows, generation: int | None) -> None:
    """Note that erasure has to go through all places (again) for a generation and those after it."""
    if generation is not None and generation <= rows.note(WALKED):
        rows.write_note(WALKED, to=generation - 1)
