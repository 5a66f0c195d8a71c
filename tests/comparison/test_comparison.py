"""`s3t compare` on tiny models: real trainings, scores of real runs, and nothing left behind."""

import json

import pytest
import sqlalchemy
import yaml

import s3t
from s3t.comparison import OWN, _Sample, compare, systems_of
from s3t.deletion.unfinished import passing_folder
from s3t.processes import this_machine
from s3t.recipe import recipe_from
from s3t.tuning import with_values
from testing import tiny
from testing.language import language_recipe, make_language_model, prompt_table
from tests.cli.typed import document, invoke


@pytest.fixture
def alone(monkeypatch):
    """Compare the recipe's own system alone."""

    def own(recipe, **sizes):
        found, _ = systems_of(recipe, **sizes)
        return {OWN: found[OWN]}, {}

    monkeypatch.setattr("s3t.comparison.systems_of", own)


@pytest.fixture
def world(text_model, tmp_path):
    """A folder with records and a recipe."""
    folder = tmp_path / "world"
    folder.mkdir()
    tiny.text_table(60).to_csv(folder / "data.csv", index=False)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(tiny.recipe(text_model, training={"epochs": 1})))
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_nothing_is_left(world, state):
    assert (names(world), names(state)) == (["data.csv", "recipe.yaml"], [])


@pytest.mark.integration
def test_scores_are_those_of_a_run_of_that_recipe(world, state, tmp_path, alone):
    recipe, test = recipe_from(world / "recipe.yaml"), tiny.text_table(30, seed=1)
    found = compare(world / "recipe.yaml", data=world / "data.csv", evaluate=test)
    (system,) = found.systems
    assert (system.name, found.left_out, found.records, found.trained_on, found.scored_on) == (OWN, {}, 60, 60, 30)
    assert_nothing_is_left(world, state)
    sample = _Sample.of(recipe, world / "data.csv", test, 2000, 0)
    assert sorted(sample.order) == sorted(tiny.text_table(60).id)
    content = with_values(yaml.safe_load((world / "recipe.yaml").read_text()), {"partition.salt": sample.salt})
    with s3t.Run.create(tmp_path / "run", recipe=content, data=world / "data.csv") as run:
        run.train()
        scores = [run.evaluate(test).accuracy] * 2
        assert system.stored_bytes == run.status(full=True).stored_bytes
        for some in (sample.order[:3], sample.order[3:12]):
            run.delete(records=some)
            scores.append(run.evaluate(test).accuracy if any(run.status().depths) else None)
            run.repair()
            scores.append(run.evaluate(test).accuracy)
    assert [point.deleted for point in system.points] == [0, 3, 12]
    assert [score for point in system.points for score in (point.before, point.after)] == scores
    shown = {"partition": {"shards": 2, "slices": 3}, "sequences": {"budget": 3, "selector": "cyclic"}}
    assert system.recipe == {"method": "s3t"} | shown


@pytest.mark.parametrize(("verb", "error"), [("train", KeyboardInterrupt), ("repair", MemoryError)])
def test_nothing_is_left_behind_by_one_that_is_stopped(world, state, alone, monkeypatch, verb, error):
    def stopped(*_arguments, **_options):
        raise error

    monkeypatch.setattr(s3t.Run, verb, stopped)
    with pytest.raises(error):
        compare(world / "recipe.yaml", data=world / "data.csv")
    assert_nothing_is_left(world, state)


def test_what_a_killed_one_left_is_removed_by_the_next_and_what_another_one_holds_is_not(world, state):
    dead, alive = (world / f".s3t-compare-{this_machine()}-{process}-0" for process in (2**22 + 1, 1))
    for folder in (dead, alive):
        folder.mkdir()
        with s3t.Run.create(folder / "run", recipe=world / "recipe.yaml", data=world / "data.csv") as run:
            run.delete(records=["r1"])
    assert len(names(state)) == 2
    with passing_folder(world, "s3t-compare") as folder:
        assert names(world) == sorted([alive.name, folder.name, "data.csv", "recipe.yaml"])
        assert len(names(state)) == 1


