"""Batches are a function of the number of records and a seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.training.batches import epoch_batches, parts_of


@given(count=st.integers(0, 60), batch_size=st.integers(1, 9), seed=st.integers(0, 2**63 - 1))
def test_an_epoch_sees_every_record_once(count, batch_size, seed):
    batches = epoch_batches(count, batch_size=batch_size, seed=seed)
    assert sorted(index for batch in batches for index in batch) == list(range(count))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert batches == epoch_batches(count, batch_size=batch_size, seed=seed)


def test_another_seed_gives_another_order():
    assert epoch_batches(30, batch_size=30, seed=1) != epoch_batches(30, batch_size=30, seed=2)


def test_batches_of_nothing_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        epoch_batches(3, batch_size=0, seed=0)


LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=9)


def cost(parts, lengths, part_tokens):
    return sum(part_tokens + len(part) * max(lengths[number] for number in part) for part in parts)


def all_splits(order):
    """Every way to cut a list into consecutive parts."""
    if not order:
        yield []
    for end in range(1, len(order) + 1):
        for rest in all_splits(order[end:]):
            yield [order[:end], *rest]


@given(lengths=LENGTHS, part_tokens=st.integers(0, 80), data=st.data())
def test_parts_are_a_batch_cut_by_length_at_the_least_cost(lengths, part_tokens, data):
    batch = data.draw(st.permutations(range(len(lengths))))
    parts = parts_of(batch, lengths, part_tokens=part_tokens)
    order = [number for part in parts for number in part]
    assert sorted(order) == sorted(batch)
    assert [lengths[number] for number in order] == sorted(lengths)
    assert cost(parts, lengths, part_tokens) == min(cost(split, lengths, part_tokens) for split in all_splits(order))


def test_a_batch_of_one_length_stays_whole_and_one_of_two_is_cut_between_them():
    assert parts_of([3, 1, 2], [9] * 4, part_tokens=1) == [[3, 1, 2]]
    assert parts_of([0, 1, 2, 3], [80, 5, 80, 5], part_tokens=48) == [[1, 3], [0, 2]]
    assert parts_of([0, 1, 2, 3], [80, 5, 80, 5], part_tokens=8192) == [[1, 3, 0, 2]]
