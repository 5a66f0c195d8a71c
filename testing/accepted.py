"""Deletions in a ledger without erasing anything."""

from __future__ import annotations

from collections.abc import Sequence

import s3t
from s3t.deletion.acceptance import Accepted, Acceptor, Request
from testing.roles import roles


def accept(run: s3t.Run, *requests: Sequence[str]) -> list[Accepted | Exception]:
    """Accept deletions in one transaction, as a process does that dies before it erases.

    Args:
        run: an open run.
        requests: each the names of the records of one request.
    """
    parts = roles(run)
    asked = [Request.of(parts.secret, records=names, subjects=[], key=None) for names in requests]
    batches = [batch for request in asked for batch in request.batches(10)]
    results, _ = Acceptor(parts.ledger, parts.latest.inventory, parts.witness).accept(batches)
    return results
