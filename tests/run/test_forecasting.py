"""What a run says it still survives: from its present state, as records are left and as the recipe declares."""

import dataclasses

import pytest

import s3t
from s3t.inventory import Inventory
from s3t.partition import Place
from s3t.planning import Deletions, deletion_rate, first_failure
from s3t.recipe import recipe_from
from s3t.run.forecasting import forecast_of
from s3t.sequences import Setting, cyclic
from s3t.stages import stages_of


def ahead(state, recipe):
    return forecast_of(state, [setting.prior for setting in recipe.settings()])


ORDERS = (cyclic(Setting(slices=3, budget=3)),) * 2


def recipe(**parts):
    return recipe_from(
        {
            "task": "text-classification",
            "base_model": "none",
            "columns": {"text": "text"},
            "labels": ["a", "b"],
            "partition": {"shards": 2, "slices": 3} | parts.pop("partition", {}),
        }
        | parts
    )


def inventory(records):
    places = {Place(shard, index): records[shard][index] for shard in range(2) for index in range(3)}
    return Inventory(generation=0, orders=ORDERS, records=places, alive=dict.fromkeys(stages_of(ORDERS), "key"))


def test_without_a_declared_prior_every_record_left_is_alike_and_goes_once():
    records = [[3, 4, 5], [2, 2, 8]]
    found = ahead(inventory(records), recipe())
    deletions = Deletions.from_records(records, replacement=False)
    assert found.all_shards_die == pytest.approx(deletion_rate([{0, 1, 2}] * 2, deletions).mean)
    assert found.next_shard_dies == pytest.approx(first_failure([{0, 1, 2}] * 2, deletions).mean)


@pytest.mark.parametrize(
    "declared",
    [
        {"sequences": {"prior": [0.6, 0.2, 0.2]}},
        {
            "partition": {
                "group": {"column": "band", "slices": {"x": [0], "y": [1, 2]}, "deletion": {"x": 0.3, "y": 0.1}}
            }
        },
    ],
)
def test_a_declared_prior_is_what_is_expected(declared):
    found = ahead(inventory([[3, 4, 5], [2, 2, 8]]), recipe(**declared))
    deletions = Deletions.from_prior([0.6, 0.2, 0.2], shards=2)
    assert found.all_shards_die == pytest.approx(deletion_rate([{0, 1, 2}] * 2, deletions).mean)


def test_a_slice_without_records_is_not_waited_for():
    """Shard 0 answers with slice 1 or 2 in its prefix, for slice 0 alone holds nothing to answer with."""
    found = ahead(inventory([[0, 1, 1], [1, 1, 1]]), recipe())
    assert found.next_shard_dies is not None
    assert found.all_shards_die == pytest.approx(5)  # all five records must go


def test_a_run_without_records_has_nothing_ahead():
    found = ahead(inventory([[0, 0, 0], [0, 0, 0]]), recipe())
    assert found.living_shards == 0
    prior = ahead(inventory([[0, 0, 0], [0, 0, 0]]), recipe(sequences={"prior": [0.6, 0.2, 0.2]}))
    assert prior.living_shards == 0


def test_dead_shards_are_counted_out():
    state = inventory([[2, 2, 2], [2, 2, 2]])
    dead = dataclasses.replace(state, alive={stage: key for stage, key in state.alive.items() if stage.shard == 1})
    assert ahead(dead, recipe()).living_shards == 1


def test_a_deletion_brings_the_end_nearer_and_repair_puts_it_off(trained):
    before = trained.forecast()
    report = trained.delete(records=["r3"])
    after = trained.forecast()
    assert after.next_shard_dies < before.next_shard_dies
    assert after.all_shards_die < before.all_shards_die
    assert 3 in before.depth_falls_below
    assert 3 not in after.depth_falls_below
    trained.repair()
    repaired = trained.forecast()
    assert repaired.next_shard_dies > after.next_shard_dies
    assert 3 in repaired.depth_falls_below
    assert report.status.depths != trained.status().depths


def test_an_untrained_run_has_nothing_ahead(text_model, tmp_path):
    from tests import tiny

    run = s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table())
    assert run.forecast().living_shards == 0
