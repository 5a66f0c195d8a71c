"""Ledgers and run folders as s3t 0.1 left them: written down here, for its code is gone."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import yaml
from sqlalchemy import Connection, text

from s3t.stages.key import AS_ONCE

TABLES = (
    "generations (generation INTEGER NOT NULL, accepted_at FLOAT NOT NULL, erased_at FLOAT, records INTEGER NOT NULL, "
    "PRIMARY KEY (generation))",
    "slices (shard INTEGER NOT NULL, slice INTEGER NOT NULL, records INTEGER NOT NULL, losses INTEGER NOT NULL, "
    "digest VARCHAR(64) NOT NULL, PRIMARY KEY (shard, slice))",
    "records (token BLOB NOT NULL, subject BLOB, shard INTEGER NOT NULL, slice INTEGER NOT NULL, "
    "copies INTEGER NOT NULL, PRIMARY KEY (token), FOREIGN KEY(shard, slice) REFERENCES slices (shard, slice))",
    "deleted (token BLOB NOT NULL, generation INTEGER NOT NULL, PRIMARY KEY (token))",
    "erasing_records (token BLOB NOT NULL, shard INTEGER NOT NULL, slice INTEGER NOT NULL, PRIMARY KEY (token))",
    'erasing_artifacts (shard INTEGER NOT NULL, "key" VARCHAR(64) NOT NULL, PRIMARY KEY (shard, "key"))',
    'stages (shard INTEGER NOT NULL, prefix VARCHAR NOT NULL, "key" VARCHAR(64) NOT NULL, PRIMARY KEY (shard, prefix))',
)
"""As SQLAlchemy made them from the schema of that version."""
INDEX = "CREATE INDEX records_by_subject ON records (subject)"
COLUMNS = {
    "generations": "generation, accepted_at, erased_at, records",
    "slices": "shard, slice, records, losses, digest",
    "records": "token, subject, shard, slice, copies",
    "deleted": "token, generation",
    "erasing_records": "token, shard, slice",
    "erasing_artifacts": "shard, key",
    "stages": "shard, prefix, key",
}


def make_tables(connection: Connection) -> None:
    """The tables of 0.1, on SQLite as they were, on PostgreSQL as they would have been."""
    binary = "BYTEA" if connection.dialect.name == "postgresql" else "BLOB"
    for table in TABLES:
        connection.execute(text(f"CREATE TABLE {table.replace('BLOB', binary)}"))
    connection.execute(text(INDEX))


def set_back(run: Path) -> None:
    """Make of a closed run folder, trained as in 0.1, what 0.1 would have left in its place."""
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    training = recipe["training"]
    assert AS_ONCE.items() <= training.items(), "trained otherwise than in 0.1"
    for name in (*AS_ONCE, "cache_memory", "cache_disk"):
        del training[name]
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    path = run / "run.json"
    described = json.loads(path.read_text()) | {"format": 1, "version": "0.1.0"}
    for name in ("run", "ledger", "recipe_check", "check"):
        described.pop(name, None)
    path.write_text(json.dumps(described, indent=2))
    (run / "erasures").unlink(missing_ok=True)
    ledger = run / "ledger.sqlite"
    with sqlite3.connect(ledger) as now:
        rows = {table: now.execute(f"SELECT {columns} FROM {table}").fetchall() for table, columns in COLUMNS.items()}
    now.close()
    for file in run.glob("ledger.sqlite*"):
        file.unlink()
    with sqlite3.connect(ledger) as then:
        then.execute("PRAGMA journal_mode=WAL")
        for table in TABLES:
            then.execute(f"CREATE TABLE {table}")
        then.execute(INDEX)
        for table, columns in COLUMNS.items():
            values = ", ".join("?" for _ in columns.split(", "))
            then.executemany(f"INSERT INTO {table} VALUES ({values})", rows[table])
    then.close()
