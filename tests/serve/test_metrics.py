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


def gauges(client, *names):
    """Numbers of the run that the server's page tells."""
    page = client.get("/metrics").text
    return [float(re.search(rf'(?m)^s3t_{name}{{run="run"}} (\S+)$', page)[1]) for name in names]


@pytest.mark.parametrize("erase_within", [0, 3600])
def test_metrics_tell_deletions_that_are_not_effective_or_not_erased_in_time(path, erase_within):
    tiny.change_recipe(path, deletion={"erase_within": erase_within})
    ages = ("oldest_ineffective_seconds", "oldest_unfinished_seconds", "erasure_overdue_seconds")
    names = ("ineffective_deletions", "unfinished_deletions", *ages)
    with serving(path, open_scopes=("predict", "operate")) as client, s3t.Run.open(path) as run:
        assert gauges(client, *names) == [0, 0, 0, 0, 0]
        roles(run).deleter.patience = 0.0
        with run.hold(TEXTS) as answers:
            assert answers.may_leave()
            run.delete(records=["r0"])
            ineffective, unfinished, oldest_ineffective, oldest_unfinished, overdue = gauges(client, *names)
            assert (ineffective, unfinished) == (1, 1)
            assert min(oldest_ineffective, oldest_unfinished) > 0
            assert (overdue > 0) == (erase_within == 0)


def test_metrics_tell_the_forecast_of_the_present_state(client, path):
    names = ("deletions_to_less_depth", "deletions_to_first_dead_shard", "deletions_to_last_dead_shard", "slices")
    before = gauges(client, *names)
    assert before == gauges(client, *names)
    client.post("/v1/deletions", json={"records": ["r0", "r1"]})
    with s3t.Run.open(path) as run:
        ahead = run.forecast()
    least = min(ahead.depth_falls_below.values(), default=ahead.next_shard_dies)
    assert gauges(client, *names) == [least, ahead.next_shard_dies, ahead.all_shards_die, 3] != before


def test_metrics_tell_open_runs_those_that_were_lost_and_repairs(client, path):
    names, of_repairs = ("sessions", "lost_sessions_total"), ("repair_running", "repair_share", "last_repair_failed")
    client.post("/v1/predict", json={"inputs": TEXTS})
    assert gauges(client, *names, *of_repairs) == [1, 0, 0, 0, 0]
    with s3t.Run.open(path) as run:

        def writing():
            return roles(run).ledger.writing()

        with writing() as transaction:
            transaction.sessions.enter(Session(host="elsewhere"), generation=0)
            first = transaction.repairs.begin("ops", hours=None, stages=2)
            transaction.repairs.beat(first.id, process=first.process, trained=1, share=0.5, seconds=1.0)
        assert gauges(client, *names, *of_repairs) == [2, 0, 1, 0.5, 0]
        with writing() as transaction:
            transaction.rows.connection.exec_driver_sql("UPDATE sessions SET seen_at = 0 WHERE host = 'elsewhere'")
            transaction.settle()
            transaction.repairs.end(first.id, process=first.process, error="StorageError")
    assert gauges(client, *names, *of_repairs) == [1, 1, 0, 0, 1]
    assert gauges(client, "oldest_heartbeat_seconds")[0] < LEASE_SECONDS
