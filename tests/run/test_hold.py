"""Answers that are held: no deletion is effective before they have left, and none leaves that a deletion overtook."""

import numpy as np
import pyarrow as pa
import pytest

import s3t
from s3t.errors import ClosedError, DataError, StorageError
from s3t.ledger.presence import TRUSTED_SECONDS
from s3t.ledger.sessions import LEASE_SECONDS
from testing import tiny
from testing.roles import roles
from tests.run.test_overtaken import state_of
from tests.run.worlds import trained_run

TEXTS = ["w1 w2", "w30", "w22 w3 w4"]
PAUSE = "s3t.ledger.presence.POLL_SECONDS"


@pytest.fixture
def run(trained_once, tmp_path, monkeypatch):
    """Its threads look at the ledger an hour later; tests look in their place."""
    monkeypatch.setattr(PAUSE, 3600.0)
    with s3t.Run.open(tiny.copy_run(trained_once, tmp_path / "run")) as run:
        yield run


@pytest.fixture
def other(run):
    """The run as another process has it open, which waits for nobody."""
    with s3t.Run.open(run.path) as other:
        roles(other).deleter.patience = 0.0
        yield other


@pytest.fixture
def hours(monkeypatch):
    """Hours that a stopped process has slept, to be set."""
    clock, slept = s3t.ledger.presence.boot_clock, {"seconds": 0.0}
    monkeypatch.setattr("s3t.ledger.presence.boot_clock", lambda: clock() + slept["seconds"])
    return slept


def assert_parts_of_one(held, whole, field):
    rows = [row for each in held.predictions for row in each.rows()]
    for name in (field, "probabilities"):
        assert [row[name] for row in rows] == [row[name] for row in whole.rows()]
    assert {(each.generation, each.members) for each in held.predictions} == {(whole.generation, whole.members)}


def test_answers_to_several_requests_are_those_of_one_prediction_of_all(run):
    frame = pa.table({"id": ["x"], "text": [TEXTS[2]]})
    with run.hold(TEXTS[:2], run.checked(frame)) as held:
        first, second = held.predictions
    whole = run.predict(TEXTS)
    assert_parts_of_one(held, whole, "label")
    np.testing.assert_array_equal(np.concatenate([first.logits, second.logits], axis=1), whole.logits)
    assert [row["row"] for row in first.rows()] == [0, 1]
    assert [row["id"] for row in second.rows()] == ["x"]


def test_answers_about_words_are_divided_by_their_words(text_model, tmp_path):
    recipe = tiny.tagging_recipe(text_model, partition={"shards": 1, "slices": 1}, sequences={"budget": 1})
    requests = [[["w1", "w2", "w3"]], [["w4"], ["w5", "w6"]]]
    with trained_run(tmp_path / "run", recipe, tiny.tagged_table()) as run, run.hold(*requests) as held:
        assert_parts_of_one(held, run.predict([words for each in requests for words in each]), "tags")


def test_a_deletion_is_effective_once_every_answer_has_left(run, other):
    first, second = run.hold(TEXTS), run.hold(TEXTS[:1])
    assert first.may_leave()
    assert second.may_leave()
    other.delete(records=["r0"])
    for held in (first, second):
        roles(run).presence.look()
        assert not held.may_leave()
        assert state_of(other) == "accepted"
        held.release()
    roles(run).presence.look()
    assert state_of(other) in ("effective", "erased")
    first.release()


def test_an_answer_that_is_not_on_its_way_yet_holds_no_deletion_up_and_does_not_leave(run, other):
    held = run.hold(TEXTS)
    other.delete(records=["r0"])
    roles(run).presence.look()
    assert state_of(other) == "effective"
    assert not held.may_leave()
    held.release()
    roles(run).presence.look()
    assert state_of(other) == "erased"  # and not before: until then it was in memory


def test_a_deletion_that_takes_nothing_of_the_answer_does_not_stop_it(run, other):
    other.delete(records=["r0"])
    with run.hold(TEXTS) as held:
        serving = {(member.shard, index) for member in held.predictions[0].members for index in member.prefix}
        records = tiny.text_table().id[1:]
        spared = next(
            record
            for record in records
            if not serving & {(place.shard, place.slice) for place in run.locate(records=[record])[0].places}
        )
        other.delete(records=[spared])
        roles(run).presence.look()
        assert held.may_leave()


def test_after_a_long_sleep_the_ledger_is_looked_at_before_an_answer_leaves(run, other, hours):
    """The ledger's session may have counted as dead meanwhile, so that nobody waited for the answer."""
    held = run.hold(TEXTS)
    with roles(other).ledger.writing() as transaction:
        transaction.sessions.end([roles(run).presence.session.name])
    other.delete(records=["r0"])
    assert state_of(other) in ("effective", "erased")
    assert held.may_leave()  # within the lease nobody can have taken the session for dead: here a test has
    hours["seconds"] = LEASE_SECONDS
    assert not held.may_leave()
    held.release()
    with run.hold(TEXTS) as again:
        assert again.may_leave()
        assert again.predictions[0].generation == other.status().generation


def test_after_a_long_sleep_with_no_ledger_no_answer_leaves(run, hours, monkeypatch):
    def refuse(*_arguments, **_options):
        raise StorageError("the ledger could not be asked: it is not there")

    with run.hold(TEXTS) as held:
        monkeypatch.setattr(roles(run).ledger, "snapshot", refuse)
        monkeypatch.setattr(roles(run).ledger, "writing", refuse)
        assert held.may_leave()  # a deletion waits for this session
        hours["seconds"] = TRUSTED_SECONDS + 1
        with pytest.raises(StorageError):
            held.may_leave()


def test_a_lease_that_runs_out_while_it_is_renewed_lets_no_answer_leave(run, hours, monkeypatch):
    """The ledger was slow, or the machine slept once more: the session may count as dead by now."""
    presence = roles(run).presence
    with run.hold(TEXTS) as held:
        hours["seconds"] = TRUSTED_SECONDS + 1
        beat = type(roles(run).ledger).writing

        def slowly(self, **options):
            hours["seconds"] += TRUSTED_SECONDS + 1
            return beat(self, **options)

        with monkeypatch.context() as patch:
            patch.setattr(type(roles(run).ledger), "writing", slowly)
            assert not held.may_leave()
        assert not presence.lease_is_fresh
        assert held.may_leave()  # asked again, with a ledger that answers


def test_an_answer_of_a_closed_run_does_not_leave(run):
    held = run.hold(TEXTS)
    run.close()
    assert not held.may_leave()
    held.release()
    with pytest.raises(ClosedError):
        run.hold(TEXTS)


def test_wrong_inputs_are_told_before_anything_is_held(run):
    with pytest.raises(DataError, match="neither texts nor rows"):
        run.checked([1, 2])
    with pytest.raises(DataError):
        run.hold(TEXTS, [""])


def test_a_deletion_that_nobody_waits_for_leaves_the_repair_to_others(trained_once, tmp_path):
    path = tiny.copy_run(trained_once, tmp_path / "eager")
    tiny.change_recipe(path, deletion={"repair": "eager"})
    with s3t.Run.open(path) as run:
        report = run.delete(records=["r0"], wait=False)
        assert report.repair is None
        assert report.missing
        assert run.delete(records=["r1"]).repair is not None
        assert not run.status().missing
