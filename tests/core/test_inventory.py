"""What is alive and what serves, with the example of the paper."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from s3t.core import (
    FixedOrders,
    Inventory,
    Place,
    Stage,
    after_deletion,
    of_slice,
    plan_deletion,
    stages_of,
)

PAPERS_ORDERS = ((0, 1, 2, 3), (3, 0, 1, 2), (2, 3, 0, 1), (1, 2, 3, 0))
"""(1234), (4123), (3412), (2341) of Section 3.3, counted from 0."""


def inventory(orders, *, records=5):
    """All stages alive; every slice with the same number of records."""
    places = {Place(shard, index): records for shard, own in enumerate(orders) for index in own[0]}
    alive = {stage: f"key of {stage}" for stage in stages_of(orders)}
    return Inventory(generation=0, growth=FixedOrders(orders), records=places, alive=alive)


def losing(state, *places):
    losses = {Place(*place): 1 for place in places}
    return after_deletion(state, losses, plan_deletion(state, losses))


def live_prefixes(state, shard):
    return [order[: state.depth(shard, order)] for order in state.orders[shard]]


def test_the_papers_example_without_slice_1_and_then_without_slice_2():
    """m=3, L=4: (1234), (4123), (3412), (2341) leave (4), (34), (234); then (4), (34)."""
    state = losing(inventory((PAPERS_ORDERS,) * 3), (1, 0))
    assert live_prefixes(state, 1) == [(), (3,), (2, 3), (1, 2, 3)]
    assert state.serving(1).prefix == (1, 2, 3)
    state = losing(state, (1, 1))
    assert live_prefixes(state, 1) == [(), (3,), (2, 3), ()]
    assert state.serving(1).prefix == (2, 3)
    for other in (0, 2):
        assert live_prefixes(state, other) == list(PAPERS_ORDERS)


@st.composite
def schedules(draw):
    slices = draw(st.integers(1, 5))
    orders = tuple(
        tuple(dict.fromkeys(draw(st.lists(st.permutations(range(slices)).map(tuple), min_size=1, max_size=5))))
        for _ in range(draw(st.integers(1, 3)))
    )
    places = st.tuples(st.integers(0, len(orders) - 1), st.integers(0, slices - 1))
    return orders, draw(st.lists(places, max_size=8))


@given(schedules())
def test_live_prefixes_end_before_a_slice_that_lost_a_record_and_the_first_of_the_deepest_serves(schedule):
    orders, hits = schedule
    state = inventory(orders, records=100)
    for hit in hits:
        state = losing(state, hit)
    for shard, own in enumerate(orders):
        depths = [state.depth(shard, order) for order in own]
        for order, depth in zip(own, depths, strict=True):
            assert depth == next((at for at, index in enumerate(order) if (shard, index) in hits), len(order))
        deepest = max(depths)
        serving = Stage(shard, own[depths.index(deepest)][:deepest]) if deepest else None
        assert state.serving(shard) == state.members().get(shard) == serving
    missing = state.missing()  # parents first
    assert set(missing) == set(stages_of(orders)) - set(state.alive)
    assert [stage.depth for stage in missing] == sorted(stage.depth for stage in missing)


@given(st.lists(st.integers(1, 9), min_size=4, max_size=4), st.permutations(PAPERS_ORDERS))
def test_who_serves_does_not_hang_on_how_many_records_a_slice_has(counts, orders):
    """Else a tie would tell, and depend on, what was deleted long ago."""
    state = losing(inventory((tuple(orders),)), (0, 0), (0, 2))  # leaves (3) and (1), one as deep as the other
    first = next(order for order in orders if order[0] in (1, 3))
    counted = {Place(0, index): count for index, count in enumerate(counts)}
    assert replace(state, records=counted).members() == {0: Stage(0, first[:1])}


def test_a_stage_whose_parent_is_gone_does_not_serve():
    state = inventory((((0, 1, 2),),))
    alive = {stage: key for stage, key in state.alive.items() if stage.prefix != (0, 1)}
    assert replace(state, alive=alive).depth(0, (0, 1, 2)) == 1


def test_a_prefix_without_a_record_does_not_serve_but_a_deeper_one_may():
    state = inventory((((0, 1), (1, 0)),))
    empty_top = Inventory(
        generation=0, growth=state.growth, records={Place(0, 0): 0, Place(0, 1): 3}, alive=dict(state.alive)
    )
    assert empty_top.serving(0).prefix == (0, 1)
    top = Stage(0, (0,))
    only_first = replace(empty_top, alive={top: empty_top.alive[top]})
    assert only_first.depth(0, (0, 1)) == 1
    assert only_first.serving(0) is None
    assert only_first.members() == {}


def of_slices(state):
    return tuple(of_slice(place, "prototypes") for place in sorted(state.records))


def with_prototypes(state):
    alive = state.alive | {stage: f"key of {stage}" for stage in of_slices(state)}
    return replace(state, alive=alive, of_slices="prototypes")


def test_prototypes_are_missing_until_they_are_made_and_a_deletion_takes_those_of_its_slice():
    bare = inventory((PAPERS_ORDERS[:1],))
    assert replace(bare, of_slices="prototypes").missing() == of_slices(bare)
    state = with_prototypes(bare)
    assert state.missing() == ()
    assert state.heads() == {0: Stage(0, (0, 1, 2, 3), "prototypes")}
    assert replace(state, records=dict.fromkeys(state.records, 0)).heads() == {}
    state = losing(state, (0, 0))
    assert state.members() == {}
    assert state.heads() == {0: Stage(0, (1, 2, 3), "prototypes")}


def test_with_scores_the_best_live_order_serves_and_depth_decides_among_equals():
    state = inventory((PAPERS_ORDERS,))
    scores = {
        f"key of {Stage(0, order)}": score for order, score in zip(PAPERS_ORDERS, (0.5, 0.7, 0.7, 0.6), strict=True)
    }
    assert replace(state, scores=scores).serving(0).prefix == PAPERS_ORDERS[1]
    hit = replace(losing(state, (0, 0)), scores={f"key of {Stage(0, (3,))}": 0.9, f"key of {Stage(0, (1, 2, 3))}": 0.8})
    assert hit.serving(0).prefix == (3,)
    assert replace(hit, scores={}).serving(0).prefix == (1, 2, 3)  # nothing is known of any: the deepest
