"""Requests for deletion, and their acceptance: one ledger transaction, after which nothing may use the records.

Requests of several threads are accepted in one transaction (`grouping.py`), each as a generation of its own.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from s3t.core import Inventory, Place, Secret, Stage, after_deletion, plan_deletion
from s3t.deletion.lookup import newest, refuse_if_lost
from s3t.deletion.witness import Journal, Witness
from s3t.errors import DataError, InputError
from s3t.ledger import Acceptance, Incoming, Ledger, RecordRow, Snapshot, Transaction
from s3t.ledger.state import RequestRow

CHANGED_MEANWHILE = "another process changed them meanwhile; run the same command again"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Records and subjects to delete, each once, in the order requested."""

    records: dict[bytes, str]
    """Names by token."""
    subjects: dict[bytes, str]
    key: bytes | None
    """Keyed hash of its idempotency key; None without one."""
    content: bytes
    """Keyed hash of all names."""
    received: float = field(compare=False)
    """Time of receipt (`time.monotonic()`)."""
    asked: bool = True
    """False if nobody asked for it, as in `Acceptance`."""
    places: Mapping[bytes, Place] = field(default_factory=dict)
    """Where the records of one that nobody asked for lay: what lies elsewhere now is a newer version."""
    held: str | None = None
    """Id of the held request that was approved. Its names are then empty: only their tokens are kept."""

    @classmethod
    def of(cls, secret: Secret, *, records: Sequence[str], subjects: Sequence[str], key: str | None) -> Request:
        received = time.monotonic()
        by_record = {secret.token("ledger", "record", name): name for name in records}
        by_subject = {secret.token("ledger", "subject", name): name for name in subjects}
        content = hmac.new(secret.key("ledger"), b"request", sha256)
        for tokens in (by_record, by_subject):
            content.update(b"%d\0" % len(tokens) + b"".join(sorted(tokens)))
        return cls(
            records=by_record,
            subjects=by_subject,
            key=None if key is None else secret.token("ledger", "request", key),
            content=content.digest(),
            received=received,
        )

    @classmethod
    def unasked(cls, secret: Secret, records: Mapping[str, Place]) -> Request:
        """A request that nobody made: records leave since a table lacks them, by age, or for newer versions. They are
        given by name, with the segments in which they were found."""
        request = cls.of(secret, records=list(records), subjects=(), key=None)
        places = {token: records[name] for token, name in request.records.items()}
        return replace(request, asked=False, places=places)

    @property
    def names(self) -> dict[bytes, str]:
        return self.records | self.subjects

    def batches(self, size: int) -> Iterator[Batch]:
        """The request in parts of at most `size` names: always the same parts for the same names."""
        asked = [(token, True) for token in sorted(self.records)] + [(token, False) for token in sorted(self.subjects)]
        for start in range(0, max(1, len(asked)), size):
            part = asked[start : start + size]
            yield Batch(
                request=self,
                records=frozenset(token for token, is_record in part if is_record),
                subjects=frozenset(token for token, is_record in part if not is_record),
                held=self.held if start + len(part) == len(asked) else None,
                end=start + len(part),
            )


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A part of a request that is accepted whole or not at all."""

    request: Request
    records: frozenset[bytes]
    subjects: frozenset[bytes]
    in_files: Mapping[bytes, int] = field(default_factory=dict)
    """Records in the slices' files, as `FileMatches.of`: of its subjects, and requested ones that the ledger did not
    know."""
    held: str | None
    """Id of the held request that this batch completes; set on its last batch alone."""
    end: int
    """Number of the request's names in this batch and those before it."""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """Result of a batch."""

    before: Inventory
    after: Inventory
    tainted: tuple[Stage, ...]
    """Live stages that were trained on a slice that loses a record; their artifacts are erased."""
    rows: tuple[RecordRow, ...]
    gone: Mapping[bytes, int]
    """Generation that deleted each requested token that was deleted before."""
    generation: int | None
    """None if nothing was accepted."""
    earlier: RequestRow | None
    """The request with the same key that has accepted this batch already."""


