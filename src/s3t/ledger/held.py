"""Requests for deletion that are held until an operator decides, and the rates by which a request is held.

The ledger has the tokens of their names alone, and only while they wait.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import select

from s3t.ledger import schema
from s3t.ledger.rows import Rows, damaged
from s3t.ledger.state import Held, Rates

HOUR = 3600.0
"""Seconds over which rates are counted."""
_ID_BYTES = 8
_ID = re.compile("[0-9a-f]{16}")


class HeldRequests:
    """Held requests, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def all(self, *conditions: Any) -> list[Held]:
        """Every held request, the newest first; those that were decided included."""
        return sorted(self._rows.values(Held, *conditions), key=lambda held: (-held.asked_at, held.id))

    def find(self, id: str) -> Held | None:
        """The held request of an id; None also for what cannot be one, and what PostgreSQL would not take as text."""
        return next(iter(self.all(schema.held.c.id == id)), None) if _ID.fullmatch(id) else None

    def waiting(self) -> list[Held]:
        """Requests without a decision, the newest first."""
        return self.all(schema.held.c.decided_at.is_(None))

    def approved(self) -> frozenset[str]:
        """Ids of requests that are approved and not carried out; unchecked, so that a damaged row stops no answer."""
        table = schema.held
        left = select(table.c.id).where(table.c.approved == 1, table.c.done_at.is_(None))
        return frozenset(self._rows.connection.execute(left).scalars())

    def same(self, caller: str, *, request: bytes | None, content: bytes) -> Held | None:
        """Earlier request that is not done: with this idempotency key; without a key, the caller's waiting one for the
        same names."""
        table = schema.held
        if request is not None:
            same = [table.c.request == request]
        else:
            same = [table.c.asked_by == caller, table.c.content == content, table.c.decided_at.is_(None)]
        return next(iter(self.all(table.c.done_at.is_(None), *same)), None)

    def names_of(self, held: Held) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """Tokens of the records and of the subjects of a request; none once it was carried out or refused."""
        rows = self._rows.read(schema.held_names, schema.held_names.c.held == held.id)
        if len(rows) != held.names and held.state in ("held", "approved"):
            raise damaged(schema.held_names, held.names - len(rows))
        return (
            frozenset(row.token for row in rows if not row.is_subject),
            frozenset(row.token for row in rows if row.is_subject),
        )

    def add(
        self,
        *,
        asked_by: str,
        why: str,
        count: int,
        request: bytes | None,
        content: bytes,
        records: Collection[bytes],
        subjects: Collection[bytes],
    ) -> Held:
        """Note a request that has to wait."""
        held = Held(
            id=secrets.token_hex(_ID_BYTES),
            asked_by=asked_by,
            asked_at=self._rows.now(),
            why=why,
            names=len(records) + len(subjects),
            records=count,
            request=request,
            content=content,
        )
        self._rows.add(held)
        names = [(token, 0) for token in sorted(records)] + [(token, 1) for token in sorted(subjects)]
        self._rows.insert(
            schema.held_names, ({"held": held.id, "token": token, "is_subject": subject} for token, subject in names)
        )
        return held

    def decide(self, id: str, *, by: str, approved: bool, reason: str | None = None) -> None:
        """Note a decision; only the first counts. A refusal also removes the request's names."""
        values = {"decided_by": by, "decided_at": self._rows.now(), "approved": int(approved), "reason": reason}
        self._change(id, schema.held.c.decided_at.is_(None), **values)
        if approved:
            self._rows.note_change()  # open runs look whether it is carried out
        else:
            self._forget_names(id)

    def note_done(self, id: str, *, generation: int | None) -> None:
        """Note that an approved request was carried out, in the transaction that does it. Its names go."""
        self._rows.note_change()
        self._change(id, schema.held.c.done_at.is_(None), done_at=self._rows.now(), generation=generation)
        self._forget_names(id)

    def rates(self, caller: str, *, but: str) -> Rates:
        """Records that a caller, and each shard, lost within the last hour.

        Args:
            but: mark of a request that does not count: it is repeated.
        """
        table = schema.admitted
        since = self._rows.now() - HOUR
        by_caller, by_shard = 0, dict[int, int]()
        for row in self._rows.read(table, table.c.mark != but, table.c.asked_at >= since):
            by_caller += row.records if row.asked_by == caller else 0
            by_shard[row.shard] = by_shard.get(row.shard, 0) + row.records
        return Rates(by_caller=by_caller, by_shard=by_shard)

    def note_admitted(self, caller: str, losses: Mapping[int, int], *, mark: str) -> None:
        """Count the records of each shard that a request is about to take; of one with the same mark, once.

        Counts of more than an hour ago go.
        """
        table, time = schema.admitted, self._rows.now()
        self._rows.delete(table, table.c.asked_at < time - HOUR)
        self._rows.upsert(
            schema.admitted,
            (
                {"mark": mark, "shard": shard, "asked_by": caller, "asked_at": time, "records": count}
                for shard, count in losses.items()
            ),
        )

    def _change(self, id: str, *conditions: Any, **values: Any) -> None:
        self._rows.amend(schema.held, schema.held.c.id == id, *conditions, **values)

    def _forget_names(self, id: str) -> None:
        self._rows.delete(schema.held_names, schema.held_names.c.held == id)
