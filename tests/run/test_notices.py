"""What is odd in the records is told when a run is made, and kept nowhere; empty slices are one line."""

import json
import shutil

import datasets
import pytest
import yaml

import s3t
from testing import tiny
from testing.roles import roles
from tests.cli.typed import invoke


@pytest.fixture
def odd(tmp_path, text_model):
    """The arguments of an init of 60 records in 20 shards: 6 repeat another, 3 clash with one, 5 are too long."""
    table = tiny.text_table(60, subjects=20)
    table.loc[:59, "text"] = [f"w{number % 40} w{number // 40}" for number in range(60)]
    for row in range(6):
        table.loc[row + 20, ["text", "label"]] = list(table.loc[row, ["text", "label"]])
    for row in range(6, 9):
        table.loc[row + 20, "text"] = table.loc[row, "text"]
        table.loc[row + 20, "label"] = "c"
    for row in range(50, 55):
        table.loc[row, "text"] = " ".join(["w1"] * (19 + row))
    columns = {"subject": "person"}
    recipe = tiny.recipe(text_model, partition={"shards": 20}, sequences={"budget": 1}, columns=columns)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    table.to_csv(tmp_path / "records.csv", index=False)
    return tmp_path / "run", "--data", tmp_path / "records.csv", "--recipe", tmp_path / "recipe.yaml"


def test_init_tells_repeated_clashing_and_cut_records_and_empty_slices_in_a_line_each(odd):
    done = invoke("init", *odd, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    repeated, clashing, cut = document["notices"]
    assert repeated.startswith("6 of 60 records repeat the features and the label of another")
    assert clashing.startswith("3 times the same features occur with different labels")
    assert cut.startswith("5 of 60 records have more than 20 tokens and are cut there; raise text.max_length")
    (empty,) = [warning for warning in document["advice"] if "hold no record" in warning]
    held = sum(count == 0 for shard in document["shards"] for count in shard["slices"])
    assert empty.startswith(f"{held} of 60 slices hold no record: use fewer shards or slices, or more records")
    assert "notices" not in json.loads(invoke("status", odd[0], "--json").stdout)
    shutil.rmtree(odd[0])
    told = invoke("init", *odd)  # for people
    assert sum(line.startswith("note: ") for line in told.stdout.splitlines()) == 3
    assert (told.stderr.count("hold no record"), told.stdout.count("hold no record")) == (1, 0)


def test_no_file_of_the_run_holds_the_counts_nor_does_any_after_a_deletion(odd):
    with s3t.Run.create(odd[0], recipe=odd[4], data=odd[2]) as run:
        assert len(run.notices) == 3
        empty = run.status().advice[0]
        assert json.loads((odd[0] / "run.json").read_text())["warnings"] == []
        run.delete(subjects=["p0"])
        assert run.status().advice[0].split()[0] > empty.split()[0]
        told = [sentence.split(";")[0].encode() for sentence in (*run.notices, empty, run.status().advice[0])]
        for name, content in tiny.all_files(odd[0]).items():
            assert not any(words in content or b"hold no record" in content for words in told), name
    with s3t.Run.open(odd[0]) as opened:
        assert opened.notices == ()


def test_images_and_pairs_are_compared_and_counted_whole(tmp_path, text_model, image_model):
    images = tiny.image_table().drop_duplicates("image")
    repeated = images.copy()
    repeated.loc[5, ["image", "label"]] = list(images.loc[4, ["image", "label"]])
    pairs = tiny.text_table().assign(text="w1", other=[f"w{number}" for number in range(24)])
    pairs.loc[3, "other"] = " ".join(["w2"] * 17)  # three special tokens: 21 of 20
    image, pair = tiny.recipe(image_model, kind="image"), tiny.recipe(text_model, columns={"text_pair": "other"})
    for name, recipe, table, told in (
        ("nothing is odd", image, images, []),
        ("images", image, repeated, ["1"]),
        ("pairs", pair, pairs, ["1"]),
    ):
        with s3t.Run.create(tmp_path / name, recipe=recipe, data=table) as run:
            assert [notice.partition(" ")[0] for notice in run.notices] == told
    assert "more than 20 tokens" in run.notices[0]


@pytest.mark.integration
@pytest.mark.parametrize("unit", [None, "avx512_bf16"])
def test_bfloat16_without_instructions_for_it_is_remarked_upon_at_init_and_where_the_model_is_loaded(
    unit, tmp_path, text_model, monkeypatch, caplog
):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {} if unit is None else {unit: True})
    told = [] if unit else ["this machine's processor has no instructions for bfloat16"]
    recipe = tiny.recipe(text_model, training={"precision": "bfloat16", "device": "cpu"})
    table = tiny.text_table().drop_duplicates("text")
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        assert [notice.partition(",")[0] for notice in run.notices] == told
    with s3t.Run.open(tmp_path / "run") as run:
        roles(run).loaded.get()
    assert [record.getMessage().partition(",")[0] for record in caplog.records if record.name == "s3t"] == told
    with s3t.Run.create(tmp_path / "float32", recipe=tiny.recipe(text_model), data=table) as run:
        assert run.notices == ()


def test_init_names_the_files_of_a_data_set_that_outlive_every_deletion(text_model, tmp_path):
    tiny.text_table().to_csv(tmp_path / "records.csv", index=False)
    options = {"data_files": str(tmp_path / "records.csv"), "split": "train", "cache_dir": str(tmp_path / "cache")}
    recipe = tiny.recipe(text_model)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=datasets.load_dataset("csv", **options)) as run:
        (told,) = [notice for notice in run.notices if "no deletion reaches them" in notice]
        run.delete(records=["r3"])
    (arrow,) = tmp_path.glob("cache/**/*.arrow")
    assert str(arrow.parent) in told
    held = datasets.load_dataset("csv", **options, keep_in_memory=True)
    with s3t.Run.create(tmp_path / "another", recipe=recipe, data=held.select(range(12))) as run:
        assert not any("no deletion reaches them" in notice for notice in run.notices)


@pytest.mark.parametrize(
    ("slices", "told"),
    [
        (3, []),
        (2, ["2 blocks of 1 layer leave the lowest 1 of the base model's 3 layers as they are"]),
        (
            1,
            [
                "1 block of 1 layer leave the lowest 2 of the base model's 3 layers as they are; "
                "adapter.layers_per_slice 3 in a new run trains more"
            ],
        ),
    ],
)
def test_layers_that_no_slice_trains_are_told(slices, told, text_model, tmp_path):
    recipe = tiny.recipe(text_model, partition={"slices": slices}, sequences={"budget": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        assert [notice for notice in run.notices if "layer" in notice] == told
