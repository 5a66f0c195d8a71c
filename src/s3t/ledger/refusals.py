"""What to tell of an error of the ledger's database: it refused, it is damaged, or nobody can know."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from s3t.aftermath import NOBODY_KNOWS
from s3t.disk import note_failed_fsync
from s3t.errors import IntegrityError, StorageError
from s3t.ledger.address import Address

_LOCK_TIMEOUT = "55P03"
_THROWN_OUT = "25P03"  # PostgreSQL's word that it ended a transaction that was idle for too long: before any commit
_DAMAGED = ("XX001", "XX002")  # PostgreSQL's words for a damaged page and a damaged index


def refusal(address: Address, error: Exception, *, ending: bool = False) -> StorageError | IntegrityError:
    """The error to raise.

    Args:
        address: of the ledger.
        error: the driver's, or SQLAlchemy's around it.
        ending: whether a writing transaction was being committed.
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
    if ending and state != _THROWN_OUT and not local:
        refused = StorageError(f"the ledger's database failed while it committed ({reason})", remedy=remedy)
        refused.aftermath = NOBODY_KNOWS
    return refused


def _sqlite_remedy(reason: object) -> str:
    """What mends a refusal of SQLite's, by its name for it."""
    name = getattr(reason, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL") or "is full" in str(reason):
        return "free space"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return "see that the run's folder can be written to: its permissions, and how it is mounted"
    return "free space or mend the disk"  # SQLite does not tell the one from the other


def _is_damage(reason: object) -> bool:
    """Whether a database's error says that its file is not what it wrote."""
    if isinstance(reason, sqlite3.Error):
        name = getattr(reason, "sqlite_errorname", "")
        # A name in the schema may be hit (SQLITE_ERROR), and a text that is none then is refused by Python's module.
        return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")) or "decode" in str(reason)
    return getattr(reason, "sqlstate", None) in _DAMAGED
