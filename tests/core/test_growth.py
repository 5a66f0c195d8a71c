"""Repair as needed, one shard at a time, and what stages cost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from s3t.core import AsNeeded, Forests, StageCosts, depths_after_hit, lacking, leaves, prefixes_of, without
from s3t.core.growth import may_begin, worth
from s3t.errors import PlanningError


@st.composite
def shards(draw):
    """A policy, L, and hits; the forest that is there after them and before the last repair. The slices' chances."""
    slices = draw(st.integers(2, 7))
    depth = draw(st.integers(1, slices))
    chances = draw(st.none() | st.lists(st.integers(1, 4), min_size=slices, max_size=slices))
    known = {"slices": slices, "chances": chances and [each / sum(chances) for each in chances]}
    policy = AsNeeded(
        depth=depth, spares=draw(st.integers(0, min(3, slices - 1))), spare_depth=draw(st.integers(1, depth))
    )
    alive = ()
    for index in draw(st.lists(st.integers(0, slices - 1), max_size=12)):
        alive = without(policy.planned(alive, **known), index)
    return policy, known, alive


@given(shards())
def test_a_repair_gives_the_chains_that_were_asked_for_and_no_deeper_ones(shard):
    policy, known, alive = shard
    planned = policy.planned(alive, **known)
    assert [len(chain) for chain in planned] == [policy.depth] + [policy.spare_depth] * policy.spares
    assert len(prefixes_of(planned)) == policy.depth + policy.spares * policy.spare_depth
    assert len({chain[0] for chain in planned}) == 1 + policy.spares
    for chain in planned:
        assert len(set(chain)) == len(chain)
        assert set(chain) <= set(range(known["slices"]))


@given(shards())
def test_only_what_is_missing_is_trained_and_nothing_alive_is_left(shard):
    policy, known, alive = shard
    missing = lacking(alive, policy.planned(alive, **known))
    there = prefixes_of(alive)
    assert not there & set(missing)
    assert len(set(missing)) == len(missing)
    assert prefixes_of(policy.planned(alive, **known)) <= there | set(missing)
    for place, prefix in enumerate(missing):
        assert prefix[:-1] in there | set(missing[:place]) | {()}


@given(shards())
def test_with_a_spare_no_hit_leaves_a_shard_dead(shard):
    policy, known, alive = shard
    least = min(depths_after_hit(leaves(policy.planned(alive, **known)), known["slices"]))
    assert least >= policy.least_after_hit(known["slices"]) >= min(policy.spares, 1)


@given(shards())
def test_the_deepest_chain_grows_and_nothing_else_becomes_the_main_one(shard):
    policy, known, alive = shard
    main = policy.planned(alive, **known)[0]
    deepest = alive[0] if alive else ()
    assert main[: len(deepest)] == deepest[: policy.depth]


@given(shards(), st.data())
def test_a_repair_that_stops_on_its_way_goes_on_to_the_same_chains(shard, data):
    policy, known, alive = shard
    slices, chances = known["slices"], known["chances"]
    costs = StageCosts(tuple(data.draw(st.lists(st.integers(1, 50), min_size=slices, max_size=slices))))
    growth = Forests(policy=policy, costs=costs, chances=(tuple(chances or [1 / slices] * slices),))
    order = growth.missing([prefixes_of(alive)])
    done = data.draw(st.integers(0, len(order)))
    halfway = leaves((*prefixes_of(alive), *(stage.prefix for stage in order[:done])))
    assert set(policy.planned(halfway, **known)) == set(policy.planned(alive, **known))


@given(shards(), st.data())
@settings(max_examples=200)
def test_whichever_stages_end_first_a_repair_leads_to_the_same_chains(shard, data):
    """As with several workers, each of which trains what may begin."""
    policy, known, alive = shard
    planned, forest = set(policy.planned(alive, **known)), alive
    while missing := lacking(forest, plan := policy.planned(forest, **known)):
        ready = [prefix for prefix in missing if may_begin(forest, plan, prefix)]
        together = data.draw(st.lists(st.sampled_from(ready), min_size=1, unique=True), label="trained at once")
        for prefix in data.draw(st.permutations(together), label="their end"):
            forest = leaves((*prefixes_of(forest), prefix))
    assert planned <= prefixes_of(forest)
    assert prefixes_of(forest) <= prefixes_of(alive) | prefixes_of(planned)


