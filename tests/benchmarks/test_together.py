"""The arithmetic of the benchmark of trainings at once."""

import pytest

from benchmarks import together
from benchmarks.together import Case


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(together, "usable_cores", lambda: (4, 7))


def row(case, wall, cpu, threads=1):
    return vars(case) | {"wall": wall, "cpu": cpu, "resolved_threads": threads, "load_before": 0.5}


def test_a_fair_share_is_a_core_or_what_is_left_of_all(two_cores):
    shares = [Case(where="all cores", trainings=count, threads=2).fair_share(10) for count in (1, 2, 3)]
    assert shares == [10, 10, 15]
    assert Case(where="quota", trainings=2, threads=2).fair_share(10) == 20


def test_the_slowest_counts_and_is_compared_with_one_alone_of_its_round(two_cores):
    three = Case(where="all cores", trainings=3, threads="auto")
    rounds = [
        [
            row(together.ALONE, [10 * slow], [8 * slow]),
            row(three, [12, 18 * slow * over, 11], [8 * slow] * 3, threads=2),
        ]
        for slow, over in ((1, 1), (4, 3), (2, 2))
    ]
    alone, found = together.together_concluded(rounds)["cases"]
    assert (alone["wall_over_fair_share"], alone["cpu_over_alone"]) == (1, 1)
    assert (found["threads"], found["resolved_threads"]) == ("auto", 2)
    assert found["wall_over_fair_share"] == pytest.approx(2 * 18 / 15)
    assert found["cpu_over_alone"] == 1


def test_threads_are_worth_it_until_they_cost_more_than_a_fair_share():
    cpu = {1: 10, 2: 10.5, 4: 12, 8: 10}
    rows = [
        {"width": 8, "precision": "float32", "threads": threads, "cpu": seconds, "main_cpu": 10 / threads}
        for threads, seconds in cpu.items()
    ]
    (found,) = together.widths_concluded([rows])["widths"]
    assert found["cpu"] == {1: 1, 2: 1.05, 4: 1.2, 8: 1}
    assert found["main_cpu"] == {1: 1, 2: 0.5, 4: 0.25, 8: 0.125}
    assert found["worth"] == 2
