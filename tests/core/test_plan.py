"""The plan of a deletion: all that the slices touch, and nothing that they do not."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from s3t.core import FixedOrders, Inventory, Place, Stage, after_deletion, plan_deletion, stages_of
from s3t.core.inventory import tainted_by
from s3t.core.stages import readout
from s3t.orders import Setting, cyclic

SHARDS, SLICES, SEGMENTS = 3, 4, 3


def inventory(alive=None):
    orders = (cyclic(Setting(slices=SLICES, budget=6)),) * SHARDS
    places = {Place(*at): 10 for at in itertools.product(range(SHARDS), range(SLICES), range(SEGMENTS))}
    stages = stages_of(orders) if alive is None else alive
    return Inventory(
        generation=7, growth=FixedOrders(orders), records=places, alive={stage: str(stage) for stage in stages}
    )


PLACES = st.builds(Place, st.integers(0, SHARDS - 1), st.integers(0, SLICES - 1), st.integers(0, SEGMENTS - 1))
LOSSES = st.dictionaries(PLACES, st.integers(1, 10))
STAGES = stages_of((cyclic(Setting(slices=SLICES, budget=6)),) * SHARDS)
MODELS = st.sampled_from([stage._replace(seen=seen) for stage in STAGES for seen in range(SEGMENTS)])
ALIVE = st.sets(MODELS)
READOUTS = st.sets(st.builds(readout, PLACES, st.lists(MODELS, max_size=1)))


@given(LOSSES, ALIVE, READOUTS)
def test_a_stage_is_tainted_if_and_only_if_it_was_made_from_a_slice_that_loses_a_record(losses, models, readouts):
    alive = models | readouts
    before = inventory(alive)
    tainted = plan_deletion(before, losses)
    assert len(tainted) == len(set(tainted))
    assert set(tainted) <= alive
    for stage in alive:
        touched = any(
            (each.shard, index, segment) in losses
            for each in (stage, *stage.models)
            for index in each.prefix
            for segment in range(each.seen + 1)
        )
        assert (stage in tainted) == touched
    after = after_deletion(before, losses, tainted)
    assert set(after.alive) == alive - set(tainted)
    assert all(after.records[place] == 10 - losses.get(place, 0) for place in before.records)
    assert (after.orders, after.generation) == (before.orders, 7 + bool(losses))
    assert before == inventory(alive)


@given(LOSSES)
def test_stages_of_orders_that_the_inventory_does_not_know_are_tainted_like_any_other(losses):
    """Another process has added the orders since."""
    known = inventory()
    few = replace(known, growth=FixedOrders(tuple(own[:1] for own in known.orders)))
    assert plan_deletion(few, losses) == plan_deletion(known, losses)


@given(LOSSES, LOSSES)
def test_two_deletions_leave_alive_what_one_of_both_leaves(first, second):
    state = inventory()
    one_by_one = state
    for losses in (first, second):
        one_by_one = after_deletion(one_by_one, losses, plan_deletion(one_by_one, losses))
    both = {place: first.get(place, 0) + second.get(place, 0) for place in first.keys() | second.keys()}
    at_once = after_deletion(state, both, plan_deletion(state, both))
    assert one_by_one.alive == at_once.alive
    assert one_by_one.records == at_once.records


def test_a_deletion_takes_readouts_of_the_slice_and_of_every_model_that_has_seen_it():
    models = Stage(0, (2, 1)), Stage(1, (0,))
    readouts = {readout(Place(0, index), models) for index in range(3)} | {readout(Place(1, 2), models[1:])}
    hit = {place: set(tainted_by({place}, readouts)) for place in (Place(0, 0), Place(0, 1), Place(1, 0), Place(1, 2))}
    of_both = {stage for stage in readouts if stage.models == models}
    assert hit == {
        Place(0, 0): {readout(Place(0, 0), models)},
        Place(0, 1): of_both,
        Place(1, 0): readouts,
        Place(1, 2): readouts - of_both,
    }


@given(ALIVE, LOSSES, st.sampled_from(["", "each", "mean"]), st.integers(0, SEGMENTS - 1))
def test_a_readout_has_its_turn_if_a_head_that_serves_wants_it(alive, losses, readouts, learned):
    state = replace(after_deletion(inventory(alive), losses, ()), readouts=readouts, learned=learned)
    groups = {(), tuple(state.members().values()), *((stage,) for stage in alive)}
    tried = {readout(place, models) for place in state.records for models in groups}
    assert {stage for stage in tried if state.may_begin(stage)} == {*state.wanted_readouts}
