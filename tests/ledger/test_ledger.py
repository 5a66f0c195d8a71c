"""The ledger keeps tokens, counts losses, and is durable when it says so."""

import sqlite3

import pytest

from s3t.errors import IntegrityError, StorageError
from s3t.ledger import Ledger, RecordRow, SliceState
from s3t.partition import Place
from s3t.stages import Stage

PLACES = [Place(0, 0), Place(0, 1)]
STAGES = {Stage(0, (0,)): "k0", Stage(0, (1,)): "k1", Stage(0, (1, 0)): "k10"}


def row(number, place, subject=None):
    return RecordRow(token=bytes([number]) * 32, subject=subject, place=place, copies=1)


@pytest.fixture
def ledger(tmp_path):
    states = {place: SliceState(records=2, losses=0, digest="0" * 64, pending=False) for place in PLACES}
    person = b"p" * 32
    rows = [row(1, PLACES[0], person), row(2, PLACES[0], person), row(3, PLACES[1]), row(4, PLACES[1])]
    ledger = Ledger.create(tmp_path / "ledger.sqlite", slices=states, records=rows)
    with ledger.writing() as transaction:
        for stage, key in STAGES.items():
            seen = {Place(0, index): states[Place(0, index)] for index in stage.prefix}
            assert transaction.commit_stage(stage, key, seen=seen, put=lambda: None)
    yield ledger
    ledger.close()


def accept(ledger, rows, tainted):
    losses = {}
    for found in rows:
        losses[found.place] = losses.get(found.place, 0) + 1
    with ledger.writing() as transaction:
        return transaction.accept(rows, losses=losses, tainted={stage: STAGES[stage] for stage in tainted})


def test_acceptance_changes_everything_in_one_transaction(ledger):
    assert accept(ledger, [row(1, PLACES[0], b"p" * 32)], [Stage(0, (0,)), Stage(0, (1, 0))]) == 1
    snapshot = ledger.snapshot()
    assert snapshot.generation == 1
    assert snapshot.slices[PLACES[0]].records == 1
    assert snapshot.slices[PLACES[0]].losses == 1
    assert snapshot.slices[PLACES[0]].pending
    assert not snapshot.slices[PLACES[1]].pending
    assert snapshot.stages == {Stage(0, (1,)): "k1"}
    assert ledger.unfinished()
    with ledger.writing() as transaction:
        tokens, artifacts = transaction.to_erase()
        assert tokens == {PLACES[0]: {bytes([1]) * 32}}
        assert artifacts == {(0, "k0"), (0, "k10")}
        transaction.erased({PLACES[0]: "1" * 64}, artifacts)
    assert not ledger.unfinished()
    assert ledger.snapshot().slices[PLACES[0]].digest == "1" * 64


def test_an_error_within_a_transaction_leaves_nothing_of_it(ledger):
    before = ledger.snapshot()

    def fail():
        with ledger.writing() as transaction:
            transaction.accept([row(3, PLACES[1])], losses={PLACES[1]: 1}, tainted={Stage(0, (1,)): "k1"})
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert ledger.snapshot() == before


def test_records_are_found_by_id_and_by_subject_and_remembered_when_gone(ledger):
    with ledger.writing() as transaction:
        found = transaction.locate(records=[bytes([3]) * 32, b"x" * 32], subjects=[b"p" * 32])
        assert [hit.token[0] for hit in found.rows] == [1, 2, 3]
        assert found.already == frozenset()
    accept(ledger, [row(1, PLACES[0], b"p" * 32)], [])
    with ledger.writing() as transaction:
        found = transaction.locate(records=[bytes([1]) * 32], subjects=[b"p" * 32])
        assert found.already == {bytes([1]) * 32}  # the subject has a record left
    accept(ledger, [row(2, PLACES[0], b"p" * 32)], [])
    with ledger.writing() as transaction:
        assert b"p" * 32 in transaction.locate(records=[], subjects=[b"p" * 32]).already


def test_a_stage_is_not_stored_if_its_slice_lost_a_record_meanwhile(ledger):
    put = []
    before = ledger.snapshot().slices[PLACES[1]]
    accept(ledger, [row(3, PLACES[1])], [Stage(0, (1,)), Stage(0, (1, 0))])
    with ledger.writing() as transaction:
        stored = transaction.commit_stage(Stage(0, (1,)), "new", seen={PLACES[1]: before}, put=lambda: put.append(1))
    assert not stored
    assert put == []


def test_a_stage_is_not_stored_while_its_slice_still_holds_an_accepted_record(ledger):
    """The losses are counted at acceptance, but until erasure the file, and what trains from it, is the old one."""
    accept(ledger, [row(3, PLACES[1])], [Stage(0, (1,)), Stage(0, (1, 0))])
    between = ledger.snapshot().slices[PLACES[1]]
    assert between.pending
    with ledger.writing() as transaction:
        assert not transaction.commit_stage(Stage(0, (1,)), "new", seen={PLACES[1]: between}, put=lambda: None)
    assert Stage(0, (1,)) not in ledger.snapshot().stages


def test_a_stage_whose_artifact_cannot_be_stored_is_not_noted(ledger):
    def full():
        raise OSError(28, "No space left on device")

    def commit():
        with ledger.writing() as transaction:
            transaction.commit_stage(Stage(0, (0, 1)), "k01", seen={}, put=full)

    with pytest.raises(OSError, match="No space"):
        commit()
    assert Stage(0, (0, 1)) not in ledger.snapshot().stages


def test_commits_are_on_the_disk_when_they_return(tmp_path, ledger):
    with ledger._engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "secure_delete", "foreign_keys")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "foreign_keys": 1}


def test_a_missing_ledger_is_not_made_anew(tmp_path):
    with pytest.raises(IntegrityError, match="missing"):
        Ledger.open(tmp_path / "ledger.sqlite")


def test_a_locked_or_damaged_database_is_a_storage_error(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"this is no database, but long enough to be looked at" * 20)
    with pytest.raises(StorageError, match="ledger refused"):
        Ledger.open(path).snapshot()


def test_the_file_holds_tokens_alone(tmp_path, ledger):
    names = sqlite3.connect(tmp_path / "ledger.sqlite").execute("SELECT sql FROM sqlite_master").fetchall()
    text = " ".join(str(name) for name in names)
    assert "token" in text
    assert not any(column in text for column in ("text", "label", "image"))
