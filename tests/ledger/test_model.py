"""Any sequence of acceptances, erasures, commits and failures leaves the ledger as a plain dictionary would be."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from s3t.core import Place, Stage
from s3t.ledger import Acceptance, Ledger, PostgresAddress, Session, Snapshot
from s3t.results.base import utc
from testing.trained import commit
from tests.ledger.world import (
    OLD,
    PERSON,
    PLACES,
    ROWS,
    STAGES,
    make_ledger,
    open_ledger,
    rewrite,
    token,
    tokens_since,
    walk,
)

SESSIONS = [Session(), Session(host="another-host", process=1)]


class UndoneError(Exception):
    """Ends a transaction that shall not have been."""


@dataclass
class Model:
    """What the ledger should hold."""

    rows: dict = field(default_factory=lambda: dict(ROWS))
    slices: dict = field(default_factory=dict)
    """Records and digest of each place."""
    stages: dict = field(default_factory=lambda: dict(STAGES))
    deleted: dict = field(default_factory=dict)
    pending: dict = field(default_factory=dict)
    """Tokens still in a file: their place and generation."""
    dead: dict = field(default_factory=dict)
    """Artifacts still in the store, and their generation."""
    log: dict = field(default_factory=lambda: {0: (0, "erased")})
    sessions: dict = field(default_factory=dict)
    walked: int = 0
    """The generation up to which all places were gone through."""
    made: int = 0
    durable: int = 0
    """The generation before the transaction: what is accepted in it is durable after it."""

    def __post_init__(self) -> None:
        counts = Counter()
        for row in ROWS.values():
            counts[row.place] += row.copies
        self.slices = {place: (counts[place], OLD) for place in PLACES}

    @property
    def generation(self) -> int:
        return max(self.log)

    def acceptance(self, numbers: list[int]) -> Acceptance:
        """Of those that are there; takes them."""
        rows = [self.rows.pop(number) for number in numbers if number in self.rows]
        losses = Counter()
        for row in rows:
            losses[row.place] += row.copies
        tainted = {
            stage: key
            for stage, key in self.stages.items()
            if any(Place(stage.shard, index) in losses for index in stage.prefix)
        }
        number = self.generation + 1
        for row in rows:
            self.deleted[row.token] = number
            self.pending[row.token] = row.place, number
        for person in {row.subject for row in rows} - {None}:
            if not any(row.subject == person for row in self.rows.values()):
                self.deleted[person] = number
        for place, lost in losses.items():
            records, digest = self.slices[place]
            self.slices[place] = records - lost, digest
        for stage, key in tainted.items():
            del self.stages[stage]
            self.dead[stage.shard, key] = number
        self.log[number] = sum(losses.values()), "accepted"
        return Acceptance(rows=rows, losses=dict(losses), tainted=tainted)

    def settle(self) -> None:
        for number, (records, state) in self.log.items():
            moved = all(at >= number for at in self.sessions.values())
            if state == "accepted" and moved and number <= self.durable:
                state = "effective"
            left = [made for _, made in self.pending.values()] + list(self.dead.values())
            if state == "effective" and number not in left and number <= self.walked:
                state = "erased"
            self.log[number] = records, state


def change(transaction, model: Model, step) -> None:
    """One step, of the ledger and of the model."""
    name, numbers, flag = step
    if name == "accept":
        group = [model.acceptance(part) for part in numbers]
        transaction.accept(group)
        if flag:
            walk(transaction)
            model.walked = model.generation
    if name == "rewrite":
        place = PLACES[len(numbers) % len(PLACES)]
        gone = {found for found, (where, _) in model.pending.items() if where == place}
        model.made += 1
        digest = f"{model.made:064}"
        rewrite(transaction, place, digest, gone)
        for found in gone:
            model.walked = min(model.walked, model.pending.pop(found)[1] - 1)
        model.slices[place] = model.slices[place][0], digest
    if name == "remove":
        gone = sorted(model.dead)[: len(numbers)]
        transaction.note_removed(gone)
        for artifact in gone:
            del model.dead[artifact]
    if name == "commit":
        stage = Stage(0, (1, 0)) if flag else Stage(1, (0,))
        seen = transaction.snapshot().seen(stage)
        model.made += 1
        stored = commit(transaction, stage, f"key {model.made}")
        assert stored == (not any(place in seen for place, _ in model.pending.values()))
        if stored:
            model.stages[stage] = f"key {model.made}"
    if name == "move":
        session = SESSIONS[flag]
        transaction.sessions.enter(session, generation=model.generation)
        model.sessions[session.name] = model.generation
    if name == "end":
        transaction.sessions.end([SESSIONS[flag].name])
        model.sessions.pop(SESSIONS[flag].name, None)
    if name == "walk":
        walk(transaction)
        model.walked = model.generation
    if name == "settle":
        transaction.settle()
        model.settle()


def check(ledger: Ledger, model: Model) -> Snapshot:
    with ledger.reading() as transaction:
        work, log = transaction.to_erase(), transaction.history.log()
        taken = tokens_since(transaction, 0)
        deleted = {found: number for number, tokens in taken.items() for found in tokens}
        located = transaction.locate(records=[token(number) for number in ROWS], subjects=[PERSON])
    snapshot = ledger.snapshot()
    assert {entry.generation: (entry.records, entry.state) for entry in log} == model.log
    assert deleted == located.gone == model.deleted
    assert set(located.rows) == set(model.rows.values())
    assert snapshot.generation == model.generation
    assert snapshot.stages == model.stages
    slices = {place: (state.records, state.digest) for place, state in snapshot.slices.items()}
    assert slices == model.slices
    pending = {place for place, _ in model.pending.values()}
    assert {place for place, state in snapshot.slices.items() if state.pending} == pending == work.records.keys()
    assert {found for tokens in work.records.values() for found in tokens} == model.pending.keys()
    assert work.artifacts == model.dead.keys()
    assert snapshot.condemned == bool(model.dead)
    waiting = [entry.received_at for entry in log if model.log[entry.generation][1] != "erased"]
    assert (snapshot.waiting_since and utc(snapshot.waiting_since)) == min(waiting, default=None)
    return snapshot


NUMBERS = st.lists(st.lists(st.sampled_from(sorted(ROWS)), max_size=2, unique=True), min_size=1, max_size=3)
NAMES = st.sampled_from(["accept", "accept", "rewrite", "remove", "walk", "commit", "move", "end", "settle", "settle"])
STEPS = st.lists(st.tuples(NAMES, NUMBERS, st.booleans()), min_size=1, max_size=3)
TRANSACTIONS = st.lists(st.tuples(STEPS, st.booleans(), st.sampled_from([False, False, True])), max_size=12)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.integration)])
@settings(max_examples=10, suppress_health_check=list(HealthCheck), derandomize=True)
@given(transactions=TRANSACTIONS)
def test_any_schedule_leaves_what_a_dictionary_would_hold(kind, transactions, request):
    folder = Path(tempfile.mkdtemp())
    address = folder / "ledger.sqlite"
    if kind == "postgres":
        address = PostgresAddress.of(request.getfixturevalue("database"), run=f"model_{folder.name.lower()}")
        handles = [make_ledger(address), open_ledger(address)]
    else:
        shutil.copy(request.getfixturevalue("made"), address)
        handles = [open_ledger(address), open_ledger(address)]
    try:
        follow(handles, transactions)
    finally:
        handles[0].drop()
        for handle in handles:
            handle.close()
        shutil.rmtree(folder)


def follow(handles, transactions) -> None:
    model = Model()
    for steps, handle, fails in transactions:
        expected = copy.deepcopy(model)
        with suppress(UndoneError):
            expected.durable = model.generation
            with handles[handle].writing() as transaction:
                for step in steps:
                    change(transaction, expected, step)
                if fails:
                    raise UndoneError
            model = expected
        assert check(handles[0], model) == check(handles[1], model)
