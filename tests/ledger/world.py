"""A small ledger that the tests share: two shards, three slices, six records, four stages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from s3t.core import Place, Stage
from s3t.ledger import Acceptance, Address, ExportRow, Ledger, RecordRow, SliceState, Transaction
from s3t.results.log import LogEntry
from testing.trained import commit

PERSON = b"p" * 32
"""Who owns records 1 and 2."""
PLACES = (Place(0, 0), Place(0, 1), Place(1, 0))
STAGES = {Stage(0, (0,)): "k0", Stage(0, (1,)): "k1", Stage(0, (1, 0)): "k10", Stage(1, (0,)): "k2"}
KEY = b"k" * 32
"""Of the rows' checks."""
OLD, NEW = "0" * 64, "1" * 64
"""Digests."""


def token(number: int) -> bytes:
    return number.to_bytes(4, "big") * 8


def row(number: int, place: Place, *, subject: bytes | None = None, copies: int = 1) -> RecordRow:
    return RecordRow(token=token(number), subject=subject, place=place, copies=copies)


ROWS = {
    1: row(1, PLACES[0], subject=PERSON),
    2: row(2, PLACES[0], subject=PERSON),
    3: row(3, PLACES[1]),
    4: row(4, PLACES[1]),
    5: row(5, PLACES[2], copies=3),
    6: row(6, PLACES[2]),
}


def states(rows: Iterable[RecordRow], places: Iterable[Place] = PLACES) -> dict[Place, SliceState]:
    """Slices as init writes them."""
    counts = dict.fromkeys(places, 0)
    for found in rows:
        counts[found.place] += found.copies
    return {place: SliceState(records=count, digest=OLD, pending=False) for place, count in counts.items()}


def make_ledger(address: Address) -> Ledger:
    slices = states(ROWS.values())
    ledger = Ledger.create(address, slices=slices, records=ROWS.values(), key=KEY)
    with ledger.writing() as transaction:
        for stage, key in STAGES.items():
            assert commit(transaction, stage, key, seen=seen_by(slices, stage))
    return ledger


def open_ledger(address: Address) -> Ledger:
    """As another process has it open."""
    ledger = Ledger.open(address)
    ledger.check_rows(KEY)
    return ledger


def seen_by(slices: dict[Place, SliceState], stage: Stage) -> dict[Place, SliceState]:
    return {place: slices[place] for place in (Place(stage.shard, index) for index in stage.prefix)}


def taking(*numbers: int, request: bytes | None = None) -> Acceptance:
    """A deletion of records, and of every stage above them."""
    rows = [ROWS[number] for number in numbers]
    losses: dict[Place, int] = {}
    for found in rows:
        losses[found.place] = losses.get(found.place, 0) + found.copies
    tainted = {
        stage: key
        for stage, key in STAGES.items()
        if any(Place(stage.shard, index) in losses for index in stage.prefix)
    }
    return Acceptance(rows=rows, losses=losses, tainted=tainted, request=request)


def accept(ledger: Ledger, *acceptances: Acceptance) -> list[int]:
    with ledger.writing() as transaction:
        return transaction.accept(acceptances)


def settle(ledger: Ledger) -> None:
    with ledger.writing() as transaction:
        transaction.settle()


def end(ledger: Ledger, *sessions: str) -> None:
    with ledger.writing() as transaction:
        transaction.sessions.end(sessions)


def log(ledger: Ledger, generations: Collection[int] | None = None) -> list[LogEntry]:
    with ledger.reading() as transaction:
        return transaction.history.log(generations)


def state(ledger: Ledger, generation: int = 1) -> str:
    """Of a deletion."""
    return log(ledger, [generation])[0].state


def erase(ledger: Ledger) -> None:
    """Everything that is to erase, as if its files were done."""
    with ledger.writing() as transaction:
        erase_within(transaction)


def erase_within(transaction: Transaction) -> None:
    work = transaction.to_erase()
    for place, gone in work.records.items():
        rewrite(transaction, place, NEW, gone)
    transaction.note_removed(work.artifacts)
    walk(transaction)


def rewrite(transaction: Transaction, place: Place, digest: str, gone: Collection[bytes]) -> None:
    """As if a slice was superseded, and the old version removed."""
    old = transaction.snapshot().slices[place].digest
    assert transaction.supersede(place, old=old, new=digest, gone=gone)
    transaction.note_removed(versions=[(place, old)])


def tokens_since(transaction: Transaction, generation: int) -> dict[int, list[bytes]]:
    """What generations after one have taken."""
    deletions = transaction.history.deleted_since(generation)
    return {number: sorted([*asked, *others]) for number, (_, asked, others) in deletions.items()}


def walk(transaction: Transaction) -> None:
    """As if all other places were gone through."""
    transaction.note_walked(transaction.snapshot().generation)


MANY = tuple(row(number, Place(number % 2, 0)) for number in range(80))


def one_of_many(number: int) -> Acceptance:
    """A deletion of one record, of a ledger of many and no stages."""
    return Acceptance(rows=[MANY[number]], losses={MANY[number].place: 1}, tainted={})


def make_ledger_of_many(address: Address) -> Ledger:
    return Ledger.create(address, slices=states(MANY, [Place(0, 0), Place(1, 0)]), records=MANY, key=KEY)


DEEPEST = Stage(0, (1, 0))


def an_export(mark: str = "m1", *, stage: Stage = DEEPEST, name: str = "shard-000-ab") -> ExportRow:
    """An export of a live chain, announced and not made yet."""
    return ExportRow(
        mark=mark,
        name=name,
        host="here",
        output=Path("/srv"),
        stage=stage,
        keys=tuple(STAGES[link] for link in stage.chain),
        digests=(OLD,) * len(stage.prefix),
        files="[]",
        announced_at=0.0,
        made_at=None,
        withdrawn_at=None,
    )
