"""The trie of orders: every prefix once."""

from hypothesis import given
from hypothesis import strategies as st

from s3t.drawing import cells
from s3t.orders import Setting, random_orders


@st.composite
def leaves(draw):
    slices = draw(st.integers(1, 6))
    budget = draw(st.integers(1, min(24, [1, 2, 6, 24, 120, 720][slices - 1])))
    return sorted(random_orders(Setting(slices=slices, budget=budget, seed=draw(st.integers(0, 9)))))


@given(leaves())
def test_every_prefix_is_one_node_over_its_leaves(orders):
    nodes = cells(orders)
    prefixes = [prefix for prefix, _, _ in nodes]
    assert len(set(prefixes)) == len(prefixes)
    assert set(prefixes) == {order[:depth] for order in orders for depth in range(1, len(order) + 1)}
    for prefix, low, high in nodes:
        under = [number for number, order in enumerate(orders) if order[: len(prefix)] == prefix]
        assert under == list(range(low, high))
