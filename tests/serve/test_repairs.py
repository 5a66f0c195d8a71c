"""Repairs beside a server: by policy or on demand, one at a time, followed by whoever looks, taken up after a kill."""

import json
import os
import signal
import subprocess
from contextlib import ExitStack

import pytest

import s3t
from s3t.core import Inventory
from s3t.errors import WorkerError
from s3t_server.repairs import NICE, Repairs, asked_nice
from testing import tiny
from testing.roles import roles
from testing.served import serving, wait_for

REAL_POPEN = subprocess.Popen
SCOPES = ("predict", "delete", "operate")


@pytest.fixture
def begun(monkeypatch):
    """Repairs that would be started; no process is."""
    started = []
    monkeypatch.setattr(Repairs, "_start", lambda _self, repair: started.append(repair) or repair)
    return started


@pytest.fixture
def repairs(trained):
    """Those of a run that is repaired when an operator says so."""
    return Repairs(trained)


@pytest.fixture
def by_policy(path):
    """Opens a run with a policy of repairs, and deletes a record from it."""
    with ExitStack() as stack:

        def opened(policy):
            tiny.change_recipe(path, deletion={"repair": policy})
            run = stack.enter_context(s3t.Run.open(path))
            run.delete(records=["r0"], wait=False)
            return run, Repairs(run)

        yield opened


def ledger_of(run):
    """A transaction that writes."""
    return roles(run).ledger.writing()


def is_gone(run, process):
    with ledger_of(run) as transaction:
        transaction.repairs.note_process(process, gone=True)


def earlier(run, seconds, what="seen_at"):
    """Move a time of every repair back."""
    with ledger_of(run) as transaction:
        transaction.rows.connection.exec_driver_sql(f"UPDATE repairs SET {what} = {what} - {seconds}")


def test_one_repair_runs_at_a_time_whoever_begins_it(trained, repairs, begun):
    trained.delete(records=["r0"])
    first = repairs.begin(asked_by="ops", hours=2.0)
    assert (first.asked_by, first.hours, first.state, first.trained) == ("ops", 2.0, "running", 0)
    assert first.stages == trained.status().missing > 0
    with s3t.Run.open(trained.path) as other:
        assert Repairs(other).begin(asked_by="other") is None
        assert Repairs(other).all() == (first,)
    with ledger_of(trained) as transaction:
        transaction.repairs.end(first.id, process=first.process, error=None)
    assert repairs.find(first.id).state == "done"
    assert repairs.begin(asked_by="other") is not None
    assert [repair.asked_by for repair in begun] == ["ops", "other"]


def test_one_whose_process_is_gone_is_taken_up_once_or_a_new_one_takes_its_place(trained, repairs, begun):
    first = repairs.begin(asked_by="ops", hours=None)
    assert repairs.resume(hours_a_day=None) is None
    is_gone(trained, first.process)
    assert repairs.resume(hours_a_day=None) is None  # it waits a little
    earlier(trained, 3)
    again = repairs.resume(hours_a_day=None)
    assert (again.id, again.attempts) == (first.id, 2)
    assert repairs.resume(hours_a_day=None) is None
    assert [repair.id for repair in begun] == [first.id] * 2
    is_gone(trained, again.process)
    second = repairs.begin(asked_by="ops", hours=1.0)
    assert repairs.find(first.id).error == "Interrupted"
    assert [repair.id for repair in repairs.all() if repair.state == "running"] == [second.id] != [first.id]


def test_one_that_is_killed_again_and_again_ends_and_the_policy_does_not_take_its_place(by_policy, begun):
    run, repairs = by_policy("eager")
    first = repairs.begin_if_due(hours_a_day=None)
    for attempt in range(2, 9):
        is_gone(run, os.getpid())
        assert repairs.begin_if_due(hours_a_day=None) is None
        earlier(run, 100)
        assert (repairs.resume(hours_a_day=2.0) is not None) == (attempt <= 6)
    assert [repair.id for repair in begun] == [first.id] * 6
    assert begun[-1].hours == pytest.approx(2.0)  # of the day, though it was begun without a bound
    assert repairs.begin_if_due(hours_a_day=None) is None  # it has failed just now
    found = repairs.find(first.id)
    assert (found.state, found.error, found.attempts) == ("failed", "Interrupted", 6)


def test_a_server_that_stops_begins_no_repair_any_more(repairs, monkeypatch):
    monkeypatch.setattr("s3t_server.repairs.subprocess.Popen", None)
    repairs.close()
    assert repairs.begin(asked_by="ops") is None


