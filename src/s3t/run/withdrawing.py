"""The operator's word that an export is gone."""

from __future__ import annotations

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.run.parts import Parts
from s3t.run.reporting import status_now
from s3t.run.results import Status


def withdraw(parts: Parts, name: str) -> Status:
    """Note that no copy of an export is left; returns the status after it.

    Raises:
        InputError: there is no such export, or it is still there.
        MovedError: the folder is a copy, or was moved.
        StorageError: the disk or the database refused.
    """
    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED):
        parts.latest.snapshot()  # refuses an older ledger
        parts.withdrawer.withdraw(name)
    return status_now(parts)