def test_no_schema_stays_in_a_database_that_the_environment_names(world, state, alone, postgres, monkeypatch):
    url = postgres.create_database("s3t_compared")
    monkeypatch.setenv("S3T_LEDGER", url)
    assert len(compare(world / "recipe.yaml", data=world / "data.csv").systems) == 1
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        schemas = connection.execute(sqlalchemy.text("SELECT nspname FROM pg_namespace")).scalars().all()
    engine.dispose()
    assert not [schema for schema in schemas if schema.startswith("s3t")]
    assert_nothing_is_left(world, state)


def test_the_sample_and_what_is_held_out_depend_on_ids_alone(text_model):
    recipe, table = recipe_from(tiny.recipe(text_model, labels="infer")), tiny.text_table(200)
    first, turned = (_Sample.of(recipe, data, None, 60, 0) for data in (table, table.iloc[::-1]))
    assert first.order == turned.order
    assert first.held_out.equals(turned.held_out)
    assert first.rows.num_rows + first.held_out.num_rows == 60
    assert first.total == 200
    assert first.labels == ("a", "b", "c")  # of all records
    owners = tiny.text_table(200, subjects=20)
    owned = recipe_from(tiny.recipe(text_model, columns={"subject": "person"}))
    parts = _Sample.of(owned, owners, None, 200, 0)
    assert not set(parts.rows["subject"].to_pylist()) & set(parts.held_out["subject"].to_pylist())


@pytest.mark.integration
def test_the_command_prints_a_table_lines_and_one_sentence_and_draws(world, monkeypatch):
    picture, asked = world / "systems.svg", ("compare", world / "recipe.yaml", "--data", world / "data.csv")
    shown = invoke(*asked, "--plot", picture)
    assert shown.exit_code == 0, shown.output
    for text in ("trained on 52 of 60 records, scored on 8 (held out)", "ridge", "sisa 2 x 3", "    method: full"):
        assert text in shown.stdout
    assert f"drawn: {picture}" in shown.stdout
    assert "ridge" in picture.read_text()
    assert names(world) == ["data.csv", "recipe.yaml", "systems.svg"]
    found = document(*asked)
    systems = {each["name"] for each in found["systems"]}
    assert len(systems) == 13
    assert {OWN, "ridge", "full", "full, head: ridge", "sisa 1 x 3", "s3t 2 x 3, merged"} <= systems
    assert (found["records"], found["trained_on"], found["scored_on"], found["left_out"]) == (60, 52, 8, {})
    assert found["best"] in systems | {None}
    assert json.dumps(found, allow_nan=False)

    def stopped(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(s3t.Run, "train", stopped)
    ended = invoke(*asked)
    assert (ended.exit_code, ended.stderr.splitlines()[-1]) == (1, "s3t: stopped; nothing is kept")


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["image", "tags", "lists", "numbers", "language"])
def test_all_tasks_are_compared(kind, text_model, image_model, tmp_path):
    few, texts = {"training": {"epochs": 1}}, tiny.text_table(40)
    if kind == "language":
        recipe, data = language_recipe(make_language_model(tmp_path / "model"), **few), prompt_table(40)
    elif kind == "image":
        recipe, data = tiny.recipe(image_model, kind="image", **few), tiny.image_table(40)
    elif kind == "tags":
        recipe, data = tiny.tagging_recipe(text_model, **few), tiny.tagged_table(40)
    elif kind == "lists":
        recipe = tiny.recipe(text_model, task="text-multi-label-classification", **few)
        data = tiny.with_several_labels(texts)
    else:
        recipe = tiny.recipe(text_model, task="text-regression", labels=None, **few)
        data = texts.assign(label=[number / 7 for number in range(40)])
    (tmp_path / "work").mkdir()
    found = compare(recipe, data=data, folder=tmp_path / "work")
    assert found.left_out.keys() == ({"ridge"} if kind == "language" else set())
    assert len(found.systems) == (5 if kind == "language" else 13)
    assert all(point.after is not None for system in found.systems for point in system.points)
    assert (found.guess is None) == (kind == "language")
    assert names(tmp_path / "work") == []
