"""Which records later stages see again: each decides for itself, under the secret."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from s3t.core import Secret
from s3t.run.material import replayed

SECRET = Secret(salt="salt")


def chosen(names, share, *, secret=SECRET):
    return {names[position] for position in replayed(names, share, secret=secret)}


@settings(max_examples=40)
@given(st.lists(st.text(min_size=1), unique=True, max_size=30), st.floats(0, 1), st.data())
def test_whether_a_record_is_replayed_depends_on_no_other(names, share, data):
    left = [name for name in names if data.draw(st.booleans())]
    assert chosen(left, share) == chosen(names, share) & set(left)


def test_a_larger_share_holds_all_of_a_smaller_one_and_another_secret_others():
    names = [f"r{number}" for number in range(400)]
    shares = [chosen(names, share) for share in (0, 0.25, 0.5, 1)]
    assert all(small < large for small, large in itertools.pairwise(shares))
    assert [len(shares[0]), len(shares[-1])] == [0, 400]
    assert 150 < len(shares[2]) < 250
    assert chosen(names, 0.5, secret=Secret(salt="other")) != shares[2]


def test_what_is_replayed_does_not_change_from_version_to_version():
    """Known answers: a stage that is repaired must see what the others saw."""
    assert replayed([f"r{number}" for number in range(12)], 0.5, secret=SECRET) == [0, 5, 6, 8, 9, 11]
