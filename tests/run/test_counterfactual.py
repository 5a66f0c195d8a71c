"""The oracle: a run that forgot records equals, byte for byte, a run that never knew them."""

import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

import s3t
from testing import tiny
from tests.run.worlds import (
    SIZES,
    SMALL,
    artifacts_after,
    assert_deletions_are_exact,
    make_worlds,
    records_by_slice,
    trained_run,
)

IN_INTEGRATION = pytest.mark.integration
SLOW_OK = settings(max_examples=6, suppress_health_check=list(HealthCheck), derandomize=True)


def with_several_labels(make):
    return lambda *size, **options: tiny.with_several_labels(make(*size, **options))


SEVERAL = {
    kind: {"task": f"{kind}-multi-label-classification", "prediction": {"threshold": 0.3}} for kind in ("text", "image")
}
KINDS = {
    "texts": ({}, tiny.text_table),
    "images": ({"kind": "image"}, tiny.image_table),
    "several labels": (SEVERAL["text"], with_several_labels(tiny.text_table)),
    "images of several labels": ({"kind": "image"} | SEVERAL["image"], with_several_labels(tiny.image_table)),
    "ordered labels": ({"task": "text-ordinal-classification"}, tiny.text_table),
    "words with tags": (
        {"task": "token-classification", "labels": tiny.TAGS, "text": {"max_length": 12}},
        tiny.tagged_table,
    ),
}
"""Changes of a recipe, and a function that makes a table. The last record has the highest label alone, and of the
longest record with tags, words are cut."""
ADAPTERS = {
    "lora": {"kind": "lora", "rank": 2, "target_modules": ["query", "value"]},
    "ia3": {"kind": "ia3", "target_modules": ["key", "value", "output.dense"], "feedforward_modules": ["output.dense"]},
    "ia3 of images": {"kind": "ia3", "target_modules": ["k_proj", "v_proj", "fc2"]},
    "dropout, rslora": {"kind": "lora", "rank": 2, "dropout": 0.3, "use_rslora": True},
    "dora": {"kind": "lora", "rank": 2, "use_dora": True, "init_lora_weights": "gaussian"},
}
TRAINING = [
    {"precision": "bfloat16"},
    {"schedule": "cosine", "weight_decay": 0.1, "max_grad_norm": None, "warmup": 0.5},
    {"schedule": "constant", "epochs": 3, "batch_size": 3, "seed": 11, "head_learning_rate": 0.1},
    {"epochs": 0},
]


@pytest.fixture
def recipe_of(text_model, image_model):
    """A function that makes a kind's recipe."""

    def make(kind, **changes):
        own = KINDS[kind][0]
        return tiny.recipe(image_model if "kind" in own else text_model, **own | changes)

    return make


def assert_any_schedule_is_exact(data, recipe, make_table):
    """Of deletions that hypothesis draws."""
    table = make_table(data.draw(st.integers(8, 26), label="records"), seed=data.draw(st.integers(0, 9), label="seed"))
    request = st.lists(st.sampled_from(list(table.id)), min_size=1, max_size=3, unique=True)
    requests = data.draw(st.lists(request, max_size=4), label="requests")
    with tempfile.TemporaryDirectory() as folder:
        assert_deletions_are_exact(Path(folder), recipe, table, requests)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("kind", "adapter"),
    [
        ("texts", "lora"),
        ("images", None),
        ("several labels", None),
        ("words with tags", None),
        pytest.param("texts", "ia3", marks=pytest.mark.slow),
        pytest.param("images", "ia3 of images", marks=pytest.mark.slow),
    ],
)
@SLOW_OK
@given(data=st.data())
def test_any_schedule_of_deletions_is_exact(kind, adapter, recipe_of, data):
    changes = {} if adapter is None else {"adapter": ADAPTERS[adapter]}
    assert_any_schedule_is_exact(data, recipe_of(kind, **changes), KINDS[kind][1])


def hard_requests(recipe, table):
    """The schedules that easy tests leave out, by name."""
    places = records_by_slice(recipe, table)
    smallest = min(places.values(), key=len)
    batch = recipe["training"]["batch_size"]
    first_of_batch = next(records for records in places.values() if len(records) % batch == 1)
    return {
        "the first record, then the last, longest, only one of its label": [["r0"], [table.id.iloc[-1]]],
        "a slice down to its only record, then that one": [smallest[1:], smallest[:1]],
        "one that changes the number of batches": [first_of_batch[:1]],
        "a whole shard": [[record for (shard, _), records in places.items() if shard == 0 for record in records]],
        "everything but one": [list(table.id[1:])],
    }


ONE_ORDER, TWO_ORDERS = ({"sequences": {"budget": budget}, "training": {"epochs": 1}} for budget in (1, 2))
"""Changes of a recipe: 6 or 12 stages instead of 18, in half the steps."""
TWO_HARDEST = ("one that changes the number of batches", "everything but one")


