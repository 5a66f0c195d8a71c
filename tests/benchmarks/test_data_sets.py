"""What is told of training on five data sets."""

from itertools import pairwise

import pytest

from benchmarks import data_sets
from benchmarks.data_sets import COMPETENT, FIRST, FROZEN, PLAIN


def run_of(seconds, stages, score):
    return {"seconds": seconds, "stages": [{"epochs": epochs} for epochs in stages], "accuracy": [score]}


def test_ratios_are_medians_over_seeds_and_points_are_means():
    runs = [
        {
            COMPETENT: run_of(theirs, [[2, 2], [6, 6]], 0.5),
            PLAIN: run_of(2 * theirs, [[2, 2], [6, 6]], 0.4),
            "s3t": run_of(10, [[1.5, 0.5], [4, 4]], score),
        }
        for theirs, score in ((20, 0.5), (30, 0.6), (10, 0.7))
    ]
    found = data_sets.concluded(runs)
    assert (found["times_as_fast"], found["every_time"]) == (2, [2, 3, 1])
    assert (found["times_as_fast_as_plain"], found["every_time_as_plain"]) == (4, [4, 6, 2])
    assert found["times_as_fast_by_stage"] == [2, 1.5]
    assert found["times_as_fast_once_filled"] == [4, 1.5]
    assert found["cache_bound_by_stage"] == [1.5, 1]  # forward and backward: 2 + 1 layers, with the cache 1 + 1
    assert found["cache_bound"] == pytest.approx((3 + 2 * 4) / (2 + 2 * 4))
    assert found["points_above"] == pytest.approx({"mean": 10, "standard_error": 10 / 3**0.5})
    assert found["points_above_plain"]["mean"] == pytest.approx(20)
    assert found["seconds"] == {COMPETENT: 20, PLAIN: 40, "s3t": 10}


def test_a_variant_that_was_measured_once_is_compared_within_that_repetition():
    runs = [
        {COMPETENT: run_of(20, [[1, 1]], 0.5), PLAIN: run_of(40, [], 0.4), "s3t": run_of(10, [[1, 1]], 0.5)},
        {COMPETENT: run_of(20, [[1, 1]], 0.5), "s3t": run_of(1, [[1, 1]], 0.9)},
    ]
    found = data_sets.concluded(runs)
    assert found["every_time_as_plain"] == [4]
    assert found["points_above_plain"] == {"mean": pytest.approx(10), "standard_error": None}
    assert (found["seconds"][PLAIN], found["scores"][PLAIN]) == (40, 0.4)


def test_each_data_set_has_its_seeds_and_the_slow_opponent_one(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(data_sets, "task", lambda name, **_: name)
    monkeypatch.setattr(data_sets, "written", lambda found, folder: (folder, folder))
    monkeypatch.setattr(data_sets, "recipe_of", lambda found, *_, seed: {"training": {}, "asked": (found, seed)})
    monkeypatch.setattr(
        data_sets,
        "measure",
        lambda job: asked.append((*job.recipe["asked"], job.variant)) or run_of(1.0, [[1.0, 1.0]], 0.5),
    )
    data_sets.resumed("opponents", ["cola", "stsb"], tmp_path, quick=False)
    seeds = {(name, variant): {s for n, s, v in asked if (n, v) == (name, variant)} for name, _, variant in asked}
    assert seeds["cola", "s3t"] == seeds["cola", COMPETENT] == {0, 1, 2}
    assert seeds["stsb", "s3t"] == seeds["stsb", COMPETENT] == {*range(8)}
    assert seeds["cola", PLAIN] == seeds["stsb", PLAIN] == {0}


@pytest.mark.integration
@pytest.mark.parametrize("part", data_sets.PARTS)
def test_a_data_set_is_measured_with_every_variant_and_not_again(part, real_data, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(data_sets, "measure", lambda job: asked.append(job) or run_of(1.0, [[1.0, 1.0]], 0.5))
    for _ in range(2):
        result = data_sets.resumed(part, ["cola", "cifar10"], tmp_path, quick=True)
    names, variants = [*result["data_sets"]], data_sets.PARTS[part].variants
    assert set(names) == {"cola", "cifar10"} & set(data_sets.PARTS[part].names)
    opponents, texts_only = {COMPETENT, PLAIN, FROZEN}, {FIRST}
    assert [job.variant for job in asked] == [
        v if v in opponents else "s3t" for name in names for v in variants if name == "cola" or v not in texts_only
    ]
    for one, other in pairwise(asked[: len(variants)]):
        assert (one.recipe == other.recipe) == (part == "opponents")
