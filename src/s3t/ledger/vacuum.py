"""Removal of dead rows from PostgreSQL's tables."""

from __future__ import annotations

from sqlalchemy import Connection, text

from s3t.ledger import schema


def vacuum(connection: Connection) -> bool:
    """Remove dead rows from PostgreSQL's files; False if some had to stay, because an older snapshot may read them."""
    for table in _VACUUMED:
        connection.execute(text(f"VACUUM {table.name}"))
    dead = " + ".join(f"pg_stat_get_dead_tuples('{table.name}'::regclass)" for table in _VACUUMED)
    return int(connection.execute(text(f"SELECT {dead}")).scalar_one()) == 0


_VACUUMED = (
    schema.records,
    schema.slices,
    schema.stages,
    schema.durations,
    schema.erasing_records,
    schema.condemned,
    schema.claims,
    schema.held_names,
    schema.admitted,
)
