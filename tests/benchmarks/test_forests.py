"""The benchmark of forests, in small."""

import pytest

from benchmarks.forests import DEEP, choice, compare_simulation


def test_both_ways_of_simulating_are_about_the_exact_cost():
    found = compare_simulation(1, 6, systems=60)
    cost = found["cost"]
    assert cost["s3t"]["mean"] == pytest.approx(cost["exact"], rel=0.02)
    assert cost["plain"]["mean"] == pytest.approx(cost["exact"], rel=0.02)
    assert found["plain_seconds_scaled_to_all_systems"] == pytest.approx(10 * found["plain_seconds"])


def test_a_choice_is_of_what_one_deletion_takes():
    found = choice(range(0, 64, 16))
    assert 0 < found["median_milliseconds"] <= found["longest_milliseconds"]
    assert found["most_stages"] <= DEEP.depth
