"""What a run says it still survives: from its present state, as records are left and as the recipe declares."""

import dataclasses

import numpy as np
import pytest

from s3t.core import FixedOrders, Inventory, Place, Stage, StageCosts, stages_of
from s3t.orders import Setting, cyclic
from s3t.planning.forecast import forecast
from s3t.recipe import recipe_from
from s3t.run.forecasting import forecast_of
from s3t.run.reporting import hours_of
from testing import tiny

ORDERS = (cyclic(Setting(slices=3, budget=3)),) * 2


PRIOR = {"sequences": {"prior": [0.6, 0.2, 0.2]}}
GROUP = {"column": "band", "slices": {"x": [0], "y": [1, 2]}, "deletion": {"x": 0.3, "y": 0.1}}


def recipe(**parts):
    return recipe_from(tiny.recipe("none", **parts))


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
    found = forecast_of(inventory(records), recipe(**PRIOR))
    assert found == forecast([ORDERS[0]] * 2, np.array([[0.6, 0.2, 0.2]] * 2), records)


def test_a_declared_group_is_of_records():
    """Slice 0 holds one record that is three times as likely as each of 299 others: it stays long."""
    state = inventory([[1, 149, 150], [0, 0, 0]])
    single = dataclasses.replace(state, growth=FixedOrders((((0, 1, 2),), ORDERS[1])))
    found = forecast_of(single, recipe(partition={"group": GROUP}))
    assert 60 < found.all_shards_die < 110


def test_a_deletion_is_told_even_if_nothing_can_be_forecast(trained, monkeypatch):
    def failing(*about):
        raise ArithmeticError

    monkeypatch.setattr("s3t.run.forecasting.forecast_of", failing)
    report = trained.delete(records=["r3"])
    assert report.deleted == 1
    assert trained.status(full=True).forecast is None
    assert trained.forecast() is None


def test_what_cannot_happen_is_not_waited_for_and_dead_shards_are_counted_out():
    rare = forecast_of(inventory([[3, 4, 5], [2, 2, 8]]), recipe(sequences={"prior": [1.0, 1e-320, 1e-320]}))
    assert rare.all_shards_die is None
    # Shard 0 answers with slice 1 or 2 in its prefix, for slice 0 alone holds nothing to answer with.
    state = inventory([[0, 1, 1], [1, 1, 1]])
    assert forecast_of(state, recipe()).next_shard_dies is not None
    assert forecast_of(state, recipe()).all_shards_die == pytest.approx(5)  # all five records must go
    for living in ({1}, set()):
        left = {stage: key for stage, key in state.alive.items() if stage.shard in living}
        assert forecast_of(dataclasses.replace(state, alive=left), recipe()).living_shards == len(living)
    for declared in ({}, PRIOR):
        assert forecast_of(inventory([[0, 0, 0], [0, 0, 0]]), recipe(**declared)).living_shards == 0


@pytest.mark.integration
def test_a_deletion_brings_the_end_nearer_and_repair_puts_it_off(trained):
    before = trained.forecast()
    trained.delete(records=["r3"])
    after = trained.forecast()
    trained.repair()
    repaired = trained.forecast()
    for near, far in ((after, before), (after, repaired)):
        assert near.next_shard_dies < far.next_shard_dies
        assert near.all_shards_die < far.all_shards_die
        assert (3 in near.depth_falls_below, 3 in far.depth_falls_below) == (False, True)


def test_hours_are_those_of_each_kind_of_stage_and_none_where_a_kind_has_no_times():
    durations = {Stage(0, (0,)): 3600.0, Stage(0, (0, 1)): 7200.0, Stage(0, (0,), "prototypes"): 36.0}
    missing = [Stage(1, (2,)), Stage(1, (2, 0)), Stage(1, (0,), "prototypes"), Stage(1, (1,), "prototypes")]
    assert hours_of(missing, durations, costs=StageCosts.declared(3)) == pytest.approx(3.02)
    assert hours_of([], {}, costs=StageCosts.declared(3)) == 0.0
    models = {stage: seconds for stage, seconds in durations.items() if stage.kind == "model"}
    assert hours_of(missing, models, costs=StageCosts.declared(3)) is None
    assert hours_of(missing[:2], models, costs=StageCosts.declared(3)) == pytest.approx(3.0)
    assert hours_of(missing[:1], {}, costs=StageCosts.declared(3)) is None
