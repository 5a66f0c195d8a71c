"""A warning where stages take few optimiser steps for their labels."""

import re

import pytest

import s3t
from s3t.core import Place
from s3t.recipe import recipe_from
from s3t.run.reporting import fit, sizes_of_stages
from testing import tiny
from tests.cli.typed import invoke


def advice(*, labels=3, seconds=0.0, **training):
    """Of stages of 13 records, and of 24."""
    recipe = recipe_from(tiny.recipe("none", training={"batch_size": 8} | training))
    records = {Place(0, 0): 13, Place(0, 1): 11}
    return tuple(fit(recipe, sizes_of_stages(recipe, [[(0, 1)]], records), records, labels=labels, seconds=seconds))


def test_stages_of_few_steps_for_their_labels_are_counted_and_the_worst_is_named():
    (few,) = advice(epochs=4)
    assert few.startswith("2 of 2 stages take fewer than 30 optimiser steps for 3 labels (stage (0) of shard 0: 8)")
    epochs, batch = map(int, re.search(r"training.epochs (\d+) .* or training.batch_size (\d+) ", few).groups())
    assert (advice(epochs=epochs), advice(epochs=4, batch_size=batch)) == ((), ())
    assert advice(epochs=epochs - 1) != ()
    (timed,) = advice(epochs=4, seconds=60.0)
    assert "; training then takes about 3 min 45 s, not 1 min" in timed


def test_enough_steps_are_not_warned_of_and_only_short_stages_are():
    assert advice(epochs=30) == advice(epochs=4, labels=0) == ()  # a regression has no labels
    (some,) = advice(epochs=12)
    assert some.startswith("1 of 2 stages take")
    (none,) = advice(epochs=0, seconds=60.0)
    assert "; training then takes" not in none
    assert "(now 0)" in none


def untimed(advice):
    return tuple(re.sub("; training then takes about [^)]*", "", what) for what in advice)


def test_they_are_told_before_anything_is_written_and_once_trained_with_the_time_unless_a_repair_is_due(
    text_model, tmp_path
):
    recipe, heard, there = tiny.recipe(text_model, training={"epochs": 1}), [], []

    def hear(event):
        if isinstance(event, s3t.WorkWarning):
            heard.append(event.what)
            there.extend(path.name for path in tmp_path.iterdir())

    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(), progress=hear) as run:
        status = run.status()
        assert (untimed(heard), there) == (status.advice, [])
        assert re.search(r"\(now 1; training then takes about .*, not .*\)", heard[-1])
        assert (status.to_json()["advice"], status.warnings) == (list(status.advice), ())
        assert "optimiser" not in (run.path / "run.json").read_text()  # it follows from numbers of records
        assert f"warning: {status.advice[-1]}" in invoke("status", run.path).stdout
        run.train()
        assert "; training then takes " in run.status().advice[-1]
        run.delete(records=["r3"])
        assert run.status().missing > 0
        assert "training then takes" not in run.status().advice[-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "ridge", "partition": {"slices": 3}},
        {"deletion": {"repair": {"policy": "as-needed", "depth": 2}}},
        {"task": "text-regression", "labels": None, "sequences": {"budget": 1, "selector": "cyclic"}},
    ],
)
def test_init_tells_what_the_status_does_whatever_is_trained(changes, text_model, tmp_path):
    """A ridge head takes no steps, repair as needed trains fewer stages than all orders have; numbers are no labels."""
    recipe, heard = tiny.recipe(text_model, training={"epochs": 1}), []
    del recipe["sequences"]
    table = tiny.text_table().assign(**{"label": 1.5} if "task" in changes else {})
    with s3t.Run.create(tmp_path / "run", recipe=recipe | changes, data=table, progress=heard.append) as run:
        told = tuple(event.what for event in heard if isinstance(event, s3t.WorkWarning))
        assert untimed(told) == run.status().advice
        assert any("optimiser steps" in what for what in told) == ("deletion" in changes)
