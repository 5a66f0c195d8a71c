"""Wrong input: all problems at once, with the remedy, from the library and from the command line; nothing is left."""

import json
import shutil

import pandas as pd
import pyarrow as pa
import pytest
import yaml

import s3t
from testing import tiny
from tests.cli.typed import invoke


@pytest.fixture(scope="module")
def standing(tmp_path_factory, text_model):
    """An untrained run that wrong input must leave as it is."""
    folder = tmp_path_factory.mktemp("standing") / "run"
    s3t.Run.create(folder, recipe=tiny.recipe(text_model), data=tiny.text_table()).close()
    return folder


def refused(*arguments, status=2):
    """Where the problems are with which the command line refuses, and they."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == status, result.stderr
    error = json.loads(result.stdout)["error"]
    where = error.get("where", "")  # a failure has none
    assert all(told in result.stderr for told in (where, *error["problems"]))
    return where, error["problems"]


def bystanders(folder):
    """All files and folders, to see that nothing was left or changed."""
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def refused_creation(folder, recipe, data):
    """The problems of a creation that both doors refuse, leaving nothing; `data` is a frame or a file."""
    recipe_file, run, path = folder / "recipe.yaml", folder / "runs" / "run", data
    recipe_file.write_text(yaml.safe_dump(recipe))
    if isinstance(data, pd.DataFrame):
        path = folder / "records.parquet"
        data.to_parquet(path)
    run.parent.mkdir()
    before = bystanders(folder)
    with pytest.raises(s3t.InputError) as caught:
        s3t.Run.create(run, recipe=recipe_file, data=path)
    where, problems = refused("init", run, "--data", path, "--recipe", recipe_file)
    assert (where, problems) == (caught.value.where, list(caught.value.problems))
    assert bystanders(folder) == before
    return where, problems


def broken(row, column, value, table=tiny.text_table):
    changed = table()
    changed.loc[row, column] = value
    return changed


def written(name, content):
    return lambda folder: (folder / name, (folder / name).write_bytes(content))[0]


DATA_PROBLEMS = {
    "a duplicate id": (lambda _: broken(5, "id", "r1"), "row 5: the id (column 'id') is a duplicate of row 1's"),
    "no file": (lambda folder: folder / "nowhere.csv", "is not a file; check the path"),
    "a cut file": (
        written("records.parquet", tiny.text_table().to_parquet()[:-100]),
        "is not a readable Parquet file, perhaps truncated",
    ),
    "no JSON": (written("rows.jsonl", b'{"id": 1}\nnope\n{"id": 2}\n'), "line 2 is not JSON"),
    "no image": (
        lambda _: broken(4, "image", b"\x89PNG broken", tiny.image_table),
        "row 4: the image (column 'image') is none of PNG",
    ),
    "no image file": (
        written("records.csv", b"id,image,label\nx,nowhere.png,a\n"),
        "line 2: the image (column 'image') cannot be read",
    ),
}


@pytest.mark.parametrize("what", DATA_PROBLEMS)
def test_wrong_records_are_named_by_file_and_row_and_leave_nothing(what, tmp_path, text_model, image_model):
    made, expected = DATA_PROBLEMS[what]
    data, recipe = made(tmp_path), tiny.recipe(text_model)
    if "image" in what:
        recipe = tiny.recipe(image_model, kind="image")
    where, (problem,) = refused_creation(tmp_path, recipe, data)
    assert where == str(tmp_path / "records.parquet" if isinstance(data, pd.DataFrame) else data)
    assert problem.startswith(expected)


def without_tokenizer(folder):
    """Transformers would make an empty vocabulary, and every text would be the same unknown tokens."""
    for file in folder.glob("tokenizer*"):
        file.unlink()


def truncated_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])


RECIPE_PROBLEMS = {
    "more layers than the model has": (
        {"adapter": {"layers_per_slice": 2}},
        "adapter.layers_per_slice: 3 slices x 2 layers = 6 layers, but the model has 3; ask for fewer",
    ),
    "a target module that is absent": (
        {"adapter": {"target_modules": ["query", "q_proj"]}},
        "adapter.target_modules: q_proj: no such linear module",
    ),
    "a text longer than the model takes": ({"text": {"max_length": 25}}, "text.max_length: 25 exceeds"),
    "a model folder that is missing": ({"base_model": "/nowhere/at/all"}, "'/nowhere/at/all' is not a local folder"),
    "pixels that do not fit": ({"image": {"mean": [0.5, 0.5]}}, "image.mean: 2 numbers for 1 channels"),
    "no tokenizer": (without_tokenizer, "tokenizer"),
    "weights that are cut": (truncated_weights, "model.safetensors"),
}


@pytest.mark.parametrize("what", RECIPE_PROBLEMS)
def test_a_recipe_that_cannot_be_followed_is_named_by_file_and_field_and_leaves_nothing(
    what, tmp_path, text_model, image_model
):
    changes, expected = RECIPE_PROBLEMS[what]
    recipe, table = tiny.recipe(text_model), tiny.text_table()
    if callable(changes):
        recipe["base_model"] = str(shutil.copytree(text_model, tmp_path / "model"))
        changes(tmp_path / "model")
    elif "image" in changes:
        recipe, table = tiny.recipe(image_model, kind="image", **changes), tiny.image_table()
    else:
        recipe = tiny.recipe(text_model, **changes)
    where, (problem,) = refused_creation(tmp_path, recipe, table)
    assert where == str(tmp_path / "recipe.yaml")
    assert expected in problem


def test_problems_of_recipe_and_data_are_listed_together(tmp_path, text_model):
    recipe = tiny.recipe(text_model, adapter={"target_modules": ["nope"]}, text={"max_length": 99})
    table = broken(5, "id", "r1")
    table.loc[2, "label"] = "zzz"
    where, problems = refused_creation(tmp_path, recipe, table)
    assert where == "the recipe and the data"
    assert len(problems) == 4
    wanted = ("adapter.target_modules: nope", "text.max_length", "row 5: the id", "row 2: the label")
    assert all(any(part in problem for problem in problems) for part in wanted)
    for file in ("recipe.yaml", "records.parquet"):
        assert sum(problem.startswith(str(tmp_path / file)) for problem in problems) == 2


def test_a_recipe_file_that_is_not_there_is_named(tmp_path):
    _, (problem,) = refused("init", tmp_path / "run", "--data", "x.csv", "--recipe", tmp_path / "nowhere.yaml")
    assert "check the path" in problem


def made(kind, path):
    """What may lie where a run is looked for, or is to be."""
    match kind:
        case "a folder":
            path.mkdir()
        case "a file":
            path.write_text("mine")
        case "a dangling link":
            path.symlink_to(path.with_name("nowhere"))
    return path


@pytest.mark.parametrize("kind", ["a run", "a folder", "a file", "a dangling link"])
def test_a_run_that_exists_is_refused_and_left_as_it_was(kind, tmp_path, text_model, standing):
    path = standing if kind == "a run" else made(kind, tmp_path / "there")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tiny.recipe(text_model)))
    tiny.text_table().to_csv(tmp_path / "records.csv", index=False)
    before = bystanders(tmp_path), bystanders(standing)
    with pytest.raises(s3t.RunFolderError, match="exists already; choose another folder"):
        s3t.Run.create(path, recipe=tmp_path / "recipe.yaml", data=tmp_path / "records.csv")
    where, _ = refused("init", path, "--data", tmp_path / "records.csv", "--recipe", tmp_path / "recipe.yaml")
    assert where == str(path)
    assert (bystanders(tmp_path), bystanders(standing)) == before


@pytest.mark.parametrize("kind", ["nothing", "a folder", "a file"])
def test_a_folder_that_is_no_run_is_refused_and_left_as_it_was(kind, tmp_path):
    path = made(kind, tmp_path / "thing")
    before = bystanders(tmp_path)
    _, (problem,) = refused("status", path)
    assert "is not a run" in problem
    assert "s3t init" in problem
    with pytest.raises(s3t.RunFolderError):
        s3t.Run.open(path)
    assert bystanders(tmp_path) == before


COMMANDS = {
    "train": (),
    "predict": ("--input", "INPUT"),
    "evaluate": ("--data", "INPUT"),
    "delete": ("--record", "r1"),
    "status": (),
    "repair": (),
    "audit": (),
}


def test_a_folder_of_another_format_is_refused_by_every_command_and_left_as_it_was(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"format": 99, "version": "7.0"}))
    tiny.text_table(6).to_csv(tmp_path / "input.csv", index=False)
    before = bystanders(tmp_path)
    said = "was written by s3t 7.0 in format 99; this version reads format 1: install that version"
    for command, options in COMMANDS.items():
        given = [tmp_path / "input.csv" if option == "INPUT" else option for option in options]
        where, (problem,) = refused(command, run, *given)
        assert where == str(run)
        assert problem.startswith(said)
    assert bystanders(tmp_path) == before


INPUTS = {
    "predict": ("id,label\nx,a\n", "columns.text"),
    "evaluate": ("text,label\nw1,zzz\nw2,a\nw3,zzz\nw4,yyy\n", "lines 2, 4, 5: the label"),
}


@pytest.mark.parametrize("command", INPUTS)
def test_wrong_input_to_predict_and_evaluate_is_refused_and_leaves_the_run(command, tmp_path, trained):
    content, expected = INPUTS[command]
    path = tmp_path / "input.csv"
    path.write_text(content)
    trained.close()  # SQLite puts its log away
    before = tiny.all_files(trained.path)
    where, (problem,) = refused(command, trained.path, "--input" if command == "predict" else "--data", path)
    assert where == str(path)
    assert expected in problem
    assert command == "predict" or "fixed at init; drop the row" in problem
    with s3t.Run.open(trained.path) as run, pytest.raises(s3t.DataError):
        getattr(run, command)(path)
    assert tiny.all_files(trained.path) == before


def test_an_output_that_cannot_be_written_is_refused_with_both_problems(tmp_path, standing):
    tiny.text_table(6).to_csv(tmp_path / "input.csv", index=False)
    output = tmp_path / "nowhere" / "out.xlsx"
    _, problems = refused("predict", standing, "--input", tmp_path / "input.csv", "--output", output)
    assert len(problems) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["input.csv"]


def test_a_wrong_file_of_requests_deletes_nothing(tmp_path, standing):
    (tmp_path / "gone.jsonl").write_bytes(b'{"record": "r1"}\nr2\n')
    where, (problem,) = refused("delete", standing, "--file", tmp_path / "gone.jsonl", "--record", "r2")
    assert where == str(tmp_path / "gone.jsonl")
    assert "line 2 is not JSON" in problem
    with s3t.Run.open(standing) as run:
        assert run.status().generation == 0


def test_nothing_that_answers_is_not_wrong_input_but_a_failure_with_the_remedy(standing, tmp_path):
    tiny.text_table(6).to_csv(tmp_path / "input.csv", index=False)
    _, (problem,) = refused("predict", standing, "--input", tmp_path / "input.csv", status=1)
    assert "s3t train" in problem


def test_an_arrow_table_with_wrong_records_is_named_by_its_kind(tmp_path, text_model):
    with pytest.raises(s3t.DataError, match="1 problem in the Table"):
        s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=pa.table({"id": ["x"], "text": ["t"]}))


DESCRIBING = {
    "no recipe": ("recipe.yaml", lambda _: b"", "recipe.yaml holds no fields"),
    "a recipe of brackets": ("recipe.yaml", lambda _: b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    "a recipe without training": ("recipe.yaml", lambda old: b"labels: [a]", "Field required"),
    "no JSON": ("run.json", lambda _: b"", "cannot be read"),
    "JSON of brackets": ("run.json", lambda _: b"[" * 100_000, "cannot be read"),
    "orders of nothing": ("run.json", lambda old: described(old, orders=[[], []]), "number of orders for each"),
    "orders of others": ("run.json", lambda old: described(old, orders=[[[0, 1, 9]], [[0, 1, 2]]]), "of 3 slices"),
    "labels of another type": ("run.json", lambda old: described(old, labels=7), "labels"),
}


def described(old, **changes):
    return json.dumps(json.loads(old) | changes).encode()


@pytest.mark.integration
@pytest.mark.parametrize("what", DESCRIBING)
def test_a_describing_file_that_is_damaged_is_named_with_the_remedy(what, tmp_path, standing):
    name, damage, expected = DESCRIBING[what]
    run = shutil.copytree(standing, tmp_path / "run")
    (run / name).write_bytes(damage((run / name).read_bytes()))
    before = bystanders(tmp_path)
    with pytest.raises(s3t.IntegrityError, match="restore it from a backup") as caught:
        s3t.Run.open(run)
    assert expected in str(caught.value)
    refused("status", run, status=1)
    assert bystanders(tmp_path) == before


def test_a_name_that_no_folder_can_have_is_no_damage_and_one_that_is_too_long_is_refused_at_once(tmp_path, text_model):
    for path in (tmp_path / ("x" * 300), "a\0b"):
        with pytest.raises(s3t.RunFolderError, match="is not a run: "):
            s3t.Run.open(path)
    with pytest.raises(s3t.RunFolderError, match="bytes too long; choose a shorter one"):
        s3t.Run.create(tmp_path / ("x" * 230), recipe=tiny.recipe(text_model), data=tiny.text_table())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names", [{}, {"records": [], "subjects": ()}])
def test_a_request_that_names_nothing_is_wrong_in_every_call(standing, names):
    with s3t.Run.open(standing) as run, s3t.Client("http://127.0.0.1:9") as client:  # refused before anything is sent
        for call in (run.delete, run.locate, client.delete, client.locate):
            with pytest.raises(s3t.InputError, match="names nothing; give at least one"):
                call(**names)
        with pytest.raises(s3t.InputError, match="names nothing"):
            run.delete(**names, dry_run=True)
