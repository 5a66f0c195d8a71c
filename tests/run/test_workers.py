"""Several worker processes train one run: the bytes of one, whatever comes between; and none is left."""

import json
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

import s3t
from s3t.core import Stage
from s3t.errors import FsyncError
from s3t.recipe import recipe_from
from s3t.run import training
from s3t.run.training import placements
from testing import tiny
from testing.roles import roles
from tests.cli.typed import document
from tests.run.meanwhile import Meanwhile, until
from tests.run.worlds import records_by_slice

integration = pytest.mark.integration


def events_of(listener, stage):
    """What was told of a stage, without times."""
    found = [event for event in listener.events if getattr(event, "stage", None) == stage]
    return [(type(event), getattr(event, "loss", getattr(event, "losses", event))) for event in found]


def workers_of(parent=None):
    """Worker processes of a process, of this one without."""
    children = psutil.Process(parent).children(recursive=True)
    return [child for child in children if "s3t.run.train_worker" in child.cmdline()]


@pytest.fixture
def made(text_model, tmp_path):
    """A function that makes a run that is not trained; closed in the end."""
    runs = []

    def make(name="run", *, without=(), **changes):
        table = tiny.text_table()
        recipe = tiny.recipe(text_model, **{"training": {"threads": 1, **changes.pop("training", {})}, **changes})
        runs.append(s3t.Run.create(tmp_path / name, recipe=recipe, data=table[~table.id.isin(without)]))
        return runs[-1]

    yield make
    for run in runs:
        run.close()
    assert workers_of() == []


@integration
def test_two_give_byte_for_byte_what_one_gives_and_tell_it_as_one(made):
    alone, shared = made("alone"), made("shared")
    seen = []
    one, two = Meanwhile(), Meanwhile(lambda: seen.extend(workers_of()))
    expected = alone.train(progress=one)
    report = shared.train(workers=2, progress=two)
    assert len(seen) == 2
    assert tiny.artifacts(shared.path) == tiny.artifacts(alone.path)  # the manifests, too
    assert report.stages == expected.stages
    assert (report.discarded, report.missing) == (0, 0)
    assert two.heard(s3t.WorkStart) == one.heard(s3t.WorkStart)
    steps = [sum(step.count for step in each.heard(s3t.WorkStep)) for each in (one, two)]
    assert steps[0] == steps[1]
    assert [end.losses for end in report.summaries] == [end.losses for end in expected.summaries]
    assert [events_of(two, stage) for stage in report.stages] == [events_of(one, stage) for stage in report.stages]
    assert two.heard(s3t.TrainingStart) == [s3t.TrainingStart(stages=18)]
    assert two.events[0].what == "training 18 stages on 24 records, 2 epochs each"
    assert two.events[-1] == s3t.WorkEnd()
    assert shared.audit(replay=2).ok


@integration
def test_a_deletion_while_they_train_leaves_what_a_run_gets_that_never_saw_the_record(made, text_model):
    run = made(training={"epochs": 8})
    record = records_by_slice(tiny.recipe(text_model), tiny.text_table())[0, 0][0]
    deleted = []
    report = run.train(workers=2, progress=Meanwhile(lambda: deleted.append(run.delete(records=[record]))))
    assert deleted[0].state == "erased"  # they have let go of it
    assert report.missing == 0
    never_knew = made("never-knew", without=[record], training={"epochs": 8})
    never_knew.train()
    assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)
    assert run.audit().ok


@integration
def test_a_run_that_another_thread_closes_stops_them(made):
    run = made(training={"epochs": 5000})
    closing = threading.Thread(target=run.close)
    with pytest.raises(s3t.ClosedError):
        run.train(workers=2, progress=Meanwhile(closing.start))
    closing.join()


def test_what_is_no_number_of_workers_is_refused_before_anything_changes(trained):
    before = tiny.all_files(trained.path / "artifacts")
    for act in (trained.train, trained.repair, lambda **how: trained.extend(budget=4, **how)):
        for workers in (0, 10_001, 10**4000, True, 1.5, "two", "2"):
            with pytest.raises(s3t.InputError, match="neither a whole number from 1 to 10,000 nor auto"):
                act(workers=workers)
    (problem,) = document("train", trained.path, "--workers", "many", status=2)["error"]["problems"]
    assert problem == "'many' is neither a whole number from 1 to 10,000 nor auto"
    assert trained.recipe.sequences.budget == 3
    assert tiny.all_files(trained.path / "artifacts") == before


