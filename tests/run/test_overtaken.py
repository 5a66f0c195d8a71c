"""What a deletion overtakes: an answer is made again, a stage is thrown away, nothing of the record stays in memory.

Each race is made at the very moment that matters, and nobody looks at the ledger of himself: in the tests of another
process (`test_races.py`, `test_sleepers.py`) the thread that looks several times a second may hide what is missing.
"""

import contextlib
import gc
import threading
import time
import weakref

import pyarrow.parquet
import pytest

import s3t
from s3t.core import Place, Stage
from s3t.events import WorkStart, WorkStep
from s3t.ledger import Session
from s3t.run import answerer
from s3t.run.workshop import Workshop
from s3t.store.artifacts import blobs_of
from testing import tiny
from testing.roles import roles
from tests.run.meanwhile import Meanwhile, until
from tests.run.worlds import trained_run
from tests.slice_files import read_slice, versions_of

SECONDS = 30.0
"""For what takes a tenth of one."""


@pytest.fixture(scope="module")
def trained_once(text_model, state_of_all, tmp_path_factory):
    """A run of one shard, two slices and two orders."""
    recipe = tiny.recipe(
        text_model,
        partition={"shards": 1, "slices": 2},
        sequences={"budget": 2},
        training={"epochs": 1, "batch_size": 8},
        prediction={"batch_size": 4},
    )
    folder = tmp_path_factory.mktemp("runs") / "run"
    trained_run(folder, recipe, tiny.text_table()).close()
    return folder


@pytest.fixture
def path(trained_once, tmp_path):
    return tiny.copy_run(trained_once, tmp_path / "run")


@pytest.fixture
def run(path, monkeypatch):
    """Its thread looks at the ledger an hour later."""
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
    with s3t.Run.open(path) as run:
        yield run


@pytest.fixture
def other(path):
    """The run as another process has it open, which waits for nobody."""
    with s3t.Run.open(path) as other:
        roles(other).deleter.patience = 0.0
        yield other
        other.erase()
        assert other.audit().ok


def record_of(run, index):
    """A record of a slice."""
    return read_slice(run.path / "slices", Place(0, index), roles(run).secret).rows["record"].to_pylist()[0]


def state_of(run):
    return run.log()[-1].state


def at_the_end_of(function, act):
    """A function, and what else happens just before its first result is used."""
    done = []

    def and_then(*args, **named):
        found = function(*args, **named)
        if not done:
            done.append(found)
            act()
        return found

    return and_then


@pytest.mark.parametrize("batches", [1, 2])
def test_an_answer_that_a_deletion_overtook_at_the_last_moment_is_made_again(run, other, batches, monkeypatch):
    """Trained again, the stages have the names of those that answered, and saw other records."""
    record, inputs = record_of(run, 0), ["w1 w30"] * run.recipe.prediction.batch_size * batches

    def overtake():
        other.delete(records=[record])
        other.repair()

    monkeypatch.setattr("s3t.run.answerer.Answerer._answer", at_the_end_of(answerer.Answerer._answer, overtake))
    answer = run.predict(inputs)
    assert answer.generation == 1
    assert {member.key for member in answer.members} <= set(roles(other).ledger.snapshot().stages.values())


def test_a_single_answer_is_that_of_the_ledger_now_whenever_this_process_looked_last(run, other):
    whole = run.predict(["w1 w30"])
    other.delete(records=[record_of(run, 0)])
    cut = run.predict(["w1 w30"])
    assert cut.generation == whole.generation + 1
    assert cut.members == other.predict(["w1 w30"]).members != whole.members
    other.repair()
    again = run.predict(["w1 w30"])
    assert again.members == other.predict(["w1 w30"]).members
    assert (again.generation, len(again.members[0].prefix)) == (cut.generation, len(whole.members[0].prefix))


def test_a_warm_answer_to_a_single_text_asks_the_ledger_once(run, other, monkeypatch):
    for _ in range(2):
        run.predict(["w1 w30"])
    kind, asked = type(roles(run).ledger), []
    for name in ("reading", "version"):
        own = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda self, own=own, name=name: asked.append((name, threading.get_ident())) or own(self)
        )
    run.predict(["w1 w30"])
    assert [name for name, thread in asked if thread == threading.get_ident()] == ["version"]


