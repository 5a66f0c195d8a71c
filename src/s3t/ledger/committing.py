"""Trained stages come into use in two steps: announced before the artifact is put, committed once it is there.

No file is written in either transaction. What a killed trainer has put in between is known by its announcement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from s3t.errors import KeyDestroyedError
from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.sessions import Session, Sessions
from s3t.ledger.state import SliceState, Snapshot
from s3t.ledger.statements import KEY_DESTROYED, prefix_text
from s3t.partition import Place
from s3t.stages import Stage


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A stage that a session has trained, and what it was trained on."""

    stage: Stage
    """The session has claimed it."""
    key: str
    """Of its artifact."""
    manifest: str
    """SHA-256 of its manifest."""
    session: Session
    seen: Mapping[Place, SliceState]
    """Every slice in its prefix, as it was before the training began."""
    parents: Mapping[Stage, str]
    """The stages before it, and their keys."""


def announce(rows: Rows, sessions: Sessions, snapshot: Snapshot, trained: Trained) -> bool:
    """Note that an artifact is about to be put; False if it could not be committed."""
    dead = schema.erasing_artifacts  # what is being erased under that key would be erased after it is put
    erasing = rows.read(dead, dead.c.shard == trained.stage.shard, dead.c.key == trained.key)
    return (
        not erasing
        and _stands(rows, snapshot, trained)
        and sessions.announce(trained.stage, trained.key, trained.session)
    )


def commit(rows: Rows, sessions: Sessions, snapshot: Snapshot, trained: Trained) -> bool:
    """Take a stage into use; False if that cannot be: then its artifact is nobody's."""
    stage, key = trained.stage, trained.key
    if not _stands(rows, snapshot, trained) or not sessions.has_announced(stage, key, trained.session):
        return False
    row = {"shard": stage.shard, "prefix": prefix_text(stage), "key": key, "manifest": trained.manifest}
    rows.upsert(schema.stages, [row])
    sessions.release(stage, trained.session)
    return True


def _stands(rows: Rows, snapshot: Snapshot, trained: Trained) -> bool:
    """Whether no slice has lost a record since it was seen, or was losing one then, and the stages before are alive."""
    if rows.note(KEY_DESTROYED):
        raise KeyDestroyedError("the run's secret was destroyed meanwhile: it cannot train any more")
    # Between an acceptance and the next version the losses are new, but the slice is the old one.
    waits = any(state.pending for state in trained.seen.values())
    return not waits and snapshot.still_as(trained.seen) and snapshot.still_has(trained.parents)
