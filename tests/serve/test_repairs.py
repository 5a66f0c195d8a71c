"""Repairs beside a server: by policy or on demand, one at a time, followed by whoever looks, taken up after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from weakref import WeakKeyDictionary

import pytest

import s3t
from s3t.errors import WorkerError
from s3t.results.serving import Repair
from s3t_server.repairs import NICE, Repairs, asked_nice
from testing import tiny
from testing.roles import roles
from testing.served import serving

REAL_POPEN = subprocess.Popen
SECONDS = 120.0
SCOPES = ("predict", "delete", "operate")


_MADE = WeakKeyDictionary()


def repairs_of(run):
    """The repairs of an open run: those of a server, which begins one at a time."""
    return _MADE.setdefault(run, Repairs(run))


def wait_for(what):
    until = time.monotonic() + SECONDS
    while not (value := what()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return value


@pytest.fixture
def begun(monkeypatch):
    """Repairs that would be started; no process is."""
    started = []
    monkeypatch.setattr(Repairs, "_start", lambda _self, repair: started.append(repair) or repair)
    return started


def repairing(text_model, folder, policy):
    recipe = tiny.recipe(text_model, deletion={"repair": policy})
    with s3t.Run.create(folder, recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    return folder


def test_one_repair_runs_at_a_time_whoever_begins_it(trained, begun):
    trained.delete(records=["r0"])
    first = repairs_of(trained).begin(asked_by="ops", hours=2.0)
    assert (first.asked_by, first.hours, first.state, first.trained) == ("ops", 2.0, "running", 0)
    assert first.stages == trained.status().missing > 0
    with s3t.Run.open(trained.path) as other:
        assert repairs_of(other).begin(asked_by="other") is None
        assert repairs_of(other).all() == (first,)
    with roles(trained).ledger.writing() as transaction:
        transaction.repairs.end(first.id, process=first.process, error=None)
    assert repairs_of(trained).find(first.id).state == "done"
    assert repairs_of(trained).begin(asked_by="other") is not None
    assert [repair.asked_by for repair in begun] == ["ops", "other"]


def earlier(run, seconds, what="seen_at"):
    """Move a time of every repair back."""
    with roles(run).ledger.writing() as transaction:
        transaction.rows.connection.exec_driver_sql(f"UPDATE repairs SET {what} = {what} - {seconds}")


def resume(run):
    return repairs_of(run).resume(hours_a_day=None)


def test_one_whose_process_is_gone_is_taken_up_once(trained, begun):
    trained.delete(records=["r0"])
    first = repairs_of(trained).begin(asked_by="ops", hours=None)
    assert resume(trained) is None
    with roles(trained).ledger.writing() as transaction:
        transaction.repairs.note_process(first.process, gone=True)
    assert resume(trained) is None  # it waits a little
    earlier(trained, 3)
    again = resume(trained)
    assert (again.id, again.attempts) == (first.id, 2)
    assert resume(trained) is None
    assert [repair.id for repair in begun] == [first.id] * 2


def test_the_policy_does_not_take_the_place_of_an_interrupted_one(text_model, tmp_path, begun):
    with s3t.Run.open(repairing(text_model, tmp_path / "run", "eager")) as run:
        run.delete(records=["r0"], wait=False)
        first = repairs_of(run).begin_if_due(hours_a_day=None)
        for attempt in range(2, 9):
            with roles(run).ledger.writing() as transaction:
                transaction.repairs.note_process(os.getpid(), gone=True)
            assert repairs_of(run).begin_if_due(hours_a_day=None) is None
            earlier(run, 100)
            resumed = repairs_of(run).resume(hours_a_day=2.0)
            assert (resumed is not None) == (attempt <= 6)
        assert {repair.id for repair in begun} == {first.id}
        assert begun[-1].hours == pytest.approx(2.0)  # of the day, though it was begun without a bound
        assert repairs_of(run).begin_if_due(hours_a_day=None) is None  # it has failed just now


def test_a_server_that_stops_begins_no_repair_any_more(trained, monkeypatch):
    monkeypatch.setattr("s3t_server.repairs.subprocess.Popen", None)
    repairs_of(trained).close()
    assert repairs_of(trained).begin(asked_by="ops") is None


def test_one_that_is_killed_again_and_again_ends(trained, begun):
    first = repairs_of(trained).begin(asked_by="ops")
    for _ in range(10):
        with roles(trained).ledger.writing() as transaction:
            transaction.repairs.note_process(os.getpid(), gone=True)
        earlier(trained, 100)
        resume(trained)
    found = repairs_of(trained).find(first.id)
    assert (found.state, found.error, found.attempts) == ("failed", "Interrupted", 6)
    assert len(begun) == 6


def test_one_that_has_long_been_silent_is_taken_up_wherever_it_was(trained, begun):
    first = repairs_of(trained).begin(asked_by="ops")
    with roles(trained).ledger.writing() as transaction:
        transaction.rows.connection.exec_driver_sql("UPDATE repairs SET host = 'elsewhere_1_1'")
    earlier(trained, 20)
    assert resume(trained) is None
    earlier(trained, 20)
    assert resume(trained).id == first.id


def test_a_process_that_has_lost_its_repair_is_told_so_and_cannot_end_it(trained, begun):
    first = repairs_of(trained).begin(asked_by="ops")
    counts = {"trained": 1, "share": 0.5, "seconds": 2.0}
    with roles(trained).ledger.writing() as transaction:
        assert transaction.repairs.beat(first.id, process=first.process, **counts)
        assert not transaction.repairs.beat(first.id, process=first.process + 1, **counts)
        transaction.repairs.end(first.id, process=first.process + 1, error="X")
    found = repairs_of(trained).find(first.id)
    assert (found.state, found.trained, found.seconds) == ("running", 1, 2.0)


def test_server_and_process_both_note_whose_it_is_and_nobody_else_does(trained, begun):
    first = repairs_of(trained).begin(asked_by="ops")
    with roles(trained).ledger.writing() as transaction:
        hand_over = transaction.repairs.hand_over
        assert not hand_over(first.id, process=7, server=8)
        assert hand_over(first.id, process=7, server=os.getpid())
        assert hand_over(first.id, process=7, server=os.getpid())  # the other of the two
        assert not hand_over(first.id, process=9, server=os.getpid())
        assert not hand_over("none", process=7, server=os.getpid())
    assert repairs_of(trained).find(first.id).process == 7


def test_a_new_repair_takes_the_place_of_an_interrupted_one(trained, begun):
    first = repairs_of(trained).begin(asked_by="ops")
    with roles(trained).ledger.writing() as transaction:
        transaction.repairs.note_process(first.process, gone=True)
    second = repairs_of(trained).begin(asked_by="ops", hours=1.0)
    assert repairs_of(trained).find(first.id).error == "Interrupted"
    assert [repair.state for repair in repairs_of(trained).all()].count("running") == 1
    assert second.id != first.id


def test_the_process_of_a_repair_before_does_not_stay_behind(trained, monkeypatch):
    processes = []

    def start(_command, **named):
        processes.append(REAL_POPEN([sys.executable, "-c", "import time; time.sleep(60)"], **named))
        return processes[-1]

    monkeypatch.setattr("s3t_server.repairs.subprocess.Popen", start)
    repairs = Repairs(trained)
    first = repairs.begin(asked_by="ops")
    with roles(trained).ledger.writing() as transaction:
        transaction.repairs.end(first.id, process=processes[0].pid, error=None)
    repairs.begin(asked_by="ops")
    assert processes[0].returncode is not None
    repairs.close()
    assert processes[1].returncode is not None


def test_a_process_that_cannot_be_started_ends_its_repair(trained, monkeypatch):
    def refuse(*_arguments, **_named):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("s3t_server.repairs.subprocess.Popen", refuse)
    with pytest.raises(WorkerError, match="Cannot allocate memory"):
        repairs_of(trained).begin(asked_by="ops")
    assert repairs_of(trained).all()[0].state == "failed"


@pytest.mark.integration
@pytest.mark.parametrize(("policy", "due"), [("manual", False), ("eager", True), ("on-exhaustion", False)])
def test_a_repair_begins_by_itself_where_the_policy_asks_for_it(text_model, tmp_path, begun, policy, due):
    with s3t.Run.open(repairing(text_model, tmp_path / "run", policy)) as run:
        assert repairs_of(run).begin_if_due(hours_a_day=None) is None
        run.delete(records=["r0"], wait=False)
        assert (repairs_of(run).begin_if_due(hours_a_day=None) is not None) == due
        assert [repair.asked_by for repair in begun] == ["policy"] * due


@pytest.mark.parametrize(
    ("policy", "hours_a_day", "trains"),
    [
        ("manual", None, False),
        pytest.param("eager", 0.05, False, marks=pytest.mark.integration),
        pytest.param("eager", None, True, marks=pytest.mark.integration),
    ],
)
def test_heads_are_solved_anew_whatever_the_policy_and_the_hours_of_the_day(
    policy, hours_a_day, trains, text_model, tmp_path
):
    recipe = tiny.recipe(text_model, deletion={"repair": policy}) | {"head": "ridge"}
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        assert repairs_of(run).begin_if_due(hours_a_day=hours_a_day) is None
        run.delete(records=["r0"], wait=False)
        assert run.inventory().missing_readouts()
        one = repairs_of(run).begin_if_due(hours_a_day=hours_a_day)
        wait_for(lambda: repairs_of(run).find(one.id).state != "running")
        assert repairs_of(run).find(one.id).state == "done"
        assert run.inventory().missing_readouts() == ()
        assert (run.status().missing == 0) == trains
        assert repairs_of(run).begin_if_due(hours_a_day=hours_a_day) is None
        repairs_of(run).close()


def test_a_day_has_its_hours_whoever_used_them(text_model, tmp_path, begun):
    with s3t.Run.open(repairing(text_model, tmp_path / "run", "eager")) as run:
        run.delete(records=["r0"], wait=False)
        for name, ago in (("a", 90_000), ("b", 4000), ("c", 3000)):
            with roles(run).ledger.writing() as transaction:
                one = transaction.repairs.begin(name, hours=None, stages=1)
                transaction.repairs.beat(one.id, process=one.process, trained=0, share=0.0, seconds=1800.0)
                transaction.repairs.end(one.id, process=one.process, error=None)
                moved = f"seen_at = seen_at - {ago}, ended_at = ended_at - {ago}"
                transaction.rows.connection.exec_driver_sql(f"UPDATE repairs SET {moved} WHERE id = '{one.id}'")
        assert (
            repairs_of(run).begin_if_due(hours_a_day=1.05) is None
        )  # b and c have used an hour, and too little is left
        assert repairs_of(run).begin_if_due(hours_a_day=1.5).hours == pytest.approx(0.5)


def test_after_a_failure_the_policy_waits(text_model, tmp_path, begun):
    with s3t.Run.open(repairing(text_model, tmp_path / "run", "eager")) as run:
        run.delete(records=["r0"], wait=False)
        one = repairs_of(run).begin_if_due(hours_a_day=None)
        with roles(run).ledger.writing() as transaction:
            transaction.repairs.end(one.id, process=one.process, error="TrainingError")
        assert repairs_of(run).find(one.id).state == "failed"
        assert repairs_of(run).begin_if_due(hours_a_day=None) is None
        earlier(run, 61, "ended_at")
        assert repairs_of(run).begin_if_due(hours_a_day=None) is not None


def test_the_oldest_are_forgotten(trained, begun, monkeypatch):
    monkeypatch.setattr("s3t.ledger.servers._KEPT", 3)
    monkeypatch.setattr("s3t.ledger.servers._KEPT_SECONDS", -1.0)
    for number in range(5):
        with roles(trained).ledger.writing() as transaction:
            one = transaction.repairs.begin(f"ops {number}", hours=None, stages=0)
            transaction.repairs.end(one.id, process=one.process, error=None)
    assert len(repairs_of(trained).all()) == 3
    assert isinstance(repairs_of(trained).all()[0], Repair)


@pytest.mark.integration
def test_a_server_repairs_by_policy_while_it_answers_and_tells_of_it(text_model, tmp_path):
    path = repairing(text_model, tmp_path / "run", "eager")
    with serving(path, open_scopes=SCOPES) as client:
        client.post("/v1/deletions", json={"records": ["r0"]})
        (repair,) = wait_for(lambda: client.get("/v1/repairs").json()["repairs"])
        events = []
        with client.stream("GET", f"/v1/repairs/{repair['id']}", headers={"Accept": "text/event-stream"}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))
        assert events[-1]["state"] == "done"
        assert events[-1]["trained"] == events[-1]["stages"] > 0
        assert events[-1]["share"] == 1.0
        assert client.get("/v1/status").json()["missing"] == 0
        found = client.post("/v1/predict", json={"inputs": "w1"}).json()
        assert [len(member["prefix"]) for member in found["members"]] == [3, 3]
        assert client.get("/v1/repairs/none").status_code == 404
    with s3t.Run.open(path) as run:
        assert run.audit(replay=2).ok


@pytest.mark.integration
def test_a_repair_on_demand_that_is_killed_is_taken_up_and_a_second_one_is_refused(text_model, tmp_path, monkeypatch):
    monkeypatch.setenv(NICE, "10")
    recipe = tiny.recipe(text_model, training={"epochs": 2000})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()):
        pass
    with serving(tmp_path / "run", open_scopes=SCOPES) as client:
        asked = client.post("/v1/repairs", json={"hours": 0.05})
        assert asked.status_code == 202
        assert client.post("/v1/repairs", json={}).status_code == 409
        with s3t.Run.open(tmp_path / "run") as run:
            first = wait_for(lambda: (one := repairs_of(run).all()[0]).process != os.getpid() and one)
            os.kill(first.process, signal.SIGKILL)
            others = (0, first.process, os.getpid())  # 0: its process is gone, and none has taken it up yet
            again = wait_for(lambda: (one := repairs_of(run).all()[0]).process not in others and one)
            assert (again.id, again.state) == (first.id, "running")
            assert wait_for(lambda: os.getpriority(os.PRIO_PROCESS, again.process) >= 10)  # before it trains
            threads = [int(name) for name in os.listdir(f"/proc/{again.process}/task")]  # noqa: PTH208
            ours = os.getpriority(os.PRIO_PROCESS, 0)
            assert min(os.getpriority(os.PRIO_PROCESS, thread) for thread in threads) == ours  # what tells the ledger
    with s3t.Run.open(tmp_path / "run") as run:  # the server has stopped it, and it is not at its end
        assert repairs_of(run).all()[0].state == "running"
        assert not os.path.exists(f"/proc/{again.process}")  # noqa: PTH110


@pytest.mark.parametrize(
    "wrong", [{"hours": 0}, {"hours": -1}, {"hours": "x"}, {"learn": 1}, {"hour": 1}, {"hours": 1e9}]
)
def test_wrong_repairs(path, wrong, begun):
    with serving(path, open_scopes=SCOPES, repair=False) as client:
        assert client.post("/v1/repairs", json=wrong).status_code == 422
        assert client.get("/v1/repairs").json() == {"repairs": []}


@pytest.mark.parametrize(("given", "nice"), [(None, 10), ("0", 0), ("19", 19), ("40", 19), ("-5", 10), ("fast", 10)])
def test_a_repair_goes_behind_other_processes_as_far_as_the_operator_says(monkeypatch, given, nice):
    monkeypatch.delenv(NICE)
    if given is not None:
        monkeypatch.setenv(NICE, given)
    assert asked_nice() == nice
