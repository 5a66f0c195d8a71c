"""The table of methods: that it is made, and that what is committed and told is what was measured."""

import json
import sys

import pytest

from experiments.methods.__main__ import FOLDER, RESULTS, main
from experiments.methods.experiment import Config, recipe_of
from experiments.methods.table import table
from experiments.settings import load
from experiments.tasks import task
from s3t.recipe import recipe_from

CONFIG = load(Config, FOLDER / "config.yaml")


@pytest.mark.integration
def test_the_smoke_run_measures_every_method_and_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    results = tmp_path / "results.json"

    def measured(*arguments):
        monkeypatch.setattr(sys, "argv", ["methods", "--smoke", "--results", str(results), *arguments])
        main()
        return json.loads(results.read_text())

    monkeypatch.chdir(tmp_path)
    of_full = measured("--method", "full")["rows"]["full"]
    assert of_full["deletions_until_dead"] == [1]
    capsys.readouterr()
    found = measured()
    assert capsys.readouterr().out.strip() == table(found).strip()
    rows = found["rows"]
    assert list(rows) == ["full", *(name for name in CONFIG.methods if name != "full")]
    assert rows["full"] == of_full
    for row in rows.values():
        assert min(row["stored_bytes"], row["deletion_ms"]) > 0 <= row["accuracy"] <= 1
    stages = {name: row["stages"] for name, row in rows.items()}
    assert (stages["s3t"], stages["sisa"], stages["protosisa"], stages["sequential"]) == (3 * (3 + 3 + 3), 9, 18, 3)
    assert rows["sisa, all parameters"]["stored_bytes"] > 10 * rows["sisa"]["stored_bytes"]
    assert min(rows["s3t"]["deletions_until_dead"]) >= 3


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--smoke"], "--results"), (["--method", "sista"], "no method is called sista")]
)
def test_a_smoke_run_beside_the_real_results_and_a_method_that_is_none_are_refused(
    arguments, said, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["experiments.methods", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", CONFIG.methods)
def test_every_recipe_is_one_and_adapts_as_many_layers(name):
    recipe = recipe_from(recipe_of(CONFIG, name, task("banking77", made_up=True)))
    layers = recipe.adapter.layers if recipe.method.one_order else recipe.adapter.layers_per_slice * 3
    assert layers == ("all" if recipe.method.trainable == "all" else 6)


def test_the_guide_has_the_table_of_the_committed_results_and_those_are_of_the_committed_settings():
    results = json.loads(RESULTS.read_text())
    assert results["config"] == CONFIG.model_dump(mode="json")
    assert results["rows"].keys() == CONFIG.methods.keys()
    assert table(results) in (FOLDER / "README.md").read_text()
