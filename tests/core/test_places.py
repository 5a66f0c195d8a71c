"""Assignment: a function of the record's owner and the secret, and of nothing else."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from s3t.core import Secret, place_of

NAMES = st.text(min_size=1)
SALTS = st.text(min_size=1)


AMONG = st.lists(st.integers(0, 19), min_size=1, unique=True)


def place(record, subject=None, *, salt="salt", shards=3, slices=4, among=None):
    return place_of(record, subject, secret=Secret(salt=salt), shards=shards, slices=slices, among=among)


@given(record=NAMES, subject=st.none() | NAMES, salt=SALTS, shards=st.integers(1, 50), slices=st.integers(1, 50))
def test_a_place_exists(record, subject, salt, shards, slices):
    found = place(record, subject, salt=salt, shards=shards, slices=slices)
    assert 0 <= found.shard < shards
    assert 0 <= found.slice < slices


@given(records=st.lists(NAMES, min_size=1), subject=NAMES)
def test_all_records_of_a_subject_share_a_place(records, subject):
    assert len({place(record, subject, shards=97, slices=89) for record in records}) == 1


@given(record=NAMES, subject=st.none() | NAMES, among=AMONG)
def test_a_record_of_a_group_lies_in_one_of_its_slices_and_in_the_shard_that_it_would_be_in_anyway(
    record, subject, among
):
    found = place(record, subject, shards=7, slices=20, among=among)
    assert found.slice in among
    assert found.shard == place(record, subject, shards=7, slices=20).shard


@given(record=NAMES, salt=SALTS, slices=st.integers(1, 50))
def test_one_group_of_all_slices_is_the_same_as_no_groups(record, salt, slices):
    assert place(record, salt=salt, slices=slices, among=range(slices)) == place(record, salt=salt, slices=slices)


def test_places_do_not_change_from_version_to_version():
    """Known answers: a run that is there must find its records' slices where they were."""
    assert [place(f"n{number}")[:2] for number in range(6)] == [(2, 3), (2, 1), (1, 3), (2, 2), (1, 3), (2, 0)]
    assert place("r", "somebody", salt="other", shards=11, slices=13) == (2, 3, 0)


def test_the_slices_of_a_group_are_taken_evenly():
    counts = Counter(place(f"n{number}", among=[1, 3]) for number in range(3_000))
    assert set(counts) == {(shard, index, 0) for shard in range(3) for index in (1, 3)}
    assert all(420 < count < 580 for count in counts.values())


def test_a_subject_and_a_record_of_one_name_are_not_one_owner_and_another_salt_gives_another_partition():
    names = [f"n{number}" for number in range(200)]
    assert sum(place(name) == place("r", name) for name in names) < 60  # 1 in 12 by chance
    assert sum(place(name) == place(name, salt="other") for name in names) < 60


def test_places_are_taken_evenly_and_neighbours_do_not_lie_together():
    places = [place(f"n{number}") for number in range(6_000)]
    counts = Counter(places)
    assert len(counts) == 12
    assert all(400 < count < 600 for count in counts.values())
    assert sum(one == other for one, other in pairwise(places)) < 700


def test_keys_of_different_purposes_differ():
    secret = Secret(salt="salt")
    purposes = ("partition", "order", "digest", "ledger", "stage")
    assert len({secret.key(purpose) for purpose in purposes}) == len(purposes)
    assert len({secret.token(purpose, "record", "x") for purpose in purposes}) == len(purposes)
    assert secret.token("ledger", "record", "x") != secret.token("ledger", "subject", "x")


def test_a_drawn_secret_is_new_each_time_and_not_shown():
    one, other = Secret.draw(), Secret.draw()
    assert one.salt != other.salt
    assert len(one.salt) >= 32
    assert one.salt not in repr(one)
