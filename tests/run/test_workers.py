"""Several worker processes train one run: the bytes of one, whatever comes between; and none is left."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

import s3t
from s3t.run import training
from s3t.run.training import placements
from testing import tiny
from testing.roles import roles
from tests.run.worlds import records_by_slice

integration = pytest.mark.integration


class Listener:
    """What a listener was told; does something once, when a stage is under way."""

    def __init__(self, action=None):
        self.heard, self.total, self.count, self.action = [], 0, 0, action
        self.events = []

    def __call__(self, event):
        self.events.append(event)
        match event:
            case s3t.WorkStart():
                self.heard.append(event.what)
                self.total += event.total
            case s3t.StageStart():
                self.heard.append(str(event.stage))
            case s3t.WorkEnd():
                self.heard.append("finished")
            case s3t.WorkStep():
                self.count += event.count
                if self.action is not None:
                    action, self.action = self.action, None
                    action()


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
    one, two = Listener(), Listener()
    expected = alone.train(progress=one)
    seen = []
    two.action = lambda: seen.extend(workers_of())
    report = shared.train(workers=2, progress=two)
    assert len(seen) == 2
    assert tiny.artifacts(shared.path) == tiny.artifacts(alone.path)  # the manifests, too
    assert report.stages == expected.stages
    assert (report.discarded, report.missing) == (0, 0)
    assert (two.total, two.count) == (one.total, one.count)
    assert sorted(two.heard) == sorted(one.heard)
    assert [end.losses for end in report.summaries] == [end.losses for end in expected.summaries]
    assert [events_of(two, stage) for stage in report.stages] == [events_of(one, stage) for stage in report.stages]
    assert [event for event in two.events if isinstance(event, s3t.TrainingStart)] == [s3t.TrainingStart(stages=18)]
    assert (two.heard[0], two.heard[-1]) == ("training 18 stages on 24 records, 2 epochs each", "finished")
    assert shared.audit(replay=2).ok


@integration
def test_a_deletion_while_they_train_leaves_what_a_run_gets_that_never_saw_the_record(made, text_model):
    run = made(training={"epochs": 8})
    record = records_by_slice(tiny.recipe(text_model), tiny.text_table())[0, 0][0]
    deleted = []
    report = run.train(workers=2, progress=Listener(lambda: deleted.append(run.delete(records=[record]))))
    assert deleted[0].state == "erased"  # they have let go of it
    assert report.missing == 0
    never_knew = made("never-knew", without=[record], training={"epochs": 8})
    never_knew.train()
    assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)
    assert run.audit().ok


@integration
def test_after_one_was_killed_the_others_stop_and_repair_goes_on_where_they_were(made):
    run = made()

    def kill():
        workers_of()[0].kill()

    with pytest.raises(s3t.WorkerError, match="SIGKILL"):
        run.train(workers=2, progress=Listener(kill))
    assert workers_of() == []
    missing = run.status().missing
    assert missing > 0
    assert len(run.repair(workers=2).stages) == missing  # its claim was freed
    alone = made("alone")
    alone.train()
    assert tiny.artifacts(run.path) == tiny.artifacts(alone.path)


@integration
def test_training_that_diverges_in_one_of_them_says_what_it_says_in_one_process(made):
    run = made(training={"learning_rate": 1000, "weight_decay": 1000, "epochs": 6})
    with pytest.raises(s3t.TrainingError, match="learning_rate"):
        run.train(workers=2)
    assert tiny.artifacts(run.path) == {}


@integration
def test_a_run_that_another_thread_closes_stops_them(made):
    run = made(training={"epochs": 5000})
    closing = threading.Thread(target=run.close)
    with pytest.raises(s3t.ClosedError):
        run.train(workers=2, progress=Listener(closing.start))
    closing.join()


@pytest.mark.parametrize("workers", [0, -1, 10_001, 10**4000, True, 1.5, "two", "2"])
def test_what_is_no_number_of_workers_is_refused_before_anything_changes(made, workers):
    run = made()
    for act in (run.train, run.repair, lambda **how: run.extend(budget=4, **how)):
        with pytest.raises(s3t.InputError, match="neither a whole number from 1 to 10,000 nor auto"):
            act(workers=workers)
    assert run.recipe.sequences.budget == 3
    assert tiny.artifacts(run.path) == {}


def test_where_only_one_can_be_busy_none_is_started(trained, monkeypatch):
    monkeypatch.setattr(training, "run_on", lambda *args, **how: pytest.fail("a worker was started"))
    assert trained.train(workers=8).stages == ()
    stages = roles(trained).ledger.snapshot().stages
    last = stages[max(stages, key=lambda stage: stage.depth)]
    next(trained.path.glob(f"artifacts/**/{last}.safetensors")).unlink()
    assert len(trained.repair(workers=8).stages) == 1


class TestSeats:
    """How many, and where."""

    @pytest.fixture(autouse=True)
    def machine(self, monkeypatch):
        monkeypatch.setattr("s3t.run.training.usable_cores", lambda: (2, 3, 5, 7, 8, 9))
        monkeypatch.setattr("s3t.run.training.cores_worth", lambda: 5)

    def places(self, workers, made, *, missing=None, **training):
        run = made(training=training)
        found = run.inventory().missing() if missing is None else missing
        return placements(workers, found, run.recipe.training)

    def test_auto_is_what_the_cores_have_room_for(self, made):
        assert [place.cores for place in self.places("auto", made, threads=2)] == [(2, 3), (5, 7)]

    def test_auto_is_one_where_a_stage_takes_all_cores(self, made):
        assert len(self.places("auto", made, threads=8)) == 1

    def test_who_asks_for_more_than_the_cores_have_room_for_gets_them_without_cores_of_their_own(self, made):
        assert [place.cores for place in self.places(4, made, threads=2)] == [(), (), (), ()]

    def test_no_more_than_stages_that_no_other_stage_waits_for(self, made):
        assert len(self.places(100, made)) == 6
        run = made("other")
        missing = [stage for stage in run.inventory().missing() if stage.shard == 0]
        assert len(placements(100, missing, run.recipe.training)) == 3
        assert placements(100, missing[:1], run.recipe.training) == []
        assert placements("auto", [], run.recipe.training) == []

    @pytest.mark.parametrize(
        ("visible", "devices"), [(None, ["0", "1"]), ("3,GPU-a7,5", ["3", "GPU-a7"])], ids=["all", "given"]
    )
    def test_each_gets_a_gpu_where_there_are_some(self, made, monkeypatch, visible, devices):
        """No machine with a GPU runs this: what torch says of them is told for it."""
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        run = made()  # on a CPU, whatever is said of GPUs
        missing, auto = run.inventory().missing(), run.recipe.training.model_copy(update={"device": "auto"})

        def given(workers, training):
            return [place.environment.get("CUDA_VISIBLE_DEVICES") for place in placements(workers, missing, training)]

        assert given("auto", auto) == devices
        assert given(3, auto) == [*devices, devices[0]]
        assert given(3, auto.model_copy(update={"device": "cpu"})) == [None] * 3


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
    end = time.monotonic() + 120
    while run.status().missing == 18:
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
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


def test_the_command_refuses_what_is_no_number_of_workers(made):
    process = s3t_command("train", made().path, "--workers", "many", "--json")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    error = json.loads(out)["error"]
    assert error["kind"] == "InputError"
    assert error["problems"] == ["'many' is neither a whole number from 1 to 10,000 nor auto"]