def test_one_that_has_long_been_silent_is_taken_up_wherever_it_was(trained, repairs, begun):
    first = repairs.begin(asked_by="ops")
    with ledger_of(trained) as transaction:
        transaction.rows.connection.exec_driver_sql("UPDATE repairs SET host = 'elsewhere_1_1'")
    earlier(trained, 20)
    assert repairs.resume(hours_a_day=None) is None
    earlier(trained, 20)
    assert repairs.resume(hours_a_day=None).id == first.id


def test_server_and_process_both_note_whose_it_is_and_nobody_else_does_or_may_end_it(trained, repairs, begun):
    first, counts = repairs.begin(asked_by="ops"), {"trained": 1, "share": 0.5, "seconds": 2.0}
    with ledger_of(trained) as transaction:
        hand_over = transaction.repairs.hand_over
        assert not hand_over(first.id, process=7, server=8)
        assert hand_over(first.id, process=7, server=os.getpid())
        assert hand_over(first.id, process=7, server=os.getpid())  # the other of the two
        assert not hand_over(first.id, process=9, server=os.getpid())
        assert not hand_over("none", process=7, server=os.getpid())
        assert transaction.repairs.beat(first.id, process=7, **counts)
        assert not transaction.repairs.beat(first.id, process=8, **counts)
        transaction.repairs.end(first.id, process=8, error="X")
    found = repairs.find(first.id)
    assert (found.process, found.state, found.trained, found.seconds) == (7, "running", 1, 2.0)


def test_the_process_of_a_repair_before_does_not_stay_behind(trained, repairs, monkeypatch):
    processes = []

    def start(_command, **named):
        processes.append(REAL_POPEN(["sleep", "60"], **named))
        return processes[-1]

    monkeypatch.setattr("s3t_server.repairs.subprocess.Popen", start)
    first = repairs.begin(asked_by="ops")
    with ledger_of(trained) as transaction:
        transaction.repairs.end(first.id, process=processes[0].pid, error=None)
    repairs.begin(asked_by="ops")
    assert processes[0].returncode is not None
    repairs.close()
    assert processes[1].returncode is not None


def test_a_process_that_cannot_be_started_ends_its_repair(repairs, monkeypatch):
    def refuse(*_arguments, **_named):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("s3t_server.repairs.subprocess.Popen", refuse)
    with pytest.raises(WorkerError, match="Cannot allocate memory"):
        repairs.begin(asked_by="ops")
    assert repairs.all()[0].state == "failed"


@pytest.mark.parametrize(("policy", "due"), [("manual", False), ("eager", True), ("on-exhaustion", False)])
def test_a_repair_begins_by_itself_where_the_policy_asks_for_it(by_policy, begun, policy, due):
    _, repairs = by_policy(policy)
    assert (repairs.begin_if_due(hours_a_day=None) is not None) == due
    assert [repair.asked_by for repair in begun] == ["policy"] * due


@pytest.mark.parametrize("lost", [False, True])
def test_what_was_added_is_learned_whatever_the_policy_and_whatever_lives(lost, path, begun):
    tiny.change_recipe(path, deletion={"repair": "manual"}, additions={"learn_every": 1})
    later = tiny.text_table(2, seed=5).assign(id=["new0", "new1"])
    with s3t.Run.open(path) as run:
        repairs = Repairs(run)
        if lost:
            run.delete(records=list(tiny.text_table().id[:20]))
            assert not run.inventory().alive
        assert repairs.begin_if_due(hours_a_day=None) is None
        assert (run.add(later, train=False).due, run.status().to_learn) == (True, 2)
        assert repairs.begin_if_due(hours_a_day=None) is not None
        run.repair()
        assert (repairs.begin_if_due(hours_a_day=None), run.status().to_learn) == (None, 0)
        run.delete(records=["r21"])
        assert repairs.begin_if_due(hours_a_day=None) is None


