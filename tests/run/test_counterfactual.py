"""The oracle: a run that forgot records equals, byte for byte, a run that never knew them."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import s3t
from testing import tiny
from tests.run.worlds import SIZES, SMALL, make_worlds, records_by_slice, trained_run

ADAPTERS = {
    "lora": {"kind": "lora", "rank": 2, "target_modules": ["query", "value"]},
    "ia3": {"kind": "ia3", "target_modules": ["key", "value", "output.dense"], "feedforward_modules": ["output.dense"]},
    "dropout, rslora": {"kind": "lora", "rank": 2, "dropout": 0.3, "use_rslora": True},
    "dora": {"kind": "lora", "rank": 2, "use_dora": True, "init_lora_weights": "gaussian"},
}
SLOW_OK = settings(max_examples=8, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.integration
@pytest.mark.parametrize("adapter", ["lora", pytest.param("ia3", marks=pytest.mark.slow)])
@SLOW_OK
@given(data=st.data())
def test_any_schedule_of_deletions_is_exact(adapter, text_model, data):
    count = data.draw(st.integers(8, 26), label="records")
    table = tiny.text_table(count, seed=data.draw(st.integers(0, 9), label="seed"))
    requests = data.draw(
        st.lists(st.lists(st.sampled_from(list(table.id)), min_size=1, max_size=3, unique=True), max_size=4),
        label="requests",
    )
    with tempfile.TemporaryDirectory() as folder:
        recipe = tiny.recipe(text_model, adapter=ADAPTERS[adapter])
        worlds = make_worlds(Path(folder), recipe, table, requests)
        worlds.assert_exact()
        worlds.close()


@pytest.mark.integration
@pytest.mark.parametrize("adapter", ["lora", pytest.param("ia3", marks=pytest.mark.slow)])
@settings(SLOW_OK, max_examples=4)
@given(data=st.data())
def test_any_schedule_of_deletions_is_exact_for_images(adapter, image_model, data):
    table = tiny.image_table(data.draw(st.integers(8, 20), label="records"))
    requests = data.draw(
        st.lists(st.lists(st.sampled_from(list(table.id)), min_size=1, max_size=2, unique=True), max_size=3),
        label="requests",
    )
    settings_of = {"lora": {"rank": 2}, "ia3": {"kind": "ia3", "target_modules": ["k_proj", "v_proj", "fc2"]}}
    with tempfile.TemporaryDirectory() as folder:
        recipe = tiny.recipe(image_model, kind="image", adapter=settings_of[adapter])
        worlds = make_worlds(Path(folder), recipe, table, requests)
        worlds.assert_exact()
        worlds.close()


def hard_requests(recipe, table):
    """The schedules that easy tests leave out, by name."""
    places = records_by_slice(recipe, table)
    smallest = min(places.values(), key=len)
    batch = recipe["training"]["batch_size"]
    first_of_batch = next(records for records in places.values() if len(records) % batch == 1)
    return {
        "the first record": [["r0"]],
        "the last record, longest text, only one of its label": [[table.id.iloc[-1]]],
        "every record of a slice": [smallest],
        "a slice down to its only record, then that one": [smallest[1:], smallest[:1]],
        "one that changes the number of batches": [first_of_batch[:1]],
        "a whole shard": [[record for (shard, _), records in places.items() if shard == 0 for record in records]],
        "everything but one": [list(table.id[1:])],
    }


TWO_ORDERS = {"sequences": {"budget": 2}, "training": {"epochs": 1}}
"""Changes of a recipe: 12 stages instead of 18, in half the steps."""
TWO_HARDEST = ("one that changes the number of batches", "everything but one")
IN_INTEGRATION = pytest.mark.integration


def assert_hard_deletions_are_exact(recipe, table, folder, *, names=None):
    """Each schedule deletes from a clone of one run."""
    schedules = hard_requests(recipe, table)
    trained_run(folder / "trained", recipe, table).close()
    for name in names or schedules:
        worlds = make_worlds(
            folder / name.replace(" ", "-"), recipe, table, schedules[name], trained=folder / "trained"
        )
        worlds.assert_exact()
        worlds.close()


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("text", TWO_ORDERS),
        pytest.param("text", {}, marks=IN_INTEGRATION),
        pytest.param("image", {}, marks=IN_INTEGRATION),
    ],
)
def test_hard_deletions_are_exact(kind, size, text_model, image_model, tmp_path):
    model, table = (text_model, tiny.text_table()) if kind == "text" else (image_model, tiny.image_table())
    assert_hard_deletions_are_exact(tiny.recipe(model, kind=kind, **size), table, tmp_path)


@pytest.mark.integration
@SIZES
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_kind_of_adapter_is_exact(adapter, size, text_model, tmp_path):
    recipe = tiny.recipe(text_model, adapter=ADAPTERS[adapter], **size)
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r3"], ["r10", "r11"]])
    worlds.assert_exact()
    worlds.close()


@pytest.mark.integration
@SIZES
@pytest.mark.parametrize(
    "training",
    [
        {"precision": "bfloat16"},
        {"schedule": "cosine", "weight_decay": 0.1, "max_grad_norm": None, "warmup": 0.5},
        {"schedule": "constant", "epochs": 3, "batch_size": 3, "seed": 11, "head_learning_rate": 0.1},
        {"epochs": 0},
    ],
    ids=str,
)
def test_every_way_of_training_is_exact(training, size, text_model, tmp_path):
    recipe = tiny.recipe(text_model, training=training, **size)
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r5"], ["r23"]])
    worlds.assert_exact()
    worlds.close()


@SIZES
def test_a_text_regression_on_pairs_is_exact(size, text_model, tmp_path):
    table = tiny.text_table()
    table["other"] = table.text.iloc[::-1].to_list()
    table["label"] = [number / 7 for number in range(len(table))]
    recipe = tiny.recipe(
        text_model,
        task="text-regression",
        labels=None,
        columns={"text_pair": "other"},
        **size,
    )
    worlds = make_worlds(tmp_path, recipe, table, [["r3"], ["r17"]])
    worlds.assert_exact()
    worlds.close()


SEVERAL = {"text": "text-multi-label-classification", "image": "image-multi-label-classification"}


@pytest.mark.parametrize(
    ("kind", "names", "size"),
    [
        ("text", TWO_HARDEST, TWO_ORDERS),
        pytest.param("text", None, {}, marks=IN_INTEGRATION),
        pytest.param("image", None, {}, marks=IN_INTEGRATION),
    ],
)
def test_hard_deletions_of_records_with_several_labels_are_exact(kind, names, size, text_model, image_model, tmp_path):
    model, table = (text_model, tiny.text_table()) if kind == "text" else (image_model, tiny.image_table())
    recipe, table = tiny.recipe(model, kind=kind, task=SEVERAL[kind], **size), tiny.with_several_labels(table)
    assert_hard_deletions_are_exact(recipe, table, tmp_path, names=names)


@pytest.mark.parametrize(("names", "size"), [(TWO_HARDEST, TWO_ORDERS), pytest.param(None, {}, marks=IN_INTEGRATION)])
def test_hard_deletions_of_records_with_ordered_labels_are_exact(names, size, text_model, tmp_path):
    """The highest label has one record."""
    recipe = tiny.recipe(text_model, task="text-ordinal-classification", **size)
    assert_hard_deletions_are_exact(recipe, tiny.text_table(), tmp_path, names=names)


@pytest.mark.integration
@pytest.mark.parametrize(("names", "size"), [(TWO_HARDEST, TWO_ORDERS), pytest.param(None, {}, marks=IN_INTEGRATION)])
def test_hard_deletions_of_words_with_tags_are_exact(names, size, text_model, tmp_path):
    """Of the longest record, words are cut."""
    recipe, table = tiny.tagging_recipe(text_model, text={"max_length": 12}, **size), tiny.tagged_table()
    assert_hard_deletions_are_exact(recipe, table, tmp_path, names=names)


@pytest.mark.integration
@SLOW_OK
@given(data=st.data())
def test_any_schedule_of_deletions_is_exact_for_words_with_tags(text_model, data):
    table = tiny.tagged_table(data.draw(st.integers(8, 26), label="records"))
    requests = data.draw(
        st.lists(st.lists(st.sampled_from(list(table.id)), min_size=1, max_size=3, unique=True), max_size=4),
        label="requests",
    )
    with tempfile.TemporaryDirectory() as folder:
        worlds = make_worlds(Path(folder), tiny.tagging_recipe(text_model), table, requests)
        worlds.assert_exact()
        worlds.close()


@pytest.mark.integration
@SLOW_OK
@given(data=st.data())
def test_any_schedule_of_deletions_is_exact_for_several_labels(text_model, data):
    table = tiny.with_several_labels(tiny.text_table(data.draw(st.integers(8, 26), label="records")))
    requests = data.draw(
        st.lists(st.lists(st.sampled_from(list(table.id)), min_size=1, max_size=3, unique=True), max_size=4),
        label="requests",
    )
    with tempfile.TemporaryDirectory() as folder:
        recipe = tiny.recipe(text_model, task=SEVERAL["text"], prediction={"threshold": 0.3})
        worlds = make_worlds(Path(folder), recipe, table, requests)
        worlds.assert_exact()
        worlds.close()


@pytest.mark.integration
def test_more_orders_than_slices_and_a_bigger_budget_share_stages(text_model, tmp_path):
    table = tiny.text_table()
    worlds = make_worlds(tmp_path, tiny.recipe(text_model, sequences={"budget": 6}), table, [["r3"]])
    worlds.assert_exact()
    small = trained_run(tmp_path / "small", tiny.recipe(text_model, sequences={"budget": 3}), table)
    big = trained_run(tmp_path / "big", tiny.recipe(text_model, sequences={"budget": 6}), table)
    assert tiny.artifacts(small.path).items() <= tiny.artifacts(big.path).items()


def test_all_records_of_a_subject_leave_together_and_exactly(text_model, tmp_path):
    table = tiny.text_table(24, subjects=6)
    recipe = tiny.recipe(text_model, columns={"subject": "person"}, **SMALL)
    forgot = trained_run(tmp_path / "forgot", recipe, table)
    report = forgot.delete(subjects=["p2"])
    assert report.deleted == 4
    assert len(report.slices) == 1
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[table.person != "p2"])
    forgot.repair()
    assert tiny.artifacts(forgot.path) == tiny.artifacts(never_knew.path)


def test_identical_rows_without_an_id_share_one_and_leave_together(text_model, tmp_path):
    table = tiny.text_table().drop(columns="id")
    doubled = table.iloc[[*range(len(table)), 3, 3]]
    recipe = tiny.recipe(text_model, **SMALL)
    recipe["columns"] = {"text": "text", "label": "label"}
    forgot = trained_run(tmp_path / "forgot", recipe, doubled)
    record = s3t.record_ids(doubled, forgot.recipe)[3]
    assert forgot.delete(records=[record]).deleted == 3
    never_knew = trained_run(tmp_path / "never-knew", recipe, table.drop(index=3))
    forgot.repair()
    assert tiny.artifacts(forgot.path) == tiny.artifacts(never_knew.path)


def test_the_order_of_the_input_rows_does_not_matter(text_model, tmp_path):
    table = tiny.text_table()
    runs = []
    for name, rows in (("as it is", table), ("shuffled", table.sample(frac=1.0, random_state=5))):
        runs.append(trained_run(tmp_path / name, tiny.recipe(text_model, **SMALL), rows))
    assert tiny.artifacts(runs[0].path) == tiny.artifacts(runs[1].path)


def test_deleting_between_repairs_is_exact(text_model, tmp_path):
    table = tiny.text_table()
    recipe = tiny.recipe(text_model, **SMALL)
    forgot = s3t.Run.create(tmp_path / "forgot", recipe=recipe, data=table)
    forgot.delete(records=["r1"])  # before any training
    forgot.train()
    for record in ("r2", "r9"):
        forgot.delete(records=[record])
        forgot.repair()
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[~table.id.isin(["r1", "r2", "r9"])])
    assert tiny.artifacts(forgot.path) == tiny.artifacts(never_knew.path)


@pytest.mark.integration
def test_digits_are_exact(tmp_path):
    """Once on a real data set: scikit-learn's digits, on an untrained ViT of their size."""
    import pandas as pd
    from sklearn.datasets import load_digits

    digits = load_digits()
    table = pd.DataFrame(
        {
            "id": [f"digit-{number}" for number in range(200)],
            "image": [tiny.png((pixels * 15).astype(int).tolist()) for pixels in digits.images[:200]],
            "label": [str(label) for label in digits.target[:200]],
        }
    )
    model = tiny.make_image_model(tmp_path / "model", layers=4, side=8)
    recipe = tiny.recipe(
        model,
        kind="image",
        labels=[str(digit) for digit in range(10)],
        partition={"shards": 3, "slices": 4},
        sequences={"budget": 4},
        training={"batch_size": 16},
    )
    brightest = table.id[digits.images[:200].sum(axis=(1, 2)).argmax()]
    worlds = make_worlds(tmp_path, recipe, table, [["digit-0"], [brightest], ["digit-199"]])
    worlds.assert_exact()
    worlds.close()
    shutil.rmtree(tmp_path / "model")
