"""What is told of training on five data sets."""

from itertools import pairwise

import pytest

from benchmarks import data_sets


def run_of(seconds, stages, score):
    return {"seconds": seconds, "stages": [{"epochs": epochs} for epochs in stages], "accuracy": [score]}


def test_ratios_are_medians_over_seeds_and_points_are_means():
    runs = [
        {"competent": run_of(theirs, [[2, 2], [6, 6]], 0.5), "s3t": run_of(10, [[1.5, 0.5], [4, 4]], score)}
        for theirs, score in ((20, 0.5), (30, 0.6), (10, 0.7))
    ]
    found = data_sets.concluded(runs)
    assert (found["times_as_fast"], found["every_time"]) == (2, [2, 3, 1])
    assert found["times_as_fast_by_stage"] == [2, 1.5]
    assert found["times_as_fast_once_filled"] == [4, 1.5]
    assert found["cache_bound_by_stage"] == [1.5, 1]  # forward and backward: 2 + 1 layers, with the cache 1 + 1
    assert found["cache_bound"] == pytest.approx((3 + 2 * 4) / (2 + 2 * 4))
    assert found["points_above"] == pytest.approx(10)
    assert found["seconds"] == {"competent": 20, "s3t": 10}


@pytest.mark.integration
def test_a_data_set_is_measured_with_every_variant_and_not_again(real_data, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(data_sets, "measure", lambda job: asked.append(job) or run_of(1.0, [[1.0, 1.0]], 0.5))
    for _ in range(2):
        result = data_sets.resumed(["cola", "cifar10"], tmp_path, quick=True)
    assert [job.variant for job in asked] == [*data_sets.VARIANTS] * 2
    assert all(one.recipe == other.recipe for one, other in pairwise(asked[:2]))
    assert result["data_sets"].keys() == {"cola", "cifar10"}