def test_the_most_worth_for_its_cost_is_trained_first_across_shards():
    policy, costs = AsNeeded(depth=3), StageCosts((1.0, 3.0, 7.0, 12.0))
    alive = [(), ((0, 1, 2),), ((0, 1), (3,))]
    growth = Forests(policy=policy, costs=costs, chances=((0.25,) * 4,) * 3)
    order = [(stage.shard, stage.prefix) for stage in growth.missing(list(map(prefixes_of, alive)))]
    # A dead shard's first stage gives a slice at once; a spare costs little; the third stages are dear.
    assert order[:2] == [(0, (0,)), (0, (0, 1))]
    assert order.index((1, (3,))) < order.index((2, (0, 1, 2)))
    missing = [lacking(chains, policy.planned(chains, slices=4)) for chains in alive]
    assert sorted(order) == sorted((shard, prefix) for shard, each in enumerate(missing) for prefix in each)


def test_the_least_likely_slices_are_nearest_to_the_tops():
    chances = [0.4, 0.05, 0.3, 0.05, 0.2]
    assert AsNeeded(depth=3).planned((), slices=5, chances=chances) == ((1, 3, 4), (3,))
    # Slice 1 was hit: it comes next, where it is not the spare's first.
    assert AsNeeded(depth=3).planned(((3,),), slices=5, chances=chances) == ((3, 1, 4), (1,))
    assert AsNeeded(depth=2, spares=0).planned((), slices=3, chances=[0.5, 0.3, 0.2]) == ((2, 1),)


def test_worth_follows_declared_chances():
    chains = ((0, 1),)
    assert worth(chains, (2,), [0.9, 0.05, 0.05]) == pytest.approx(0.9)
    assert worth(chains, (2,), [0.0, 0.5, 0.5]) == 0


def test_a_policy_that_a_shard_has_no_room_for():
    depth, spares = AsNeeded(depth=5, spares=4).misfits(4)
    assert "at most 4" in depth
    assert "at most 3" in spares
    with pytest.raises(ValidationError, match=r"(?s)spares.*spare_depth"):
        AsNeeded(depth=2, spares=-1, spare_depth=0)
    (spare_depth,) = AsNeeded(depth=2, spare_depth=3).misfits(4)
    assert "give 1 to 2" in spare_depth


@pytest.mark.parametrize("numbers", [(), (1.0, 0.0), (1.0, np.nan), (-1.0,)])
def test_costs_are_numbers_above_zero(numbers):
    with pytest.raises(PlanningError, match="costs of stages"):
        StageCosts(numbers)


def reachable(policy, slices):
    """Every state that a shard can be in after a repair."""
    states, ahead = set(), [policy.planned((), slices=slices)]
    while ahead:
        if (state := ahead.pop()) not in states:
            states.add(state)
            ahead += [policy.planned(without(state, index), slices=slices) for index in range(slices)]
    return states


@pytest.mark.parametrize("slices", [2, 3, 4, 5])
def test_depth_after_any_one_hit_in_every_state_that_there_is(slices):
    for spares in range(min(slices, 4)):
        for spare_depth in range(1, slices + 1):
            for depth in range(spare_depth, slices + 1):
                policy = AsNeeded(depth=depth, spares=spares, spare_depth=spare_depth)
                least = min(min(depths_after_hit(state, slices)) for state in reachable(policy, slices))
                told = policy.least_after_hit(slices)
                assert told <= least <= min(spare_depth, slices // 2) * min(spares, 1)
                if spares <= 1 or spare_depth * (1 + spares) <= slices:
                    assert told == least


TIMES = st.lists(st.floats(1e-3, 1e6), max_size=5)


@given(st.integers(1, 6), st.data())
def test_a_measured_depth_costs_its_median_and_others_keep_their_proportions(slices, data):
    declared = StageCosts.declared(slices)
    seconds = {depth: data.draw(TIMES) for depth in range(1, slices + 1)}
    found = declared.measured(seconds)
    if not any(seconds.values()):
        assert found is None
        return
    for depth, times in seconds.items():
        if times:
            assert min(times) <= found.by_depth[depth - 1] <= max(times)
    others = [depth for depth, times in seconds.items() if not times]
    ratios = [found.by_depth[depth - 1] / declared.by_depth[depth - 1] for depth in others]
    assert ratios == pytest.approx([ratios[0]] * len(ratios)) if ratios else True


def test_depths_without_times_cost_what_the_measured_ones_suggest():
    declared = StageCosts.declared(3)
    assert declared.by_depth == (2, 8, 18)
    assert declared.measured({2: [4.0], 3: []}).by_depth == (1.0, 4.0, 9.0)
    assert declared.measured({1: [1.0, 5.0, 600.0]}).by_depth == (5.0, 20.0, 45.0)
