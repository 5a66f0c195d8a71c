"""The benchmark of training: its arithmetic, and that every part works."""

import argparse
import json
from functools import partial

import pytest

from benchmarks import training
from benchmarks.flops import cache_bound
from benchmarks.variant import Stopwatch, steady


def test_the_bound_of_the_cache_is_the_layers_passed_without_it_over_those_with_it():
    bound = partial(cache_bound, layers=6, width=2)
    assert bound([1]) == (6 + 2) / 4
    assert bound([1, 2, 3]) == pytest.approx((8 + 20 + 36) / (4 + 16 + 36))
    assert bound([3]) == 1  # all layers are blocks: there is no trunk


def test_a_stopwatch_tells_filling_from_steps_and_the_first_epoch_from_the_others(monkeypatch):
    clock = iter([0.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0])
    monkeypatch.setattr("benchmarks.variant._settled", lambda: next(clock))
    watch = Stopwatch()
    watch.note("stage")
    for count in (0, 0, 0, 32, 8, 32, 8):
        watch.advance(count)
    (stage,) = watch.report(2)
    assert stage == {"stage": "stage", "steps": 2, "records": 40, "fill": 3.0, "epochs": [8.0, 4.0]}
    assert steady(stage) == 4.0
    with pytest.raises(RuntimeError, match="are not 3 epochs"):
        watch.report(3)


@pytest.mark.slow
@pytest.mark.parametrize("part", training.PARTS)
def test_every_part_measures_every_variant_and_is_resumed(part, real_data, tmp_path, monkeypatch):
    options = argparse.Namespace(data=real_data, results=tmp_path, quick=True, repetitions=1)
    found = training.resumed(part, options)
    assert found["variants"].keys() == training.PARTS[part].variants.keys()
    assert all(variant["seconds"] > 0 for variant in found["variants"].values())
    # With few records, the peak can be that of the trial at init.
    assert all(variant["peak_bytes"] >= variant["peak_bytes_before"] for variant in found["variants"].values())
    if part == "peak":
        assert all(0 < share < 1 for one in found["share_of_peak"].values() for share in one["stages"])
    if part == "cache":
        options.quick, options.repetitions = False, 2
        monkeypatch.setattr(training, "repetition", partial(training.repetition, quick=True))
        again = training.resumed(part, options)
        assert {variant: runs[:1] for variant, runs in again["runs"].items()} == found["runs"]
        assert {len(runs) for runs in again["runs"].values()} == {2}
        found = again
    monkeypatch.delattr(training, "repetition")
    assert training.resumed(part, options) == found
    training.show(part, found)


def test_results_of_another_machine_are_not_mixed_with_ours(tmp_path):
    (tmp_path / "training-cache.json").write_text(json.dumps({"machine": training.describe() | {"cores": 0}}))
    with pytest.raises(SystemExit, match="another machine"):
        training.resumed("cache", argparse.Namespace(results=tmp_path, quick=False, repetitions=3))
