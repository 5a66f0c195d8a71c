"""The benchmark of scaling: its arithmetic, and that it and the one of trainings at once work."""

import json
import sys

import pytest

import s3t
from benchmarks import scaling, together
from benchmarks.scaling_picture import PANELS, panel_rows
from testing import tiny


def test_the_work_of_training_is_what_a_pencil_finds(text_model, tmp_path):
    size = {"partition": {"shards": 1, "slices": 3}, "sequences": {"budget": 1}, "training": {"epochs": 2}}
    with s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model, **size), data=tiny.text_table(12)) as run:
        inventory = run.inventory()
        ((order,),) = inventory.orders
        a, b, c = (inventory.records[scaling.Place(0, index)] for index in order)
        plain, cached = (
            scaling.training_work(run, scaling.Point(layers=3, slices=3, budget=1, cached=cached))
            for cached in (False, True)
        )
    # Two epochs; without the cache all 3 layers forward, and as many backward as there are blocks on.
    assert plain[0] == 2 * (a * (3 + 1) + (a + b) * (3 + 2) + (a + b + c) * (3 + 3))
    # With it the blocks alone, and once each slice through the layers below the stage that sees it first.
    assert cached[0] == 2 * (a * 2 + (a + b) * 4 + (a + b + c) * 6) + a * 2 + b * 1 + c * 0
    assert plain[1:] == cached[1:] == [1 + 2 + 3, 1]


def test_the_work_of_a_prediction_has_the_trunk_once():
    point = scaling.Point(layers=12, slices=4, shards=5, depth=4)
    assert scaling.prediction_work(point, 10) == [10 * (8 + 5 * 4), 10 * 5 * 4, 5, 1]


def test_fitting_finds_the_costs_that_made_the_times():
    work = [[100.0, 10.0, 3.0], [300.0, 20.0, 2.0], [50.0, 30.0, 9.0], [10.0, 70.0, 4.0]]
    rows = [{"work": one, "seconds": 0.01 * one[0] + 0.2 * one[1]} for one in work]
    found = scaling.fitted(rows)
    assert found["seconds_a_unit_of_work"] == pytest.approx([0.01, 0.2, 0.0], abs=1e-9)
    assert found["largest_deviation"] < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark", "parts"), [(scaling, ("training", "prediction")), (together, ("at_once", "one_after_another"))]
)
def test_it_measures_and_goes_on_from_its_file(benchmark, parts, tmp_path, monkeypatch, capsys):
    picture = ["--picture", str(tmp_path / "picture.png")] * (benchmark is scaling)
    command = ["benchmark", "--quick", "--json", "--results", str(tmp_path / "results.json"), *picture]
    monkeypatch.setattr(sys, "argv", command)
    benchmark.main()
    found = json.loads(capsys.readouterr().out)
    if benchmark is scaling:
        for part, name, _ in PANELS:
            assert len(panel_rows(found[part]["points"], name, cached=True)) >= 2, (part, name)
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    else:
        cases = found["together"]["cases"]
        assert {each["where"] for each in cases} >= {"all cores"}
        assert all(each["resolved_threads"] == 1 for each in cases if each["threads"] == "auto")
        assert [each["width"] for each in found["widths"]["widths"]] == [16, 16, 32, 32]
    for part in parts:
        monkeypatch.setattr(benchmark, part, None)
    benchmark.main()
    assert json.loads(capsys.readouterr().out) == found
