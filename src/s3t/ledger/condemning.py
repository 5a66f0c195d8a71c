"""What shall not stay in the store is condemned: noted, so that whoever erases next removes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import delete, func, select

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.statements import CHANGES, WALKED, at
from s3t.partition import Place

QUEUES = (schema.erasing_artifacts, schema.erasing_versions)
"""What is condemned."""


def condemn(
    rows: Rows, *, artifacts: Collection[tuple[int, str]] = (), versions: Collection[tuple[Place, str]] = ()
) -> None:
    """Note that artifacts, (shard, key), and versions of slices are nobody's. Whatever was deleted may be in them.

    So no deletion that is not erased yet counts as erased before every place was gone through once more.
    """
    if not artifacts and not versions:
        return
    table, log = schema.erasing_artifacts, schema.generations
    rows.upsert(table, ({"shard": shard, "key": key, "generation": 0} for shard, key in sorted(artifacts)))
    add_versions(rows, versions, generation=0)
    oldest = select(func.min(log.c.generation)).where(log.c.erased_at.is_(None))
    unfinished = rows.connection.execute(oldest).scalar_one()
    if unfinished is not None:
        walk_again(rows, unfinished)
    rows.write_note(CHANGES, to=rows.note(CHANGES) + 1)


def add_versions(rows: Rows, versions: Iterable[tuple[Place, str]], *, generation: int) -> None:
    """Enter versions of slices into their queue."""
    entries = (
        {"shard": place.shard, "slice": place.slice, "digest": digest, "generation": generation}
        for place, digest in versions
    )
    rows.upsert(schema.erasing_versions, entries)


def take_versions(rows: Rows, versions: Iterable[tuple[Place, str]]) -> None:
    """Take versions of slices from their queue."""
    table = schema.erasing_versions
    for place, digest in versions:
        rows.connection.execute(delete(table).where(*at(table, place), table.c.digest == digest))


def walk_again(rows: Rows, generation: int) -> None:
    """Note that all places are to be gone through (again) for a generation and those after it."""
    rows.write_note(WALKED, to=min(generation - 1, rows.note(WALKED)))


def nobodys_left(rows: Rows) -> bool:
    """Whether anything that is condemned and of no generation may be left."""
    return any(
        rows.connection.execute(select(queue.c.generation).where(queue.c.generation == 0).limit(1)).first()
        for queue in QUEUES
    )