def test_where_only_one_can_be_busy_none_is_started(trained, monkeypatch):
    monkeypatch.setattr(training, "run_on", lambda *args, **how: pytest.fail("a worker was started"))
    assert trained.train(workers=8).stages == ()
    stages = roles(trained).ledger.snapshot().stages
    last = stages[max(stages, key=lambda stage: stage.depth)]
    next(trained.path.glob(f"artifacts/**/{last}.safetensors")).unlink()
    assert len(trained.repair(workers=8).stages) == 1


MISSING = [
    Stage(shard, order[:depth])
    for shard in (0, 1)
    for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    for depth in (1, 2, 3)
]


def settings(threads, **device):
    return recipe_from(tiny.recipe("m", training={"threads": threads, "device": "cpu"} | device)).training


@pytest.mark.parametrize(
    ("workers", "missing", "threads", "cores"),
    [
        pytest.param("auto", MISSING, 2, [(2, 3), (5, 7)], id="auto: what the cores have room for"),
        pytest.param("auto", MISSING, 8, [()], id="auto: one where a stage takes all cores"),
        pytest.param(4, MISSING, 2, [()] * 4, id="more than there is room for: without cores of their own"),
        pytest.param(
            100,
            MISSING,
            1,
            [(2,), (3,), (5,), (7,), (8,), (9,)],
            id="no more than stages that no other stage waits for",
        ),
        pytest.param(100, MISSING[:9], 1, [(2,), (3,), (5,)], id="of one shard"),
        pytest.param(100, MISSING[:1], 1, [], id="none for one stage"),
        pytest.param("auto", [], 1, [], id="none for nothing"),
    ],
)
def test_there_are_as_many_workers_as_can_be_busy_at_once(workers, missing, threads, cores, monkeypatch):
    monkeypatch.setattr("s3t.run.training.usable_cores", lambda: (2, 3, 5, 7, 8, 9))
    monkeypatch.setattr("s3t.run.training.cores_worth", lambda: 5)
    assert [place.cores for place in placements(workers, missing, settings(threads))] == cores


@pytest.mark.parametrize(
    ("visible", "devices"), [(None, ["0", "1"]), ("3,GPU-a7,5", ["3", "GPU-a7"])], ids=["all", "given"]
)
def test_each_worker_gets_a_gpu_where_there_are_some(monkeypatch, visible, devices):
    """No machine with a GPU runs this: what torch says of them is told for it."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    def given(workers, device):
        found = placements(workers, MISSING, settings(1, device=device))
        return [place.environment.get("CUDA_VISIBLE_DEVICES") for place in found]

    assert given("auto", "auto") == devices
    assert given(3, "auto") == [*devices, devices[0]]
    assert given(3, "cpu") == [None] * 3


def s3t_command(*arguments):
    command = [sys.executable, "-m", "s3t", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # the tests may run where it is ignored
    )


@integration
def test_the_command_trains_with_workers_is_interrupted_and_goes_on(made):
    run = made(training={"epochs": 20})
    process = s3t_command("train", run.path, "--workers", 2, "--json")
    until(lambda: process.poll() is not None or run.status().missing < 18, seconds=120)
    assert process.poll() is None, process.communicate()
    workers = workers_of(process.pid)
    assert len(workers) == 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert said.splitlines()[-1] == "stopped; what is done is kept, run the same command again to go on"
    assert "Traceback" not in said
    assert not any(worker.is_running() for worker in workers)
    missing = run.status().missing
    assert 0 < missing < 18

    process = s3t_command("repair", run.path, "--workers", "auto", "--json")
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    document = json.loads(out)
    assert (document["trained"], document["missing"]) == (missing, 0)

    process = s3t_command("extend", run.path, "--budget", 4, "--anyway", "--workers", 2, "--json")
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert json.loads(out)["trained"] > 1
    assert run.audit(replay=2).ok


def test_a_ledger_that_does_not_answer_for_a_moment_stops_no_worker():
    def raising(error):
        def look():
            raise error

        return look

    training._unless_silent(raising(s3t.StorageError("the ledger refused")))
    for error in (s3t.ClosedError(), FsyncError("failed")):
        with pytest.raises(type(error)):
            training._unless_silent(raising(error))
