"""Errors of the ledger's database, turned into ours: it refused, it is damaged, or the outcome is unknown."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from s3t.aftermath import OUTCOME_UNKNOWN
from s3t.disk import note_failed_fsync
from s3t.errors import IntegrityError, StorageError
from s3t.ledger.address import Address

_LOCK_TIMEOUT = "55P03"
_IDLE_TIMEOUT = "25P03"  # PostgreSQL ended a transaction that was idle for too long: before any commit
_DAMAGED = ("XX001", "XX002")  # PostgreSQL found a damaged page, or a damaged index


def refusal(address: Address, error: Exception, *, ending: bool = False) -> StorageError | IntegrityError:
    """The error to raise.

    Args:
        ending: True if a writing transaction was being committed.
    """
    reason = getattr(error, "orig", None) or error
    if _is_damage(reason):
        return IntegrityError(
            f"the ledger is damaged ({reason}). Run `s3t reconcile RUN`, which mends indexes; if that does not help, "
            "restore the ledger from a backup, and run it again"
        )
    if "FSYNC" in getattr(reason, "sqlite_errorname", ""):
        return note_failed_fsync(f"the ledger ({reason})")
    state = getattr(reason, "sqlstate", None)
    local = isinstance(address, Path)
    if state == _LOCK_TIMEOUT or (local and "locked" in str(reason)):
        remedy = "wait for the process that holds it"
    elif local:
        remedy = _sqlite_remedy(reason)
    else:
        remedy = f"see that the database answers ({address})"
    refused = StorageError(f"the ledger refused ({reason})", remedy=remedy)
    if ending and state != _IDLE_TIMEOUT and not local:
        refused = StorageError(f"the ledger's database failed while it committed ({reason})", remedy=remedy)
        refused.aftermath = OUTCOME_UNKNOWN
    return refused


def _sqlite_remedy(reason: object) -> str:
    """The remedy for an error of SQLite, by its name."""
    name = getattr(reason, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL") or "is full" in str(reason):
        return "free space"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return "see that the run's folder can be written to: its permissions, and how it is mounted"
    return "free space or mend the disk"  # SQLite gives both the same name


def _is_damage(reason: object) -> bool:
    """True if a database's error says that its file is not what it wrote."""
    if isinstance(reason, sqlite3.Error):
        name = getattr(reason, "sqlite_errorname", "")
        # Damage may be in a name of the schema (SQLITE_ERROR), or make a text undecodable for Python's module.
        return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")) or "decode" in str(reason)
    return getattr(reason, "sqlstate", None) in _DAMAGED
