"""The trials can fail: each of these mistakes, planted into s3t, is found by one of them."""

import random

import pytest

from tests.faults.client import Client
from tests.faults.trial import Result, Trial, applies


def first_found(client: Client, plant: str, *, scenario: str, kind: str, tells: str) -> Result:
    """A trial that finds it. Points are tried in an order of no meaning; where the power is lost, the last first: by
    then most is written."""
    types = client.points(scenario)
    points = [point for point, type_of_point in enumerate(types, 1) if applies(kind, type_of_point)]
    random.Random(0).shuffle(points)
    if kind == "power":
        points.sort(reverse=True)
    for point in points:
        result = client.try_out(Trial(scenario=scenario, kind=kind, point=point, seed=point, plant=plant))
        if any(tells in problem for problem in result.problems):
            return result
    raise AssertionError(f"no trial of {scenario} with {kind} finds the planted {plant}")


@pytest.mark.parametrize(
    ("plant", "scenario", "kind", "tells"),
    [
        ("acknowledge-early", "delete-one", "kill", "are still there"),
        ("skip-fsync", "delete-one", "power", "RestoredError"),  # a slice that came back is noticed at opening
        ("skip-sweep", "train", "kill", "left behind"),
        ("skip-unfinished", "export-and-delete", "kill", "left behind by an export"),
        ("skip-erasure", "delete-one", "kill", "is not one of a run that never knew"),
        ("skip-finish", "open-unfinished", "kill", "are still there"),
        ("swallow-os-errors", "delete-one", "fsync", "a failed fsync was taken for done"),
        ("witness-first", "delete-one", "kill", "RestoredError"),
    ],
)
def test_a_planted_mistake_is_found(client, plant, scenario, kind, tells):
    result = first_found(client, plant, scenario=scenario, kind=kind, tells=tells)
    assert f"python -m tests.faults {scenario} {kind} {result.trial.point}" in str(result)


def test_a_write_that_the_shim_does_not_see_is_found(client):
    """So that a point is never missing in silence: the counted calls must explain every byte of the folder."""
    result = client.try_out(Trial(scenario="delete-one", kind="count", point=0, seed=0, plant="write-unseen"))
    assert result.problems == ("the shim did not see how run/recipe.yaml came to be",)
