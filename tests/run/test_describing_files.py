"""run.json and recipe.yaml are believed only as they were written."""

import json
import re

import pytest
import yaml

import s3t
from s3t.core import Secret
from s3t.store.folder import recipe_check
from testing import tiny


@pytest.fixture
def run(trained_once, tmp_path):
    return tiny.copy_run(trained_once, tmp_path / "run")


def refused(run):
    with pytest.raises(s3t.IntegrityError) as caught:
        s3t.Run.open(run)
    return str(caught.value)


def test_a_run_json_that_changed_is_refused(run):
    path = run / "run.json"
    content = path.read_text()
    for old, new in (('"a"', '"c"'), ('"version": "', '"version": "9'), ('"format": 1', '"format": 2')):
        assert old in content
        path.write_text(content.replace(old, new, 1))
        assert "run.json" in refused(run)
    path.write_text(content)
    s3t.Run.open(run).close()


def test_a_recipe_that_changed_is_refused_but_for_the_caches_sizes(run):
    path = run / "recipe.yaml"
    recipe = yaml.safe_load(path.read_text())
    recipe["training"]["cache_memory"] = "1 GiB"
    path.write_text(yaml.safe_dump(recipe))
    s3t.Run.open(run).close()
    recipe["prediction"]["batch_size"] += 1
    path.write_text(yaml.safe_dump(recipe))
    recipe["training"]["seed"] += 1
    path.write_text(yaml.safe_dump(recipe))
    told = refused(run)
    assert "recipe.yaml changed since the run was made, in" in told
    assert {"training.seed", "prediction.batch_size"} == {*re.search(r", in (.*)\. A run", told)[1].split(", ")}


@pytest.mark.parametrize(("section", "field"), [("text", "pooling"), ("training", "shortcuts")])
def test_a_run_that_was_made_before_a_field_existed_is_refused_in_words(run, section, field):
    own = yaml.safe_load((run / "recipe.yaml").read_text())[section]
    tiny.change_recipe(run, **{section: {name: value for name, value in own.items() if name != field}})
    with pytest.raises(
        s3t.RunFolderError, match=rf"earlier state of s3t [\d.]+, which knew no {section}\.{field}, .*make"
    ):
        s3t.Run.open(run)


def test_without_the_secret_nothing_can_be_checked_and_the_run_answers_on(trained):
    run = trained.path
    before = trained.predict(["w1 w30"])
    trained.destroy_key()
    trained.close()
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["prediction"]["batch_size"] += 1
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    with s3t.Run.open(run) as opened:
        assert opened.predict(["w1 w30"]).members == before.members


@pytest.mark.integration
def test_orders_that_are_added_are_checked_too(run):
    with s3t.Run.open(run) as opened:
        opened.extend(budget=4)
    described = json.loads((run / "run.json").read_text())
    described["orders"][0][-1] = described["orders"][0][-1][::-1]
    (run / "run.json").write_text(json.dumps(described))
    assert "its check fails" in refused(run)


def test_every_field_of_a_recipe_has_a_check_of_its_own():
    """Also those whose names differ in a full stop alone, as what stands for labels may."""
    recipe = {"task": "x", "label_names": {"No": "no", "No.": "none", "": "empty"}, "training": {"cache_disk": 1}}
    checks = recipe_check(recipe, Secret(salt=tiny.SALT))
    assert checks.keys() == {"task", "label_names.No", "label_names.No.", "label_names."}
    assert len({*checks.values()}) == 4