def test_a_run_that_was_never_trained_is_not_trained_by_a_policy(text_model, tmp_path, begun):
    recipe = tiny.recipe(text_model, additions={"learn_every": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.add(tiny.text_table(2, seed=5).assign(id=["new0", "new1"]), train=False)
        assert Repairs(run).begin_if_due(hours_a_day=None) is None


def test_one_of_no_hours_begins_where_heads_alone_are_missing(repairs, begun, monkeypatch):
    monkeypatch.setattr(Inventory, "missing_readouts", lambda _inventory: ("head",))
    assert repairs.begin_if_due(hours_a_day=0.05).hours == 0.0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("policy", "hours_a_day", "trains"), [("manual", None, False), ("eager", 0.05, False), ("eager", None, True)]
)
def test_heads_are_solved_anew_whatever_the_policy_and_the_hours_of_the_day(
    policy, hours_a_day, trains, text_model, tmp_path
):
    recipe = tiny.recipe(text_model, deletion={"repair": policy}) | {"head": "ridge"}
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        repairs = Repairs(run)
        assert repairs.begin_if_due(hours_a_day=hours_a_day) is None
        run.delete(records=["r0"], wait=False)
        assert run.inventory().missing_readouts()
        one = repairs.begin_if_due(hours_a_day=hours_a_day)
        wait_for(lambda: repairs.find(one.id).state != "running")
        assert repairs.find(one.id).state == "done"
        assert run.inventory().missing_readouts() == ()
        assert (run.status().missing == 0) == trains
        assert repairs.begin_if_due(hours_a_day=hours_a_day) is None
        repairs.close()


def test_a_day_has_its_hours_whoever_used_them(by_policy, begun):
    run, repairs = by_policy("eager")
    for name, ago in (("a", 90_000), ("b", 4000), ("c", 3000)):
        with ledger_of(run) as transaction:
            one = transaction.repairs.begin(name, hours=None, stages=1)
            transaction.repairs.beat(one.id, process=one.process, trained=0, share=0.0, seconds=1800.0)
            transaction.repairs.end(one.id, process=one.process, error=None)
            moved = f"seen_at = seen_at - {ago}, ended_at = ended_at - {ago}"
            transaction.rows.connection.exec_driver_sql(f"UPDATE repairs SET {moved} WHERE id = '{one.id}'")
    assert repairs.begin_if_due(hours_a_day=1.05) is None  # b and c have used an hour, and too little is left
    assert repairs.begin_if_due(hours_a_day=1.5).hours == pytest.approx(0.5)


def test_after_a_failure_the_policy_waits(by_policy, begun):
    run, repairs = by_policy("eager")
    one = repairs.begin_if_due(hours_a_day=None)
    with ledger_of(run) as transaction:
        transaction.repairs.end(one.id, process=one.process, error="TrainingError")
    assert repairs.find(one.id).state == "failed"
    assert repairs.begin_if_due(hours_a_day=None) is None
    earlier(run, 61, "ended_at")
    assert repairs.begin_if_due(hours_a_day=None) is not None


def test_the_policys_last_repair_goes_on_if_it_ended_well_a_moment_ago(by_policy, begun):
    """Else each of a day's deletions would leave a repair."""
    run, repairs = by_policy("eager")
    one = repairs.begin_if_due(hours_a_day=3.0)

    def ends(error=None):
        with ledger_of(run) as transaction:
            transaction.repairs.beat(one.id, process=one.process, trained=2, share=1.0, seconds=1800.0)
            transaction.repairs.end(one.id, process=one.process, error=error)
        assert repairs.begin_if_due(hours_a_day=3.0) is None  # a moment later
        earlier(run, 2, "ended_at")

    ends()
    again = repairs.begin_if_due(hours_a_day=3.0)
    assert (again.id, again.state, again.stages) == (one.id, "running", 2 + one.stages)
    assert again.hours == pytest.approx(3.0)  # half an hour of them is over
    earlier(run, 3600, "asked_at")
    ends()
    third = repairs.begin_if_due(hours_a_day=3.0)
    assert third.id != one.id  # an hour's work has a row of its own, and leaves the last day by itself
    is_gone(run, os.getpid())
    assert repairs.begin(asked_by="ops").id not in (one.id, third.id)
    is_gone(run, os.getpid())
    one = repairs.begin(asked_by="policy", if_idle=True)
    assert one is None  # that of ops is to be taken up


def test_a_process_that_waits_for_the_next_repair_gets_it_and_no_other_server_begins_it(by_policy, begun):
    run, repairs = by_policy("eager")
    one = repairs.begin_if_due(hours_a_day=None)
    with subprocess.Popen(["sleep", "60"]) as waiting, ledger_of(run) as transaction:
        assert transaction.repairs.hand_over(one.id, process=waiting.pid, server=os.getpid())
        transaction.repairs.end(one.id, process=waiting.pid, error=None)
        transaction.rows.connection.exec_driver_sql("UPDATE repairs SET ended_at = ended_at - 2")
        assert transaction.repairs.is_busy()
        assert not transaction.repairs.is_busy(waiting.pid)
        waiting.kill()
        waiting.wait()
        assert not transaction.repairs.is_busy()


@pytest.mark.integration
def test_one_process_makes_one_repair_after_another_and_ends_with_its_server(path):
    tiny.change_recipe(path, deletion={"repair": "eager"})
    with s3t.Run.open(path) as run:
        repairs, processes = Repairs(run), []
        for record in ("r0", "r1", "r2"):
            run.delete(records=[record], wait=False)
            wait_for(lambda: repairs.begin_if_due(hours_a_day=None))
            wait_for(lambda: repairs.all()[0].state == "done")
            processes.append(repairs.all()[0].process)
            assert run.status().missing == 0
        assert len(set(processes)) == len(repairs.all()) == 1
        run.delete(records=["r3"])
        assert run.status().unfinished == ()  # the process that waits has let go of the record
        repairs.close()
        assert not os.path.exists(f"/proc/{processes[0]}")  # noqa: PTH110
        assert run.audit(replay=2).ok


def test_the_oldest_are_forgotten(trained, repairs, monkeypatch):
    monkeypatch.setattr("s3t.ledger.servers._KEPT", 3)
    monkeypatch.setattr("s3t.ledger.servers._KEPT_SECONDS", -1.0)
    for number in range(5):
        with ledger_of(trained) as transaction:
            one = transaction.repairs.begin(f"ops {number}", hours=None, stages=0)
            transaction.repairs.end(one.id, process=one.process, error=None)
    assert len(repairs.all()) == 3


@pytest.mark.integration
def test_a_server_repairs_by_policy_while_it_answers_and_tells_of_it(path):
    tiny.change_recipe(path, deletion={"repair": "eager"})
    with serving(path, open_scopes=SCOPES) as client:
        client.post("/v1/deletions", json={"records": ["r0"]})
        (repair,) = wait_for(lambda: client.get("/v1/repairs").json()["repairs"])
        for _ in range(10):  # a stream ends after 20 s, and a busy machine may leave a repair little time
            with client.stream("GET", f"/v1/repairs/{repair['id']}", headers={"Accept": "text/event-stream"}) as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                events = [line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: ")]
            last = json.loads(events[-1])
            if last["ended_at"] is not None:
                break
        assert (last["state"], last["share"]) == ("done", 1.0)
        assert last["trained"] == last["stages"] > 0
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
    s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()).close()
    with serving(tmp_path / "run", open_scopes=SCOPES) as client:
        assert client.post("/v1/repairs", json={"hours": 0.05}).status_code == 202
        assert client.post("/v1/repairs", json={}).status_code == 409
        with s3t.Run.open(tmp_path / "run") as run:
            repairs = Repairs(run)

            def taken_up(*not_by):
                return wait_for(lambda: (one := repairs.all()[0]).process not in (os.getpid(), *not_by) and one)

            first = taken_up()
            os.kill(first.process, signal.SIGKILL)
            again = taken_up(0, first.process)  # 0: its process is gone, and none has taken it up yet
            assert (again.id, again.state) == (first.id, "running")
            assert wait_for(lambda: os.getpriority(os.PRIO_PROCESS, again.process) >= 10)  # before it trains
            threads = [int(name) for name in os.listdir(f"/proc/{again.process}/task")]  # noqa: PTH208
            ours = os.getpriority(os.PRIO_PROCESS, 0)
            assert min(os.getpriority(os.PRIO_PROCESS, thread) for thread in threads) == ours  # what tells the ledger
    with s3t.Run.open(tmp_path / "run") as run:  # the server has stopped it, and it is not at its end
        assert Repairs(run).all()[0].state == "running"
        assert not os.path.exists(f"/proc/{again.process}")  # noqa: PTH110


def test_wrong_repairs(reader, begun):
    for wrong in ({"hours": 0}, {"hours": -1}, {"hours": "x"}, {"learn": 1}, {"hour": 1}, {"hours": 1e9}):
        assert reader.post("/v1/repairs", json=wrong).status_code == 422, wrong
    assert reader.get("/v1/repairs").json() == {"repairs": []}


@pytest.mark.parametrize(("given", "nice"), [(None, 10), ("0", 0), ("40", 19), ("-5", 10), ("fast", 10)])
def test_a_repair_goes_behind_other_processes_as_far_as_the_operator_says(monkeypatch, given, nice):
    monkeypatch.delenv(NICE)
    if given is not None:
        monkeypatch.setenv(NICE, given)
    assert asked_nice() == nice
