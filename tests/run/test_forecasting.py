"""What a run says it still survives: from its present state, as records are left and as the recipe declares."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import s3t
from s3t.core import FixedOrders, Inventory, Place, Stage, StageCosts, stages_of
from s3t.orders import Setting, cyclic
from s3t.planning.forecast import forecast
from s3t.recipe import recipe_from
from s3t.run.forecasting import forecast_of
from s3t.run.reporting import hours_of

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
    return Inventory(
        generation=0, growth=FixedOrders(ORDERS), records=places, alive=dict.fromkeys(stages_of(ORDERS), "key")
    )


def test_without_a_declared_prior_every_record_left_is_alike_and_goes_once():
    records = [[3, 4, 5], [2, 2, 8]]
    found = forecast_of(inventory(records), recipe())
    assert found == forecast([ORDERS[0]] * 2, np.array(records, dtype=float), np.array(records))


def test_a_declared_prior_is_of_slices_whatever_they_hold():
    records = np.array([[3, 4, 5], [2, 2, 8]])
    found = forecast_of(inventory(records), recipe(sequences={"prior": [0.6, 0.2, 0.2]}))
    assert found == forecast([ORDERS[0]] * 2, np.array([[0.6, 0.2, 0.2]] * 2), records)


def test_a_declared_group_is_of_records():
    """Slice 0 holds one record that is three times as likely as each of 299 others: it stays long."""
    group = {"column": "band", "slices": {"x": [0], "y": [1, 2]}, "deletion": {"x": 0.3, "y": 0.1}}
    state = inventory([[1, 149, 150], [0, 0, 0]])
    single = dataclasses.replace(state, growth=FixedOrders((((0, 1, 2),), ORDERS[1])))
    found = forecast_of(single, recipe(partition={"group": group}))
    assert 60 < found.all_shards_die < 110


@pytest.mark.integration
@settings(max_examples=40)
@given(st.lists(st.integers(0, 4), min_size=6, max_size=6), st.sampled_from(["none", "prior", "group"]))
def test_no_forecast_exceeds_the_records_left_and_deeper_falls_come_sooner(counts, declared):
    parts = {
        "none": {},
        "prior": {"sequences": {"prior": [0.9, 0.05, 0.05]}},
        "group": {
            "partition": {
                "group": {"column": "band", "slices": {"x": [0], "y": [1, 2]}, "deletion": {"x": 0.3, "y": 0.1}}
            }
        },
    }[declared]
    found = forecast_of(inventory([counts[:3], counts[3:]]), recipe(**parts))
    if found.living_shards == 0:
        return
    falls = [found.next_shard_dies, *(value for _, value in sorted(found.depth_falls_below.items()))]
    assert all(value is not None for value in falls)
    assert found.all_shards_die <= sum(counts) + 1e-6
    assert all(later <= sooner + 1e-6 for sooner, later in itertools.pairwise(falls))


def test_a_deletion_is_told_even_if_nothing_can_be_forecast(trained, monkeypatch):
    def failing(*about):
        raise ArithmeticError

    monkeypatch.setattr("s3t.run.forecasting.forecast_of", failing)
    report = trained.delete(records=["r3"])
    assert report.deleted == 1
    assert trained.status(full=True).forecast is None
    assert trained.forecast() is None


def test_what_is_next_to_impossible_is_not_waited_for():
    found = forecast_of(inventory([[3, 4, 5], [2, 2, 8]]), recipe(sequences={"prior": [1.0, 1e-320, 1e-320]}))
    assert found.all_shards_die is None


def test_a_slice_without_records_is_not_waited_for():
    """Shard 0 answers with slice 1 or 2 in its prefix, for slice 0 alone holds nothing to answer with."""
    found = forecast_of(inventory([[0, 1, 1], [1, 1, 1]]), recipe())
    assert found.next_shard_dies is not None
    assert found.all_shards_die == pytest.approx(5)  # all five records must go


def test_a_run_without_records_has_nothing_ahead():
    found = forecast_of(inventory([[0, 0, 0], [0, 0, 0]]), recipe())
    assert found.living_shards == 0
    prior = forecast_of(inventory([[0, 0, 0], [0, 0, 0]]), recipe(sequences={"prior": [0.6, 0.2, 0.2]}))
    assert prior.living_shards == 0


def test_dead_shards_are_counted_out():
    state = inventory([[2, 2, 2], [2, 2, 2]])
    dead = dataclasses.replace(state, alive={stage: key for stage, key in state.alive.items() if stage.shard == 1})
    assert forecast_of(dead, recipe()).living_shards == 1


@pytest.mark.integration
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
    assert report.depths_after != trained.status().depths


def test_an_untrained_run_has_nothing_ahead(text_model, tmp_path):
    from testing import tiny

    run = s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table())
    assert run.forecast().living_shards == 0


def test_hours_are_those_of_each_kind_of_stage_and_none_where_a_kind_has_no_times():
    durations = {Stage(0, (0,)): 3600.0, Stage(0, (0, 1)): 7200.0, Stage(0, (0,), "prototypes"): 36.0}
    missing = [Stage(1, (2,)), Stage(1, (2, 0)), Stage(1, (0,), "prototypes"), Stage(1, (1,), "prototypes")]
    assert hours_of(missing, durations, costs=StageCosts.declared(3)) == pytest.approx(3.02)
    assert hours_of([], {}, costs=StageCosts.declared(3)) == 0.0
    models = {stage: seconds for stage, seconds in durations.items() if stage.kind == "model"}
    assert hours_of(missing, models, costs=StageCosts.declared(3)) is None
    assert hours_of(missing[:2], models, costs=StageCosts.declared(3)) == pytest.approx(3.0)
    assert hours_of(missing[:1], {}, costs=StageCosts.declared(3)) is None
