"""What /metrics tells of runs: deletions on their way, the forecast, open runs, repairs."""

import re

import pytest

import s3t
from s3t.ledger import Session
from s3t.ledger.sessions import LEASE_SECONDS
from testing import tiny
from testing.roles import roles
from testing.served import serving

TEXTS = ["w1 w2", "w30"]


def gauge(client, name):
    """A number of the run that the server's page tells."""
    page = client.get("/metrics").text
    (value,) = re.findall(rf'^s3t_{name}{{run="run"}} (\S+)$', page, re.MULTILINE)
    return float(value)


@pytest.mark.parametrize("erase_within", [0, 3600])
def test_metrics_tell_deletions_that_are_not_effective_or_not_erased_in_time(path, erase_within):
    tiny.change_recipe(path, deletion={"erase_within": erase_within})
    names = ("ineffective_deletions", "unfinished_deletions", "erasure_overdue_seconds", "oldest_unfinished_seconds")
    with serving(path, open_scopes=("predict", "operate")) as client, s3t.Run.open(path) as run:
        assert [gauge(client, name) for name in names] == [0, 0, 0, 0]
        roles(run).deleter.patience = 0.0
        with run.hold(TEXTS) as answers:
            assert answers.may_leave()
            run.delete(records=["r0"])
            assert [gauge(client, name) for name in names[:2]] == [1, 1]
            assert gauge(client, "oldest_ineffective_seconds") > 0
            assert gauge(client, "oldest_unfinished_seconds") > 0
            assert (gauge(client, "erasure_overdue_seconds") > 0) == (erase_within == 0)


def test_metrics_tell_the_forecast_of_the_present_state(client, path):
    def told():
        names = ("to_less_depth", "to_first_dead_shard", "to_last_dead_shard")
        return [gauge(client, f"deletions_{name}") for name in names]

    before = told()
    assert before == told()
    client.post("/v1/deletions", json={"records": ["r0", "r1"]})
    with s3t.Run.open(path) as run:
        ahead = run.forecast()
    least = min(ahead.depth_falls_below.values(), default=ahead.next_shard_dies)
    assert told() == [least, ahead.next_shard_dies, ahead.all_shards_die] != before
    assert gauge(client, "slices") == 3


def test_metrics_tell_open_runs_and_those_that_were_lost(client, path):
    client.post("/v1/predict", json={"inputs": TEXTS})
    assert (gauge(client, "sessions"), gauge(client, "lost_sessions_total")) == (1, 0)
    with s3t.Run.open(path) as run:
        with roles(run).ledger.writing() as transaction:
            transaction.sessions.enter(Session(host="elsewhere"), generation=0)
        assert gauge(client, "sessions") == 2
        with roles(run).ledger.writing() as transaction:
            transaction.rows.connection.exec_driver_sql("UPDATE sessions SET seen_at = 0 WHERE host = 'elsewhere'")
            transaction.settle()
    assert (gauge(client, "sessions"), gauge(client, "lost_sessions_total")) == (1, 1)
    assert gauge(client, "oldest_heartbeat_seconds") < LEASE_SECONDS


def test_metrics_tell_repairs(client, path):
    names = ("repair_running", "repair_share", "last_repair_failed")
    assert [gauge(client, name) for name in names] == [0, 0, 0]
    with s3t.Run.open(path) as run, roles(run).ledger.writing() as transaction:
        first = transaction.repairs.begin("ops", hours=None, stages=2)
        transaction.repairs.beat(first.id, process=first.process, trained=1, share=0.5, seconds=1.0)
    assert [gauge(client, name) for name in names] == [1, 0.5, 0]
    with s3t.Run.open(path) as run, roles(run).ledger.writing() as transaction:
        transaction.repairs.end(first.id, process=first.process, error="StorageError")
    assert [gauge(client, name) for name in names] == [0, 0, 1]


@pytest.mark.integration
def test_metrics_tell_held_deletions(path):
    with serving(path, open_scopes=("delete", "operate"), hold_records=0) as client:
        assert gauge(client, "held_deletions") == 0
        held = client.post("/v1/deletions", json={"records": ["r0"]}).json()["held"]
        assert gauge(client, "held_deletions") == 1
        client.post(f"/v1/held/{held}/refuse", json={"reason": "a test"})
        assert gauge(client, "held_deletions") == 0
