"""The operator's word that an export is gone."""

from __future__ import annotations

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.run.parts import Parts
from s3t.run.reporting import status_now
from s3t.run.results import Status


def withdraw(parts: Parts, name: str) -> Status:
    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED):
        parts.latest.snapshot()  # refuses an older ledger
        parts.withdrawer.withdraw(name)
    return status_now(parts)