@pytest.mark.parametrize("what", ["predict", "evaluate"])
def test_an_answer_under_way_stops_at_its_next_batch(run, other, what):
    """Else a deletion would be effective only when all inputs are through."""
    record = record_of(run, 0)

    def overtake():
        other.delete(records=[record])
        roles(run).presence.look()

    progress = Meanwhile(overtake)
    getattr(run, what)(tiny.text_table(), progress=progress)
    assert [type(event) for event in progress.heard(WorkStart, WorkStep)][:3] == [WorkStart, WorkStep, WorkStart]
    assert len(progress.heard(WorkStep)) > 3


def missing_stage(run, other):
    """A record of slice 0 is deleted: what stands on that slice is to be trained again."""
    other.delete(records=[record_of(run, 0)])
    return record_of(run, 0)


def test_a_stage_whose_slice_lost_a_record_before_it_was_stored_is_thrown_away(run, other, monkeypatch):
    """The deletion is erased already: all that tells is what the slice was before training began."""
    record = missing_stage(run, other)
    erased = at_the_end_of(Workshop.train, lambda: other.delete(records=[record]))
    monkeypatch.setattr(Workshop, "train", lambda self, *args, **named: erased(self, *args, **named))
    report = run.train()
    assert report.discarded == 1
    assert run.audit().mismatches == ()


@contextlib.contextmanager
def halted_training(run, other):
    """A record, and a report that comes at the end: a stage without a parent trains on it, and goes on afterwards."""
    record, begun, go_on, reports = missing_stage(run, other), threading.Event(), threading.Event(), []

    def halt():
        begun.set()
        assert go_on.wait(SECONDS)

    training = threading.Thread(target=lambda: reports.append(run.train(progress=Meanwhile(halt))))
    training.start()
    try:
        assert begun.wait(SECONDS)
        yield record, reports
    finally:
        go_on.set()
        training.join()


def test_a_deletion_is_effective_and_not_erased_while_a_stage_trains_on_the_record(run, other):
    """Also where the stage has no parent that the deletion could take. The ledger refuses the stage."""
    with halted_training(run, other) as (record, reports):
        other.delete(records=[record])
        roles(run).presence.look()
        assert state_of(other) == "effective"
    assert reports[0].discarded >= 1
    assert state_of(other) == "erased"


def test_a_deletion_that_shall_not_wait_returns_while_a_stage_trains_on_the_record(run, other):
    roles(other).deleter.patience = SECONDS
    with halted_training(run, other) as (record, _):
        began = time.monotonic()
        report = other.delete(records=[record], wait=False)
        assert time.monotonic() - began < SECONDS / 2
    assert [entry.state for entry in report.log] == ["effective"]


def test_a_deletion_that_is_not_waited_for_is_erased_in_the_background(path, monkeypatch):
    """By this process, which does not leave it to others first."""
    monkeypatch.setattr("s3t.run.upkeep.OTHERS_FIRST_SECONDS", 3600.0)
    with s3t.Run.open(path) as run:
        assert run.delete(records=["r3"], wait=False).state in ("effective", "erased")
        until(lambda: state_of(run) == "erased")


def test_a_deletion_returns_when_the_stage_that_trains_on_the_record_has_stopped(run, other):
    roles(other).deleter.patience = SECONDS
    deleted = []
    with halted_training(run, other) as (record, _):
        deleting = threading.Thread(target=lambda: deleted.append(other.delete(records=[record])))
        deleting.start()
        until(lambda: roles(run).presence.look() or state_of(other) == "effective")
        deleting.join(timeout=0.3)
        assert not deleted
    deleting.join()
    assert [entry.state for entry in deleted[0].log] == ["erased"]


