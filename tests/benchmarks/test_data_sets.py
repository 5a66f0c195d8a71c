"""What is told of training on five data sets, and of a deep model of random weights."""

from itertools import pairwise

import pytest
import transformers

from benchmarks import data_sets, deep
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
    first = {COMPETENT: run_of(20, [[1, 1]], 0.5), PLAIN: run_of(40, [], 0.4), "s3t": run_of(10, [[1, 1]], 0.5)}
    found = data_sets.concluded([first, {COMPETENT: run_of(20, [[1, 1]], 0.5), "s3t": run_of(1, [[1, 1]], 0.9)}])
    assert found["every_time_as_plain"] == [4]
    assert found["points_above_plain"] == {"mean": pytest.approx(10), "standard_error": None}
    assert (found["seconds"][PLAIN], found["scores"][PLAIN]) == (40, 0.4)


@pytest.fixture
def asked(monkeypatch):
    """Jobs that are measured, without being done."""
    jobs = []
    monkeypatch.setattr(data_sets, "measure", lambda job: jobs.append(job) or run_of(1.0, [[1.0, 1.0]], 0.5))
    return jobs


def test_each_data_set_has_its_seeds_and_the_slow_opponent_one(tmp_path, monkeypatch, asked):
    monkeypatch.setattr(data_sets, "task", lambda name, **_: name)
    monkeypatch.setattr(data_sets, "written", lambda found, folder: (folder, folder))
    monkeypatch.setattr(data_sets, "recipe_of", lambda found, *_, seed: {"training": {}, "asked": (found, seed)})
    data_sets.resumed("opponents", ["cola", "stsb"], tmp_path, quick=False)
    for name, seeds in (("cola", 3), ("stsb", 8)):
        for variant, count in (("s3t", seeds), (COMPETENT, seeds), (PLAIN, 1)):
            given = [job.recipe["asked"] for job in asked if job.variant == variant]
            assert {seed for found, seed in given if found == name} == {*range(count)}


@pytest.mark.integration
@pytest.mark.parametrize("part", data_sets.PARTS)
def test_a_data_set_is_measured_with_every_variant_and_not_again(part, real_data, tmp_path, asked):
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


@pytest.mark.integration
def test_a_deep_model_is_measured_with_every_variant_and_not_again(real_data, tmp_path, monkeypatch):
    asked = []

    def measured(job):
        layers = transformers.AutoConfig.from_pretrained(job.recipe["base_model"]).num_hidden_layers
        assert layers == deep.SLICES * job.recipe["adapter"]["layers_per_slice"]
        asked.append(job)
        return run_of(1.0, [[1.0, 1.0]] * 6, 0.5)

    monkeypatch.setattr(deep, "measure", measured)
    for _ in range(2):
        result = deep.resumed(tmp_path, quick=True)
    assert [job.variant for job in asked] == [*deep.VARIANTS]
    assert all(one.recipe == other.recipe for one, other in pairwise(asked))
    assert result["times_as_fast_by_stage"] == [1.0] * 6
