"""The benchmark of the server: what it counts, and that no answer is stale while people are deleted."""

import argparse

import pytest

from benchmarks import service, steady_rate
from benchmarks.http_load import Answer, Deletion, counted


def test_an_answer_is_stale_if_a_deletion_was_effective_before_it_was_asked_for():
    deletions = [Deletion(1.0, 202, 1, "effective"), Deletion(2.0, 202, 2, "accepted"), Deletion(3.0, 202, 3, "erased")]
    answers = [
        Answer(0.9, 1.5, 200, 0, 0),  # asked before
        Answer(1.1, 1.2, 200, 0, 0),  # stale
        Answer(2.5, 2.6, 200, 1, 1),  # 2 is not effective yet
        Answer(3.1, 3.2, 200, 2, 2),  # stale
        Answer(3.1, 3.2, 200, 3, 4),  # of two generations
        Answer(3.1, 3.2, 503, None, None),
        Answer(3.1, 3.2, 0, None, None),
    ]
    found = counted(answers, deletions)
    assert (found["answers"], found["errors"], found["stale"], found["mixed"]) == (7, 2, 2, 1)
    assert (found["deletions"], found["deletions_not_effective_when_answered"]) == (3, 1)
    assert found["deletions_after_last_answer"] == 0
    assert found["latencies"] == [100.0] * 4 + [600.0]


@pytest.mark.integration
def test_two_workers_answer_while_people_are_deleted_and_repairs_run(tmp_path):
    found = service.load(tmp_path, argparse.Namespace(quick=True, data=""))
    during = found["during"]
    assert (during["answers"], during["deletions"]) == (400, 8)
    assert during["generations"] > 1
    for phase in ("before", "during", "after"):
        assert (found[phase]["errors"], found[phase]["stale"], found[phase]["mixed"]) == (0, 0, 0)
    assert during["deletions_refused"] == during["deletions_not_effective_when_answered"] == 0
    assert found["repairs"] > 0


@pytest.mark.integration
def test_the_server_and_its_opponents_answer_the_same_requests(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "CLIENTS", (2,))
    monkeypatch.setattr(service, "TEXTS_OF", {"banking77": service.TEXTS_OF["banking77"]})
    found = service.throughput(tmp_path, argparse.Namespace(quick=True, data=""))
    assert [(case["connections"], case["texts"]) for case in found["banking77"]] == [(2, 1), (2, 16)]
    assert all(min(rates) > 0 for case in found["banking77"] for rates in case["texts_a_second"].values())


@pytest.mark.integration
def test_people_are_deleted_at_a_steady_rate(tmp_path):
    found = steady_rate.steady(tmp_path, argparse.Namespace(quick=True, data=""), 3.0, 1000, "trained")
    assert (found["deletions"], found["not_erased"]) == (6, 0)
    assert found["answers"]["200"] > 6
    assert found["stage_seconds"][0] > 0
    assert found["effective_ms"]["50"] <= found["erased_ms"]["50"]