class Acceptor:
    def __init__(self, ledger: Ledger, inventory: Callable[[Snapshot], Inventory], witness: Witness) -> None:
        self._ledger = ledger
        self._inventory = inventory
        self._witness = witness

    def accept(
        self, batches: Sequence[Batch], incoming: Incoming | None = None, *, whole: bool = False
    ) -> tuple[list[Accepted | Exception], Journal]:
        """Accept batches, in their order, in one transaction, and take in what comes after them; durable on return.
        With what the witness has to note.

        Raises DataError if what comes does not fit any more, or, with `whole`, a batch: then nothing is done.
        """
        with self._ledger.writing() as transaction:
            if transaction.history.key_destroyed_at() is not None:  # by another process
                Secret.destroyed().reveal()  # raises KeyDestroyedError
            group, before = self._group(transaction, batches), transaction.snapshot().generation
            results: list[Accepted | Exception] = []
            for batch in batches:
                try:
                    results.append(group.add(batch))
                except InputError as error:  # the others' requests are not concerned
                    if whole:
                        raise
                    results.append(error)
            if group.acceptances:
                transaction.accept(group.acceptances)
            named = (gone for batch, gone in zip(batches, results, strict=True) if batch.request.asked)
            asked = {token for result in named if isinstance(result, Accepted) for token in result.gone}
            noted = transaction.history.note_asked(asked)
            if late := {number: row for number, row in noted.items() if number <= before}:
                # Not once it is done: no generation would tell an opening of it.
                self._witness.note_late(late, transaction.history.note_late())
            for batch, result in zip(batches, results, strict=True):
                if batch.held is not None and isinstance(result, Accepted):  # so its names go with its records
                    earlier = result.earlier.generations if result.earlier is not None else ()
                    took = result.generation or max(earlier, default=None)
                    transaction.held.note_done(batch.held, generation=took)
            if incoming is not None and not transaction.add(incoming):
                raise DataError("the data", CHANGED_MEANWHILE)
            for key, row in group.requests.items():
                if row is not None:
                    transaction.history.note_request(key, content=row.content, names=row.names, deleted=row.deleted)
            journal = self._witness.missing(transaction) if group.acceptances else Journal({}, None)
        return results, journal

    def look(self, batches: Sequence[Batch]) -> list[Accepted]:
        """The results that `accept` would return, or the first error among them; changes nothing."""
        with self._ledger.reading() as transaction:
            group = self._group(transaction, batches)
            return [group.add(batch) for batch in batches]

    def _group(self, transaction: Transaction, batches: Sequence[Batch]) -> _Group:
        return _Group(transaction, batches, self._inventory(transaction.snapshot()))


class _Group:
    """Batches of one transaction, added one by one."""

    def __init__(self, transaction: Transaction, batches: Sequence[Batch], inventory: Inventory) -> None:
        located = transaction.locate(
            records={token for batch in batches for token in batch.records},
            subjects={token for batch in batches for token in batch.subjects},
        )
        refuse_if_lost(transaction, located, newest(batch.in_files for batch in batches))
        self.inventory = inventory
        self.rows = {row.token: row for row in located.rows}
        self.by_subject: dict[bytes, list[RecordRow]] = {}
        for row in located.rows:
            if row.subject is not None:
                self.by_subject.setdefault(row.subject, []).append(row)
        self.gone = dict(located.gone)
        keys = {batch.request.key for batch in batches if batch.request.key is not None}
        self.requests = {key: transaction.history.request(key) for key in keys}
        self.acceptances: list[Acceptance] = []

    def add(self, batch: Batch) -> Accepted:
        """Take the requested records that no earlier batch of the group has taken."""
        request, before = batch.request, self.inventory
        earlier = None if request.key is None else self.requests[request.key]
        if earlier is not None and earlier.content != request.content:
            raise InputError(
                "the idempotency key", "was used for a request with other names; use a new key for a new request"
            )
        repeated = earlier is not None and batch.end <= earlier.names
        gone, rows = self._gone(batch), [] if repeated else self._take(batch)
        losses = losses_of(rows)
        tainted = plan_deletion(before, losses)
        generation = None
        if rows:
            self.inventory = after_deletion(before, losses, tainted)
            generation = self.inventory.generation
            self.gone |= {row.token: generation for row in rows}
            self.acceptances.append(
                Acceptance(
                    rows=rows,
                    losses=losses,
                    tainted={stage: before.alive[stage] for stage in tainted},
                    asked=request.asked,
                    subjects=batch.subjects,
                    request=request.key,
                    waited=time.monotonic() - request.received,
                )
            )
        # A new request that takes nothing may be a mistake, and its key stays free.
        if request.key is not None and not repeated and (rows or earlier is not None):
            generations = frozenset() if earlier is None else earlier.generations
            self.requests[request.key] = RequestRow(
                content=request.content,
                names=batch.end,
                deleted=(0 if earlier is None else earlier.deleted) + sum(row.copies for row in rows),
                generations=generations if generation is None else generations | {generation},
            )
        return Accepted(
            before=before,
            after=self.inventory,
            tainted=tainted,
            rows=tuple(rows),
            gone=gone,
            generation=generation,
            earlier=earlier if repeated else None,
        )

    def _gone(self, batch: Batch) -> dict[bytes, int]:
        """Requested tokens of a batch that were deleted before it."""
        asked = (*batch.records, *batch.subjects)
        gone = {token: self.gone[token] for token in asked if token in self.gone and token not in self.rows}
        for subject in batch.subjects & self.by_subject.keys():
            owned = self.by_subject[subject]
            if any(row.token in self.rows for row in owned):  # some came back, or are deleted now
                gone.pop(subject, None)
            else:
                gone[subject] = max(self.gone[row.token] for row in owned)
        return gone

    def _take(self, batch: Batch) -> list[RecordRow]:
        owned = (row.token for subject in batch.subjects for row in self.by_subject.get(subject, ()))
        taken = {token: self.rows[token] for token in (*batch.records, *owned) if token in self.rows}
        places = batch.request.places
        if any(row.place != places.get(token, row.place) for token, row in taken.items()):
            raise DataError("the records that are to go", CHANGED_MEANWHILE)
        for token in taken:
            del self.rows[token]
        return [row for _, row in sorted(taken.items())]


def losses_of(rows: Iterable[RecordRow]) -> dict[Place, int]:
    """Rows that each slice loses with some records."""
    losses: dict[Place, int] = {}
    for row in rows:
        losses[row.place] = losses.get(row.place, 0) + row.copies
    return losses
