"""Cyclic sequences: distinct orders of all slices, evenly topped, spaced where they are few."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.orders import SELECTORS, Setting, cyclic


@st.composite
def asked(draw, most=200):
    slices = draw(st.integers(1, 12))
    return slices, draw(st.integers(1, min(math.factorial(slices), most)))


@given(asked())
def test_there_are_just_as_many_distinct_orders_as_asked_for(sizes):
    slices, budget = sizes
    orders = cyclic(Setting(slices=slices, budget=budget))
    assert len(set(orders)) == len(orders) == budget
    assert all(sorted(order) == list(range(slices)) for order in orders)


@given(asked())
def test_every_slice_is_on_top_equally_often_give_or_take_one(sizes):
    slices, budget = sizes
    tops = Counter(order[0] for order in cyclic(Setting(slices=slices, budget=budget)))
    counts = [tops[index] for index in range(slices)]
    assert max(counts) - min(counts) <= 1


@given(asked())
def test_up_to_as_many_orders_as_slices_are_rotations(sizes):
    slices, budget = sizes
    orders = cyclic(Setting(slices=slices, budget=min(slices, budget)))
    assert all(order == (*range(order[0], slices), *range(order[0])) for order in orders)


@given(slices=st.integers(1, 40), part=st.integers(1, 40))
def test_few_rotations_are_spaced_so_that_their_prefixes_are_disjoint(slices, part):
    budget = min(part, slices)
    prefixes = [order[: slices // budget] for order in cyclic(Setting(slices=slices, budget=budget))]
    slices_named = [index for prefix in prefixes for index in prefix]
    assert len(slices_named) == len(set(slices_named))


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 5])
def test_the_whole_budget_is_every_order(slices):
    orders = cyclic(Setting(slices=slices, budget=math.factorial(slices)))
    assert len(set(orders)) == math.factorial(slices)


@given(asked(most=50))
def test_a_smaller_budget_beyond_the_rotations_is_a_part_of_a_bigger_one(sizes):
    slices, budget = sizes
    if slices <= budget < math.factorial(slices):
        more = cyclic(Setting(slices=slices, budget=budget + 1))
        assert more[:budget] == cyclic(Setting(slices=slices, budget=budget))


def test_a_recipe_finds_it_by_name():
    assert SELECTORS["cyclic"] is cyclic
