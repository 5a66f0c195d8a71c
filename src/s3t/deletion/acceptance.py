"""Acceptance: one ledger transaction, after which no prediction and no training may use the records.

Requests of several threads are accepted in one transaction (`grouping.py`), each as a generation of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from s3t.core import Impact, Inventory, Place, Secret, after_deletion, plan_deletion
from s3t.deletion.lookup import refuse_if_lost
from s3t.deletion.request import Batch
from s3t.errors import InputError
from s3t.ledger import Acceptance, Ledger, RecordRow, Snapshot, Transaction
from s3t.ledger.state import RequestRow


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """Result of a batch."""

    before: Inventory
    after: Inventory
    plan: Impact
    rows: tuple[RecordRow, ...]
    gone: Mapping[bytes, int]
    """Generation that deleted each requested token that was deleted before."""
    generation: int | None
    """None if nothing was accepted."""
    earlier: RequestRow | None = None
    """The request with the same key that has accepted this batch already."""


class Inventories(Protocol):
    def inventory(self, snapshot: Snapshot) -> Inventory: ...


class Acceptor:
    def __init__(self, ledger: Ledger, inventories: Inventories) -> None:
        self._ledger = ledger
        self._inventories = inventories

    def accept(self, batches: Sequence[Batch]) -> list[Accepted | Exception]:
        """Accept batches, in their order, in one transaction; durable on return."""
        with self._ledger.writing() as transaction:
            if transaction.history.key_destroyed_at() is not None:  # by another process
                Secret.destroyed().reveal()  # raises KeyDestroyedError
            group = _Group.begin(transaction, batches, self._inventories)
            results = [group.add(batch) for batch in batches]
            if group.acceptances:
                transaction.accept(group.acceptances)
            for batch, result in zip(batches, results, strict=True):
                if batch.held is not None and isinstance(result, Accepted):  # so its names go with its records
                    earlier = result.earlier.generations if result.earlier is not None else ()
                    took = result.generation or max(earlier, default=None)
                    transaction.held.note_done(batch.held, generation=took)
            for key, row in group.requests.items():
                if row is not None:
                    transaction.history.note_request(key, content=row.content, names=row.names, deleted=row.deleted)
        return results

    def look(self, batches: Sequence[Batch]) -> list[Accepted | Exception]:
        """The results that `accept` would return; changes nothing."""
        with self._ledger.reading() as transaction:
            group = _Group.begin(transaction, batches, self._inventories)
            return [group.add(batch) for batch in batches]


@dataclass
class _Group:
    """Batches of one transaction, added one by one."""

    inventory: Inventory
    rows: dict[bytes, RecordRow]
    by_subject: dict[bytes, list[RecordRow]]
    gone: dict[bytes, int]
    requests: dict[bytes, RequestRow | None]
    acceptances: list[Acceptance] = field(default_factory=list)

    @classmethod
    def begin(cls, transaction: Transaction, batches: Sequence[Batch], inventories: Inventories) -> _Group:
        located = transaction.locate(
            records={token for batch in batches for token in batch.records},
            subjects={token for batch in batches for token in batch.subjects},
        )
        refuse_if_lost(transaction, located, frozenset[bytes]().union(*(batch.in_files for batch in batches)))
        by_subject: dict[bytes, list[RecordRow]] = {}
        for row in located.rows:
            if row.subject is not None:
                by_subject.setdefault(row.subject, []).append(row)
        return cls(
            inventory=inventories.inventory(transaction.snapshot()),
            rows={row.token: row for row in located.rows},
            by_subject=by_subject,
            gone=dict(located.gone),
            requests={batch.key: transaction.history.request(batch.key) for batch in batches if batch.key is not None},
        )

    def add(self, batch: Batch) -> Accepted | Exception:
        """Take the requested records that no earlier batch of the group has taken."""
        before, earlier = self.inventory, None if batch.key is None else self.requests[batch.key]
        if earlier is not None and earlier.content != batch.content:
            return InputError(
                "the idempotency key", "was used for a request with other names; use a new key for a new request"
            )
        if earlier is not None and batch.end <= earlier.names:
            nothing = Impact(losses={}, tainted=())
            gone = self._gone(batch)
            return Accepted(
                before=before, after=before, plan=nothing, rows=(), gone=gone, generation=None, earlier=earlier
            )
        gone, rows = self._gone(batch), self._take(batch)
        plan = plan_deletion(before, losses_of(rows))
        generation = None
        if rows:
            self.inventory = after_deletion(before, plan)
            generation = self.inventory.generation
            self.gone |= {row.token: generation for row in rows}
            self.acceptances.append(
                Acceptance(
                    rows=rows,
                    losses=plan.losses,
                    tainted={stage: before.alive[stage] for stage in plan.tainted},
                    request=batch.key,
                    waited=time.monotonic() - batch.received,
                )
            )
        if batch.key is not None and (rows or earlier is not None):  # else it may be a mistake, and the key stays free
            self._note(batch.key, batch, rows, generation)
        return Accepted(
            before=before, after=self.inventory, plan=plan, rows=tuple(rows), gone=gone, generation=generation
        )

    def _gone(self, batch: Batch) -> dict[bytes, int]:
        """Requested tokens of a batch that were deleted before it."""
        gone = {token: self.gone[token] for token in (*batch.records, *batch.subjects) if token in self.gone}
        for subject in batch.subjects & self.by_subject.keys():
            owned = self.by_subject[subject]
            if not any(row.token in self.rows for row in owned):
                gone[subject] = max(self.gone[row.token] for row in owned)
        return gone

    def _take(self, batch: Batch) -> list[RecordRow]:
        owned = (row.token for subject in batch.subjects for row in self.by_subject.get(subject, ()))
        taken = {token: self.rows.pop(token) for token in (*batch.records, *owned) if token in self.rows}
        return [row for _, row in sorted(taken.items())]

    def _note(self, key: bytes, batch: Batch, rows: Sequence[RecordRow], generation: int | None) -> None:
        earlier = self.requests[key]
        self.requests[key] = RequestRow(
            content=batch.content,
            names=batch.end,
            deleted=(earlier.deleted if earlier else 0) + sum(row.copies for row in rows),
            generations=(earlier.generations if earlier else frozenset())
            | ({generation} if generation else frozenset()),
        )


def losses_of(rows: Iterable[RecordRow]) -> dict[Place, int]:
    """Rows that each slice loses with some records."""
    losses: dict[Place, int] = {}
    for row in rows:
        losses[row.place] = losses.get(row.place, 0) + row.copies
    return losses
