"""Trained stages come into use in two steps: announced before the artifact is put, committed once it is there.

Neither transaction writes a file. The announcement names what a killed trainer has put in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from s3t.core import Place, Stage
from s3t.errors import KeyDestroyedError
from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.sessions import Session, Sessions
from s3t.ledger.state import SliceState, Snapshot
from s3t.ledger.statements import COMMITS, KEY_DESTROYED, REMOVALS, prefix_text


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A stage that a session has trained, and what it was trained on."""

    stage: Stage
    """The session has claimed it."""
    key: str
    """Key of its artifact."""
    manifest: str
    """SHA-256 of its manifest."""
    session: Session
    seen: Mapping[Place, SliceState]
    """Every slice of its prefix, as it was before training began."""
    parents: Mapping[Stage, str]
    """The stages before it, and their keys."""
    seconds: float
    """Duration of its training."""


def announce(rows: Rows, sessions: Sessions, snapshot: Snapshot, trained: Trained) -> bool:
    """Note that an artifact is about to be put; False if it could not be committed."""
    table = schema.condemned  # an artifact that is being erased under that key would be erased after it is put
    erasing = rows.read(table, table.c.shard == trained.stage.shard, table.c.name == trained.key)
    return (
        not erasing
        and _may_be_committed(rows, snapshot, trained)
        and sessions.announce(trained.stage, trained.key, trained.session)
    )


def commit(rows: Rows, sessions: Sessions, snapshot: Snapshot, trained: Trained) -> bool:
    """Take a stage into use; False if that cannot be: no stage then names its artifact."""
    stage, key = trained.stage, trained.key
    if not _may_be_committed(rows, snapshot, trained) or not sessions.has_announced(stage, key, trained.session):
        return False
    row = {"shard": stage.shard, "prefix": prefix_text(stage), "key": key, "manifest": trained.manifest}
    rows.upsert(schema.stages, [row])
    rows.upsert(schema.durations, [{"shard": row["shard"], "prefix": row["prefix"], "seconds": trained.seconds}])
    rows.raise_note(REMOVALS if stage in snapshot.stages else COMMITS)
    sessions.release(stage, trained.session)
    rows.note_change()
    return True


def _may_be_committed(rows: Rows, snapshot: Snapshot, trained: Trained) -> bool:
    """True if its slices have lost no record since it was trained, and the stages before it are alive."""
    if rows.note(KEY_DESTROYED):
        raise KeyDestroyedError("the run's secret was destroyed meanwhile: it cannot train any more")
    return snapshot.still_as(trained.seen) and snapshot.still_has(trained.parents)
