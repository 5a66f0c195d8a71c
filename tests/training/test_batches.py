"""Batches are a function of the number of records and a seed."""

from hypothesis import given
from hypothesis import strategies as st

from s3t.training.examples import epoch_batches


@given(count=st.integers(0, 60), batch_size=st.integers(1, 9), seed=st.integers(0, 2**63 - 1))
def test_an_epoch_sees_every_record_once(count, batch_size, seed):
    batches = epoch_batches(count, batch_size=batch_size, seed=seed)
    assert sorted(index for batch in batches for index in batch) == list(range(count))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert batches == epoch_batches(count, batch_size=batch_size, seed=seed)


def test_another_seed_gives_another_order():
    assert epoch_batches(30, batch_size=30, seed=1) != epoch_batches(30, batch_size=30, seed=2)
