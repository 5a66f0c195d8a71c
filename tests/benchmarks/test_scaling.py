"""The benchmark of scaling: its arithmetic, and that it works."""

import json
import sys

import pytest

import s3t
from benchmarks import scaling
from benchmarks.scaling_picture import PANELS, panel_rows
from testing import tiny


def run_of(tmp_path, model, **sequences):
    recipe = tiny.recipe(
        model,
        partition={"shards": 1, "slices": 3},
        sequences={"selector": "cyclic-adjacent"} | sequences,
        training={"epochs": 2},
    )
    return s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(12))


def test_the_work_of_training_is_what_a_pencil_finds(text_model, tmp_path):
    with run_of(tmp_path, text_model, budget=1) as run:
        a, b, c = (len(rows) for rows in slices_in_order(run))
        point = scaling.Point(layers=3, slices=3, budget=1)
        plain = scaling.training_work(run, scaling.Point(layers=3, slices=3, budget=1, cached=False))
        cached = scaling.training_work(run, point)
    # Two epochs; without the cache all 3 layers forward, and as many backward as there are blocks on.
    assert plain[0] == 2 * (a * (3 + 1) + (a + b) * (3 + 2) + (a + b + c) * (3 + 3))
    # With it the blocks alone, and once each slice through the layers below the stage that sees it first.
    assert cached[0] == 2 * (a * 2 + (a + b) * 4 + (a + b + c) * 6) + a * 2 + b * 1 + c * 0
    assert plain[1:] == cached[1:] == [1 + 2 + 3, 1]


def test_the_work_of_a_prediction_has_the_trunk_once():
    point = scaling.Point(layers=12, slices=4, shards=5, depth=4)
    assert scaling.prediction_work(point, 10) == [10 * (8 + 5 * 4), 10 * 5 * 4, 5, 1]


def slices_in_order(run):
    inventory = run.inventory()
    (order,) = inventory.orders[0]
    return [range(inventory.records[scaling.Place(0, index)]) for index in order]


def test_fitting_finds_the_costs_that_made_the_times():
    work = [[100.0, 10.0, 3.0], [300.0, 20.0, 2.0], [50.0, 30.0, 9.0], [10.0, 70.0, 4.0]]
    rows = [{"work": one, "seconds": 0.01 * one[0] + 0.2 * one[1]} for one in work]
    found = scaling.fitted(rows)
    assert found["seconds_a_unit_of_work"] == pytest.approx([0.01, 0.2, 0.0], abs=1e-9)
    assert found["largest_deviation"] < 1e-9


@pytest.mark.slow
def test_it_measures_draws_and_goes_on_from_its_file(tmp_path, monkeypatch, capsys):
    results, picture = tmp_path / "scaling.json", tmp_path / "scaling.png"
    command = ["scaling", "--quick", "--json", "--results", str(results), "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", command)
    scaling.main()
    found = json.loads(capsys.readouterr().out)
    for part, name, _ in PANELS:
        assert len(panel_rows(found[part]["points"], name, cached=True)) >= 2, (part, name)
    assert picture.read_bytes().startswith(b"\x89PNG")
    drawn = picture.read_bytes()
    monkeypatch.setattr(scaling, "training", None)
    monkeypatch.setattr(scaling, "prediction", None)
    scaling.main()
    assert json.loads(capsys.readouterr().out) == found
    assert picture.read_bytes() == drawn
