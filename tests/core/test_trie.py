"""Stages: one for each distinct prefix, parents first."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from s3t.core import Place, Stage, by_kind, of_slice, stages_of
from s3t.core.stages import readout
from s3t.ledger.schema import prefix_text, stage_at

ORDERS = st.integers(1, 5).flatmap(
    lambda slices: st.lists(
        st.lists(st.permutations(range(slices)).map(tuple), min_size=1, max_size=6), min_size=1, max_size=3
    )
)


@given(ORDERS)
def test_there_is_one_stage_for_each_distinct_prefix(orders):
    stages = stages_of(orders)
    wanted = {
        Stage(shard, order[:k]) for shard, own in enumerate(orders) for order in own for k in range(1, len(order) + 1)
    }
    assert len(stages) == len(wanted)
    assert set(stages) == wanted


@given(ORDERS)
def test_parents_come_before_their_children_and_shallow_stages_first_however_orders_are_named(orders):
    stages = stages_of(orders)
    assert all({*stages[:place]}.issuperset(stage.parents) for place, stage in enumerate(stages))
    assert [stage.depth for stage in stages] == sorted(stage.depth for stage in stages)
    assert stages == stages_of([own[::-1] for own in orders])


@given(st.permutations(range(5)).map(tuple))
def test_a_chain_goes_from_the_first_stage_to_its_own(prefix):
    stage = Stage(2, prefix)
    assert [link.prefix for link in stage.chain] == [prefix[:depth] for depth in range(1, 6)]
    assert stage.chain[-1] == stage
    assert all(child.parents == (parent,) for parent, child in pairwise(stage.chain))
    assert stage.chain[0].parents == ()
    assert str(stage) == f"stage {prefix} of shard 2"


@given(st.permutations(range(5)).map(tuple), st.integers(1, 7))
def test_a_stage_is_cut_to_a_link_of_its_chain_and_prototypes_stay_whole(prefix, depth):
    assert Stage(2, prefix).cut(depth) == Stage(2, prefix[:depth])
    prototypes = Stage(2, prefix, "prototypes")
    assert prototypes.cut(depth) == prototypes


@given(ORDERS)
def test_stages_of_models_and_prototypes_are_told_apart_in_their_order(orders):
    models = list(stages_of(orders))
    prototypes = [of_slice(Place(shard, index), "prototypes") for shard, own in enumerate(orders) for index in own[0]]
    assert by_kind([*prototypes, *models]) == (models, prototypes)


def test_prototypes_are_stages_beside_the_others_that_stand_on_one_slice_each():
    first, second = (of_slice(Place(0, index), "prototypes") for index in range(2))
    assert first == Stage(0, (0,), "prototypes") != Stage(0, (0,))
    assert (first.parents, first.chain) == ((), (first,))
    classifier = Stage(0, (0, 1), "prototypes")
    assert (classifier.parents, classifier.chain) == ((), (first, second))
    assert str(second) == "prototypes of slice 1 of shard 0"


def test_a_readout_is_made_of_one_slice_and_stands_on_all_of_its_models():
    models = Stage(0, (2, 1)), Stage(1, (0,))
    made = readout(Place(1, 2), models)
    assert (made.models, made.parents) == (models, models)
    assert made.places == (Place(1, 2), Place(0, 2), Place(0, 1), Place(1, 0))
    assert made.chain == (Stage(0, (2,)), *models, made)
    assert stage_at(made.shard, prefix_text(made)) == made
    assert str(made) == "readout of slice 2 of shard 1 by the mean of 2 shards"
    assert str(readout(Place(1, 2), models[:1])) == "readout of slice 2 of shard 1 by stage (2, 1) of shard 0"