def test_a_stage_that_another_took_over_is_not_stored(run, other, monkeypatch):
    """This process slept for longer than a lease."""
    missing_stage(run, other)
    sleeper, stage = Session(host="another-host", process=1), Stage(0, (0,))

    def take_over():
        with roles(other).ledger.writing() as transaction:
            transaction.sessions.end([roles(run).presence.session.name])
            transaction.sessions.enter(sleeper, generation=transaction.snapshot().generation)
            assert transaction.sessions.claim(stage, sleeper)

    def give_back(_seconds):
        with roles(other).ledger.writing() as transaction:
            transaction.sessions.end([sleeper.name])

    taken = at_the_end_of(Workshop.train, take_over)
    monkeypatch.setattr(Workshop, "train", lambda self, *args, **named: taken(self, *args, **named))
    monkeypatch.setattr("s3t.engine.local.time.sleep", give_back)
    report = run.train()
    assert (report.discarded, report.stages.count(stage)) == (1, 1)


def test_a_stage_whose_artifact_is_away_goes_with_its_records_all_the_same(run, other):
    """A disk that was not mounted, say: what comes back is nobody's, and is swept."""
    stage = Stage(0, (0,))
    key = roles(run).ledger.snapshot().stages[stage]
    artifact = run.path / "artifacts" / blobs_of(0, key)[0]
    artifact.rename(run.path / "away")
    other.delete(records=[record_of(run, 0)])
    (run.path / "away").rename(artifact)
    assert stage not in roles(other).ledger.snapshot().stages
    assert stage not in other.inventory().alive
    with s3t.Run.open(run.path):
        assert not artifact.exists()


@pytest.mark.parametrize("erase_within", [0, 3600])
def test_what_another_process_deleted_leaves_the_memory_of_who_trained_on_it(path, erase_within, monkeypatch):
    """The records, and the trunk's states of them, which stay when another slice's records take their place.

    Also where the slice's file may wait to be erased.
    """
    tiny.change_recipe(path, deletion={"repair": "manual", "erase_within": erase_within})
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
    with s3t.Run.open(path) as run, s3t.Run.open(path) as other:
        roles(other).deleter.patience = 0.0
        missing_stage(run, other)
        run.repair()
        material = roles(run).loaded.get().material
        assert material.held == {Place(0, 0), Place(0, 1)}
        with material._remembering:
            material._encoded.clear()  # as if another shard had been trained since
        other.delete(records=[record_of(run, 0)])
        run.predict(["w1"])
        assert material.held == {Place(0, 1)}


def test_a_run_that_is_closed_lets_go_of_model_and_records(run, other):
    missing_stage(run, other)
    run.repair()
    kept = weakref.ref(roles(run).loaded.get().material)
    assert kept().held
    run.close()
    gc.collect()
    assert kept() is None


def in_slices(run, record):
    """Whether any version of the first slice holds a record, while another may be put or removed."""
    for path in versions_of(run.path / "slices", Place(0, 0)):
        with contextlib.suppress(FileNotFoundError):
            if record in pyarrow.parquet.read_table(path)["record"].to_pylist():
                return True
    return False


def test_an_open_run_that_nobody_asks_anything_erases_in_time(path):
    tiny.change_recipe(path, deletion={"repair": "manual", "erase_within": 0.3})
    with s3t.Run.open(path) as run:
        run.predict(["w1"])  # from here on it is a server
        record = record_of(run, 0)
        assert run.delete(records=[record]).deleted == 1
        until(lambda: not in_slices(run, record))


def test_who_counted_as_dead_goes_on_with_its_stage_unless_another_trains_it(path):
    """The ledger took no writes for a while; nobody deleted anything."""
    with s3t.Run.open(path) as run, s3t.Run.open(path) as other:
        other.delete(records=["r0"], repair=False)
        dead = []

        def silenced(event):
            if isinstance(event, WorkStep) and not dead:
                dead.append(event)
                with roles(other).ledger.writing() as transaction:
                    transaction.sessions.end([roles(run).presence.session.name])
                roles(run).presence.renew()
                assert [worker.process for worker in other.status().workers]

        done = run.train(progress=silenced)
        assert (done.discarded, done.missing, len(dead)) == (0, 0, 1)
