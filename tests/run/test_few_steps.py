"""A warning where stages take few optimiser steps for their labels."""

import re

import pytest

import s3t
from testing import tiny
from tests.cli.typed import invoke


@pytest.fixture
def made(text_model, tmp_path):
    """A function that makes a run of two slices with 12 records each, more or less, and tells its advice."""

    def make(name="run", **changes):
        partition = {"shards": 1, "slices": 2, "salt": "as even as can be"}
        recipe = tiny.recipe(text_model, sequences={"budget": 1}, **changes) | {"partition": partition}
        with s3t.Run.create(tmp_path / name, recipe=recipe, data=tiny.text_table()) as run:
            return run.status()

    return make


def test_stages_of_few_steps_for_their_labels_are_counted_and_the_worst_is_named(made, tmp_path):
    status = made(training={"epochs": 4, "batch_size": 8})
    first = status.shards[0].slices[0]
    (advice,) = status.advice
    assert advice.startswith("2 of 2 stages take fewer than 30 optimiser steps for 3 labels (stage (0) of shard 0: ")
    assert f": {4 * -(-first // 8)})" in advice
    assert status.to_json()["advice"] == [advice]
    epochs, batch = map(int, re.search(r"training.epochs (\d+) .* or training.batch_size (\d+) ", advice).groups())
    assert made("more", training={"epochs": epochs, "batch_size": 8}).advice == ()
    assert made("less", training={"epochs": epochs - 1, "batch_size": 8}).advice != ()
    assert made("smaller", training={"epochs": 4, "batch_size": batch}).advice == ()
    assert status.warnings == ()
    assert "optimiser" not in (tmp_path / "run" / "run.json").read_text()  # it follows from numbers of records
    assert f"warning: {advice}" in invoke("status", tmp_path / "run").stdout


def test_they_are_told_before_anything_is_written_and_once_trained_with_the_time(text_model, tmp_path):
    recipe, heard, there = tiny.recipe(text_model, training={"epochs": 1}), [], []

    def hear(event):
        if isinstance(event, s3t.WorkWarning):
            heard.append(event.what)
            there.extend(path.name for path in tmp_path.iterdir())

    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(), progress=hear) as run:
        assert (tuple(heard), there) == (run.status().advice, [])
        assert "training then takes" not in heard[-1]
        run.train()
        assert "; training then takes " in run.status().advice[-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "ridge", "partition": {"slices": 3}},
        {"deletion": {"repair": {"policy": "as-needed", "depth": 2}}},
    ],
)
def test_init_tells_what_the_status_does_whatever_is_trained(changes, text_model, tmp_path):
    """A ridge head takes no steps, and repair as needed trains fewer stages than all orders have."""
    recipe, heard = tiny.recipe(text_model, training={"epochs": 1}) | changes, []
    del recipe["sequences"]
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(), progress=heard.append) as run:
        told = tuple(event.what for event in heard if isinstance(event, s3t.WorkWarning))
        assert told == run.status().advice
        assert any("optimiser steps" in what for what in told) == ("deletion" in changes)


def test_a_repair_that_is_due_makes_no_time_of_half_a_training(text_model, tmp_path):
    recipe = tiny.recipe(text_model, training={"epochs": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        run.delete(records=["r3"])
        assert run.status().missing > 0
        assert "training then takes" not in run.status().advice[-1]


def test_a_run_without_epochs_is_told_how_many_would_do(made):
    (advice,) = made("none", training={"epochs": 0}).advice
    assert "; training then takes" not in advice
    assert "(now 0)" in advice


def test_enough_steps_are_not_warned_of_and_only_short_stages_are(made):
    assert made("enough", training={"epochs": 30, "batch_size": 8}).advice == ()
    (advice,) = made("some", training={"epochs": 12, "batch_size": 8}).advice
    assert advice.startswith("1 of 2 stages take")


def test_a_regression_has_no_labels_to_be_warned_of(made, text_model, tmp_path):
    table = tiny.text_table().assign(label=1.5)
    recipe = tiny.recipe(text_model) | {"task": "text-regression", "labels": None}
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        assert run.status().advice == ()
