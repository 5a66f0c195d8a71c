"""Stages in a ledger without training them."""

from __future__ import annotations

from collections.abc import Mapping

from s3t.core import Place, Stage
from s3t.ledger import Session, SliceState, Trained, Transaction

TRAINER = Session()
MANIFEST = "d" * 64


def commit(
    transaction: Transaction,
    stage: Stage,
    key: str,
    *,
    seen: Mapping[Place, SliceState] | None = None,
    parents: Mapping[Stage, str] | None = None,
    seconds: float = 1.0,
) -> bool:
    """Take a stage into use, as a trainer does that has put its artifact; False if the ledger refuses it."""
    trained = Trained(
        stage=stage,
        key=key,
        manifest=MANIFEST,
        session=TRAINER,
        seen=transaction.snapshot().seen(stage) if seen is None else seen,
        parents=parents or {},
        seconds=seconds,
    )
    transaction.sessions.claim(stage, TRAINER)
    return transaction.announce(trained) and transaction.commit(trained)
