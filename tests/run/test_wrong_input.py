"""Wrong input: all problems at once, with the remedy, from the library and from the command line; nothing is left."""

import io
import json
import os
import re
import shutil
import struct
import zlib

import pandas as pd
import pyarrow as pa
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

import s3t
from s3t.cli.app import app_of
from testing import tiny


@pytest.fixture(scope="module")
def standing(tmp_path_factory, text_model):
    """An untrained run that wrong input must leave as it is."""
    folder = tmp_path_factory.mktemp("standing") / "run"
    s3t.Run.create(folder, recipe=tiny.recipe(text_model), data=tiny.text_table()).close()
    return folder


@pytest.fixture(scope="module")
def standing_trained(tmp_path_factory, text_model):
    folder = tmp_path_factory.mktemp("standing") / "run"
    recipe = tiny.recipe(text_model, partition={"shards": 1}, sequences={"budget": 1}, training={"epochs": 1})
    with s3t.Run.create(folder, recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    return folder


def cli(*arguments):
    """Exit status, the one JSON document on stdout, and stderr."""
    result = CliRunner().invoke(app_of(), [*map(str, arguments), "--json"])
    return result.exit_code, json.loads(result.stdout), result.stderr


def refused(*arguments):
    """The problems with which the command line refuses."""
    status, document, stderr = cli(*arguments)
    assert status == 2, stderr
    assert set(document) == {"error"}
    problems = document["error"]["problems"]
    assert all(problem in stderr for problem in problems)
    assert document["error"]["where"] in stderr
    return document["error"]["where"], problems


def bystanders(folder):
    """All files and folders, to see that nothing was left or changed."""
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def refused_creation(folder, recipe, data):
    """The problems of a creation that both doors refuse, leaving nothing; `data` is a frame or a file."""
    recipe_file, run = folder / "recipe.yaml", folder / "runs" / "run"
    recipe_file.write_text(yaml.safe_dump(recipe))
    if isinstance(data, pd.DataFrame):
        path = folder / "records.parquet"
        data.to_parquet(path)
    else:
        path = data
    run.parent.mkdir()
    before = bystanders(folder)
    with pytest.raises(s3t.InputError) as caught:
        s3t.Run.create(run, recipe=recipe_file, data=path)
    where, problems = refused("init", run, "--data", path, "--recipe", recipe_file)
    assert problems == list(caught.value.problems)
    assert where == caught.value.where
    assert bystanders(folder) == before
    if isinstance(data, pd.DataFrame):
        with pytest.raises(s3t.InputError):
            s3t.Run.create(run, recipe=recipe, data=data)
        assert bystanders(folder) == before
    return where, problems


def broken(table, row, column, value):
    changed = table.copy()
    changed.loc[row, column] = value
    return changed


DATA_PROBLEMS = {
    "a missing column": (lambda table: table.drop(columns="text"), "column 'text' is missing (columns.text)"),
    "a duplicate id": (
        lambda table: broken(table, 5, "id", "r1"),
        "row 5: the id (column 'id') is a duplicate of row 1's",
    ),
    "an empty id": (lambda table: broken(table, 5, "id", ""), "row 5: the id (column 'id') is empty"),
    "a label outside the set": (
        lambda table: broken(table, 2, "label", "zzz"),
        "row 2: the label (column 'label') is outside",
    ),
    "a missing text": (lambda table: broken(table, 2, "text", None), "row 2: column 'text' is empty"),
    "no records": (lambda table: table.iloc[:0], "holds no records"),
}


@pytest.mark.integration
@pytest.mark.parametrize("what", DATA_PROBLEMS)
def test_wrong_records_are_named_by_file_and_row_and_leave_nothing(what, tmp_path, text_model):
    change, expected = DATA_PROBLEMS[what]
    where, (problem,) = refused_creation(tmp_path, tiny.recipe(text_model), change(tiny.text_table()))
    assert where == str(tmp_path / "records.parquet")
    assert problem.startswith(expected)


def test_an_unreadable_image_is_named_by_row_and_leaves_nothing(tmp_path, image_model):
    table = broken(tiny.image_table(), 4, "image", b"\x89PNG broken")
    where, (problem,) = refused_creation(tmp_path, tiny.recipe(image_model, kind="image"), table)
    assert where == str(tmp_path / "records.parquet")
    assert problem.startswith("row 4: the image (column 'image') is none of PNG")


def test_a_missing_image_file_is_named_and_leaves_nothing(tmp_path, image_model):
    path = tmp_path / "records.csv"
    path.write_text("id,image,label\nx,nowhere.png,a\n")
    _, (problem,) = refused_creation(tmp_path, tiny.recipe(image_model, kind="image"), path)
    assert problem.startswith("line 2: the image (column 'image') cannot be read")


def test_a_truncated_parquet_file_is_named_and_leaves_nothing(tmp_path, text_model):
    path = tmp_path / "cut.parquet"
    tiny.text_table().to_parquet(path)
    path.write_bytes(path.read_bytes()[:-100])
    where, (problem,) = refused_creation(tmp_path, tiny.recipe(text_model), path)
    assert where == str(path)
    assert "perhaps truncated" in problem
    assert "export it again" in problem


def test_every_malformed_line_is_named_and_leaves_nothing(tmp_path, text_model):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\nnope\n{"id": 2\n')
    _, problems = refused_creation(tmp_path, tiny.recipe(text_model), path)
    assert [problem[:6] for problem in problems] == ["line 2", "line 3"]


RECIPE_PROBLEMS = {
    "more layers than the model has": (
        {"adapter": {"layers_per_slice": 2}},
        "adapter.layers_per_slice: 3 slices x 2 layers = 6 layers, but the model has 3; ask for fewer",
    ),
    "more slices than the model has layers": ({"partition": {"slices": 4}}, "4 slices x 1 layers = 4 layers"),
    "a target module that is absent": (
        {"adapter": {"target_modules": ["query", "q_proj"]}},
        "adapter.target_modules: q_proj: no such linear module",
    ),
    "a budget beyond L!": ({"sequences": {"budget": 7}}, "sequences: budget 7 is not between 1 and 3! = 6"),
    "a text longer than the model takes": ({"text": {"max_length": 25}}, "text.max_length: 25 exceeds"),
    "a model folder that is missing": ({"base_model": "/nowhere/at/all"}, "'/nowhere/at/all' is not a local folder"),
    "a package that is missing": ({"base_model": "package:no_such_pkg/x"}, "'no_such_pkg' is not installed"),
    "a package without the folder": ({"base_model": "package:s3t/nothing"}, "'s3t' has no folder 'nothing'"),
    "a package without a model": ({"base_model": "package:s3t/cli"}, "has no config.json"),
    "a hub model that cannot be reached": ({"base_model": "nobody-knows/this-model"}, "'nobody-knows/this-model'"),
    "an adapter that is not exact": ({"adapter": {"init_lora_weights": "pissa"}}, "rewrites the base weights"),
}


@pytest.mark.parametrize("what", RECIPE_PROBLEMS)
def test_a_recipe_that_cannot_be_followed_is_named_by_file_and_field_and_leaves_nothing(what, tmp_path, text_model):
    changes, expected = RECIPE_PROBLEMS[what]
    where, (problem,) = refused_creation(tmp_path, tiny.recipe(text_model, **changes), tiny.text_table())
    assert where == str(tmp_path / "recipe.yaml")
    assert expected in problem


def test_a_model_without_its_tokenizer_is_refused_at_once(tmp_path):
    """Transformers would make an empty vocabulary, and every text would be the same unknown tokens."""
    model = tiny.make_text_model(tmp_path / "model")
    for file in model.glob("tokenizer*"):
        file.unlink()
    _, (problem,) = refused_creation(tmp_path, tiny.recipe(model), tiny.text_table())
    assert "tokenizer" in problem


def test_truncated_weights_are_refused_at_once(tmp_path):
    model = tiny.make_text_model(tmp_path / "model")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    _, (problem,) = refused_creation(tmp_path, tiny.recipe(model), tiny.text_table())
    assert str(weights) in problem


def test_pixels_that_do_not_fit_the_model_are_refused_at_once(tmp_path, image_model):
    recipe = tiny.recipe(image_model, kind="image", image={"mean": [0.5, 0.5]})
    _, (problem,) = refused_creation(tmp_path, recipe, tiny.image_table())
    assert problem == "image.mean: 2 numbers for 1 channels"


def test_problems_of_recipe_and_data_are_listed_together(tmp_path, text_model):
    recipe = tiny.recipe(text_model, adapter={"target_modules": ["nope"]}, text={"max_length": 99})
    table = broken(broken(tiny.text_table(), 5, "id", "r1"), 2, "label", "zzz")
    where, problems = refused_creation(tmp_path, recipe, table)
    assert where == "the recipe and the data"
    assert len(problems) == 4
    wanted = ("adapter.target_modules: nope", "text.max_length", "row 5: the id", "row 2: the label")
    assert all(any(part in problem for problem in problems) for part in wanted)
    assert sum(problem.startswith(str(tmp_path / "recipe.yaml")) for problem in problems) == 2
    assert sum(problem.startswith(str(tmp_path / "records.parquet")) for problem in problems) == 2


def test_a_recipe_file_and_a_data_file_that_are_not_there_are_named(tmp_path, text_model):
    _, (problem,) = refused("init", tmp_path / "run", "--data", "x.csv", "--recipe", tmp_path / "nowhere.yaml")
    assert "check the path" in problem
    _, (problem,) = refused_creation(tmp_path, tiny.recipe(text_model), tmp_path / "nowhere.csv")
    assert problem == "is not a file; check the path"


@pytest.mark.parametrize("kind", ["a run", "a folder", "a file", "a dangling link"])
def test_a_run_that_exists_is_refused_and_left_as_it_was(kind, tmp_path, text_model, standing):
    path = standing if kind == "a run" else tmp_path / "there"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a file":
        path.write_text("mine")
    elif kind == "a dangling link":
        path.symlink_to(tmp_path / "nowhere")
    recipe_file = tmp_path / "recipe.yaml"
    recipe_file.write_text(yaml.safe_dump(tiny.recipe(text_model)))
    tiny.text_table().to_csv(tmp_path / "records.csv", index=False)
    before, inside = bystanders(tmp_path), bystanders(standing.parent)
    with pytest.raises(s3t.RunFolderError, match="exists already; choose another folder"):
        s3t.Run.create(path, recipe=recipe_file, data=tmp_path / "records.csv")
    where, _ = refused("init", path, "--data", tmp_path / "records.csv", "--recipe", recipe_file)
    assert where == str(path)
    assert bystanders(tmp_path) == before
    assert bystanders(standing.parent) == inside


COMMANDS = {
    "train": (),
    "predict": ("--input", "INPUT"),
    "evaluate": ("--data", "INPUT"),
    "delete": ("--record", "r1"),
    "status": (),
    "repair": (),
    "audit": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_another_format_is_refused_by_every_command_and_left_as_it_was(command, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"format": 99, "version": "7.0"}))
    tiny.text_table(6).to_csv(tmp_path / "input.csv", index=False)
    before = bystanders(tmp_path)
    options = [tmp_path / "input.csv" if option == "INPUT" else option for option in COMMANDS[command]]
    where, (problem,) = refused(command, run, *options)
    assert where == str(run)
    assert problem.startswith("was written by s3t 7.0 in format 99; this version reads format 1: install that version")
    with pytest.raises(s3t.RunFolderError, match="format 99"):
        s3t.Run.open(run)
    assert bystanders(tmp_path) == before


@pytest.mark.parametrize("made", ["nothing", "a folder", "a file"])
def test_a_folder_that_is_no_run_is_refused_and_left_as_it_was(made, tmp_path):
    path = tmp_path / "thing"
    if made == "a folder":
        path.mkdir()
    elif made == "a file":
        path.write_text("x")
    before = bystanders(tmp_path)
    _, (problem,) = refused("status", path)
    assert "is not a run" in problem
    assert "s3t init" in problem
    with pytest.raises(s3t.RunFolderError):
        s3t.Run.open(path)
    assert bystanders(tmp_path) == before


def settled(run):
    """The run's files once SQLite has put its log away."""
    s3t.Run.open(run).close()
    return tiny.all_files(run)


INPUTS = {
    "a missing column": ("id,label\nx,a\n", "columns.text"),
    "an unknown suffix": (None, "use .csv, .tsv, .json, .jsonl"),
    "not UTF-8": ("id,text,label\nx,\xff,a\n", "UTF-8"),
}


@pytest.mark.parametrize("command", ["predict", "evaluate"])
@pytest.mark.parametrize("what", INPUTS)
def test_wrong_input_to_predict_and_evaluate_is_refused_and_leaves_the_run(command, what, tmp_path, standing_trained):
    content, expected = INPUTS[what]
    path = tmp_path / ("input.csv" if content else "input.txt")
    path.write_bytes((content or "x").encode("latin-1"))
    before = settled(standing_trained)
    where, (problem,) = refused(command, standing_trained, "--input" if command == "predict" else "--data", path)
    assert where == str(path)
    assert expected in problem
    with s3t.Run.open(standing_trained) as run, pytest.raises(s3t.DataError):
        getattr(run, command)(path)
    assert settled(standing_trained) == before


def test_labels_outside_the_set_are_refused_by_evaluate_with_all_their_rows(tmp_path, standing_trained):
    path = tmp_path / "input.csv"
    path.write_text("text,label\nw1,zzz\nw2,a\nw3,zzz\nw4,yyy\n")
    _, problems = refused("evaluate", standing_trained, "--data", path)
    assert [problem.partition(":")[0] for problem in problems] == ["lines 2, 4, 5"]
    assert "fixed at init; drop the row" in problems[0]
    assert "declare" not in problems[0]


def test_an_output_that_cannot_be_written_is_refused_with_both_problems(tmp_path, standing_trained):
    tiny.text_table(6).to_csv(tmp_path / "input.csv", index=False)
    output = tmp_path / "nowhere" / "out.xlsx"
    _, problems = refused("predict", standing_trained, "--input", tmp_path / "input.csv", "--output", output)
    assert len(problems) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.csv"]


REQUESTS = {
    "gone.csv": (b"id\nr1\n", "needs a column 'record' or 'subject' (the only column"),
    "gone.txt": (b"r1\n", "use .csv, .tsv, .json, .jsonl"),
    "gone.jsonl": (b'{"record": "r1"}\nr2\n', "line 2 is not JSON"),
    "gone.parquet": (b"PAR1....PAR", "perhaps truncated"),
    "nowhere.csv": (None, "is not a file"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_wrong_file_of_requests_deletes_nothing(name, tmp_path, standing_trained):
    content, expected = REQUESTS[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = settled(standing_trained)
    where, (problem,) = refused("delete", standing_trained, "--file", tmp_path / name, "--record", "r2")
    assert where == str(tmp_path / name)
    assert expected in problem
    assert settled(standing_trained) == before


def test_a_deletion_of_nobody_is_refused(standing_trained):
    before = settled(standing_trained)
    _, (problem,) = refused("delete", standing_trained)
    assert "--record ID, --subject ID or --file FILE" in problem
    assert settled(standing_trained) == before


def test_a_prefix_that_is_not_alive_is_refused(standing_trained):
    with s3t.Run.open(standing_trained) as run, pytest.raises(s3t.InputError, match="is not alive"):
        run.predict(["w1"], prefixes={0: (2, 1)})


def test_nothing_that_answers_is_not_wrong_input_but_a_failure_with_the_remedy(standing, tmp_path):
    tiny.text_table(6).to_csv(tmp_path / "input.csv", index=False)
    status, document, stderr = cli("predict", standing, "--input", tmp_path / "input.csv")
    assert status == 1
    assert document["error"]["kind"] == "NoLiveShardError"
    assert "s3t train" in stderr


def test_an_empty_slice_is_a_warning_and_not_wrong(tmp_path, text_model):
    with s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table(2)) as run:
        (empty,) = [warning for warning in run.status().advice if "hold no record" in warning]
        assert empty.startswith(("4 of 6 slices", "5 of 6 slices"))
        run.train()
        assert run.status().missing == 0


def test_an_arrow_table_with_wrong_records_is_named_by_its_kind(tmp_path, text_model):
    with pytest.raises(s3t.DataError, match="1 problem in the Table"):
        s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=pa.table({"id": ["x"], "text": ["t"]}))


DESCRIBING = {
    "no recipe": ("recipe.yaml", lambda _: b"", "recipe.yaml holds no fields"),
    "a list for a recipe": ("recipe.yaml", lambda _: b"- 1", "recipe.yaml holds no fields"),
    "a recipe of brackets": ("recipe.yaml", lambda _: b"[" * 5000, "nested too deeply"),
    "a recipe without training": ("recipe.yaml", lambda old: b"labels: [a]", "Field required"),
    "no JSON": ("run.json", lambda _: b"", "cannot be read"),
    "JSON of brackets": ("run.json", lambda _: b"[" * 100_000, "cannot be read"),
    "no orders": ("run.json", lambda old: described(old, orders=[]), "number of orders for each of 2 shards"),
    "orders of nothing": ("run.json", lambda old: described(old, orders=[[], []]), "number of orders for each"),
    "orders of others": ("run.json", lambda old: described(old, orders=[[[0, 1, 9]], [[0, 1, 2]]]), "of 3 slices"),
    "labels of another type": ("run.json", lambda old: described(old, labels=7), "labels"),
}


def described(old, **changes):
    return json.dumps(json.loads(old) | changes).encode()


@pytest.mark.integration
@pytest.mark.parametrize("what", DESCRIBING)
def test_a_describing_file_that_is_damaged_is_named_by_every_command(what, tmp_path, standing):
    name, damage, expected = DESCRIBING[what]
    run = shutil.copytree(standing, tmp_path / "run")
    (run / name).write_bytes(damage((run / name).read_bytes()))
    tiny.text_table(6).to_csv(tmp_path / "input.csv", index=False)
    before = bystanders(tmp_path)
    for command in ("status", "predict", "audit", "delete"):
        options = [tmp_path / "input.csv" if option == "INPUT" else option for option in COMMANDS[command]]
        status, document, stderr = cli(command, run, *options)
        assert (status, document["error"]["kind"]) == (1, "IntegrityError")
        assert expected in stderr
        assert "restore it from a backup" in stderr
    assert bystanders(tmp_path) == before


def test_a_name_that_no_folder_can_have_is_no_damage(tmp_path):
    for path in (tmp_path / ("x" * 300), "a\0b"):
        with pytest.raises(s3t.RunFolderError, match="is not a run: "):
            s3t.Run.open(path)


def test_a_run_whose_name_is_too_long_for_what_it_is_called_in_the_making_is_refused_at_once(tmp_path, text_model):
    with pytest.raises(s3t.RunFolderError, match="bytes too long; choose a shorter one"):
        s3t.Run.create(tmp_path / ("x" * 230), recipe=tiny.recipe(text_model), data=tiny.text_table())
    assert list(tmp_path.iterdir()) == []


def header_of_many_pixels():
    """A PNG of a hundred bytes that says it has 20,000 x 20,000 pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 0, 0, 0, 0)
    content = chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + content


def truncated_jpeg():
    content = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(content, "jpeg")
    return content.getvalue()[:-200]


@pytest.fixture
def odd_images(tmp_path):
    """A CSV file whose lines 2 to 6 name what is no image, and what is said of each."""
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "large.png").write_bytes(header_of_many_pixels())
    (tmp_path / "cut.jpeg").write_bytes(truncated_jpeg())
    (tmp_path / "good.png").write_bytes(tiny.png([[0] * 4] * 4))
    names = ["pipe.png", "zero.png", "folder.png", "large.png", "cut.jpeg", "good.png"]
    path = tmp_path / "records.csv"
    pd.DataFrame({"id": names, "image": names, "label": ["a", "b", "a", "b", "a", "c"]}).to_csv(path, index=False)
    return path


def assert_says_what_each_is(problems):
    """By lines: no name of a file and no bytes are in it."""
    unread = [problem for problem in problems if "cannot be read" in problem]
    (large,) = [problem for problem in problems if "has more than 89,478,485 pixels" in problem]
    (cut,) = [problem for problem in problems if "cannot be decoded, perhaps truncated" in problem]
    assert large.startswith("line 5: the image (column 'image')")
    assert cut.startswith("line 6: ")
    lines = {int(number) for problem in unread for number in re.findall(r"\d+", problem.partition(":")[0])}
    assert lines == {2, 3, 4}
    assert not any("7" in problem.partition(":")[0] or ".png" in problem or ".jpeg" in problem for problem in problems)


def test_images_that_are_pipes_devices_folders_too_large_or_cut_are_refused_at_init(tmp_path, image_model, odd_images):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe(image_model, kind="image")))
    _, problems = refused("init", tmp_path / "run", "--data", odd_images, "--recipe", recipe)
    assert_says_what_each_is(problems)
    assert not (tmp_path / "run").exists()


def test_images_that_are_pipes_devices_folders_too_large_or_cut_are_refused_by_predict(
    tmp_path, image_model, odd_images
):
    recipe = tiny.recipe(image_model, kind="image", partition={"shards": 1}, training={"epochs": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.image_table()) as run:
        run.train()
    _, problems = refused("predict", tmp_path / "run", "--input", odd_images)
    assert_says_what_each_is(problems)


def test_an_image_of_more_bytes_than_the_bound_is_not_read_whole(tmp_path, image_model, monkeypatch):
    monkeypatch.setattr("s3t.records.images.MAX_BYTES", 50)
    table = tiny.image_table(4)
    with pytest.raises(s3t.DataError, match="has more than 0 MiB; make it smaller"):
        s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(image_model, kind="image"), data=table)


@pytest.mark.parametrize("names", [{}, {"records": []}, {"subjects": ()}, {"records": [], "subjects": []}])
def test_a_request_that_names_nothing_is_wrong_in_every_call(standing, names):
    with s3t.Run.open(standing) as run, s3t.Client("http://127.0.0.1:9") as client:  # refused before anything is sent
        for call in (run.delete, run.locate, client.delete, client.locate):
            with pytest.raises(s3t.InputError, match="names nothing; give at least one"):
                call(**names)
        with pytest.raises(s3t.InputError, match="names nothing"):
            run.delete(**names, dry_run=True)