def assert_hard_deletions_are_exact(recipe, table, folder, *, names=None):
    """Each schedule deletes from a clone of one run."""
    schedules = hard_requests(recipe, table)
    trained_run(folder / "trained", recipe, table).close()
    for name in names or schedules:
        worlds = make_worlds(folder / name[:30], recipe, table, schedules[name], trained=folder / "trained")
        worlds.assert_exact()
        worlds.close()


@pytest.mark.parametrize(
    ("kind", "names", "size"),
    [
        ("texts", TWO_HARDEST, TWO_ORDERS),
        ("several labels", TWO_HARDEST, ONE_ORDER),
        *(pytest.param(kind, None, {}, marks=IN_INTEGRATION) for kind in KINDS),
    ],
)
def test_hard_deletions_are_exact(kind, names, size, recipe_of, tmp_path):
    assert_hard_deletions_are_exact(recipe_of(kind, **size), KINDS[kind][1](), tmp_path, names=names)


@pytest.mark.integration
@pytest.mark.parametrize(
    "changes",
    [
        *({"adapter": adapter} for name, adapter in ADAPTERS.items() if name != "ia3 of images"),
        *({"training": training} for training in TRAINING),
    ],
    ids=str,
)
def test_every_adapter_and_way_of_training_is_exact(changes, recipe_of, tmp_path):
    assert_deletions_are_exact(tmp_path, recipe_of("texts", **changes), tiny.text_table(), [["r3"], ["r10", "r23"]])


@SIZES
def test_a_text_regression_on_pairs_is_exact(size, recipe_of, tmp_path):
    table = tiny.text_table()
    table = table.assign(other=table.text.to_list()[::-1], label=[number / 7 for number in range(len(table))])
    recipe = recipe_of("texts", task="text-regression", labels=None, columns={"text_pair": "other"}, **size)
    assert_deletions_are_exact(tmp_path, recipe, table, [["r3"], ["r17"]])


@pytest.mark.integration
def test_more_orders_than_slices_and_a_bigger_budget_share_stages(recipe_of, tmp_path):
    table, big = tiny.text_table(), recipe_of("texts", sequences={"budget": 6})
    assert_deletions_are_exact(tmp_path, big, table, [["r3"]])
    small = artifacts_after(tmp_path / "small", recipe_of("texts"), table)
    assert small.items() <= artifacts_after(tmp_path / "big", big, table).items()


def test_all_records_of_a_subject_leave_together_and_exactly(recipe_of, tmp_path):
    def delete(run):
        report = run.delete(subjects=["p2"])
        assert (report.deleted, len(report.slices)) == (4, 1)

    table, recipe = tiny.text_table(subjects=6), recipe_of("texts", columns={"subject": "person"}, **SMALL)
    never_knew = artifacts_after(tmp_path / "never-knew", recipe, table[table.person != "p2"])
    assert artifacts_after(tmp_path / "forgot", recipe, table, delete) == never_knew


def test_identical_rows_without_an_id_share_one_and_leave_together(recipe_of, tmp_path):
    table, recipe = tiny.text_table().drop(columns="id"), recipe_of("texts", **SMALL)
    del recipe["columns"]["id"]
    doubled = table.iloc[[*range(len(table)), 3, 3]]

    def delete(run):
        assert run.delete(records=[s3t.record_ids(doubled, run.recipe)[3]]).deleted == 3

    never_knew = artifacts_after(tmp_path / "never-knew", recipe, table.drop(index=3))
    assert artifacts_after(tmp_path / "forgot", recipe, doubled, delete) == never_knew


def test_deletions_before_training_and_between_repairs_are_exact_in_whatever_order_rows_came(recipe_of, tmp_path):
    table, recipe = tiny.text_table(), recipe_of("texts", **SMALL)
    with s3t.Run.create(tmp_path / "forgot", recipe=recipe, data=table) as forgot:
        forgot.delete(records=["r1"])
        forgot.train()
        for record in ("r2", "r9"):
            forgot.delete(records=[record])
            forgot.repair()
    left = table[~table.id.isin(["r1", "r2", "r9"])].sample(frac=1.0, random_state=5)
    assert tiny.artifacts(forgot.path) == artifacts_after(tmp_path / "never-knew", recipe, left)


@pytest.mark.integration
def test_digits_are_exact(tmp_path):
    """Once on a real data set: scikit-learn's digits, on an untrained ViT of their size."""
    digits = load_digits()
    table = pd.DataFrame(
        {
            "id": [f"digit-{number}" for number in range(200)],
            "image": [tiny.png((pixels * 15).astype(int).tolist()) for pixels in digits.images[:200]],
            "label": [str(label) for label in digits.target[:200]],
        }
    )
    recipe = tiny.recipe(
        tiny.make_image_model(tmp_path / "model", layers=4, side=8),
        kind="image",
        labels=[str(digit) for digit in range(10)],
        partition={"shards": 3, "slices": 4},
        sequences={"budget": 4},
        training={"batch_size": 16},
    )
    brightest = table.id[digits.images[:200].sum(axis=(1, 2)).argmax()]
    assert_deletions_are_exact(tmp_path, recipe, table, [["digit-0"], [brightest], ["digit-199"]])
