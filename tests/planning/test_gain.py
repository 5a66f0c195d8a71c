"""What orders that are added buy."""

from dataclasses import replace
from itertools import permutations

import pytest

from experiments.retained import retained
from s3t.orders import Setting, cyclic, survival
from s3t.planning.forecast import gain

ROTATIONS = cyclic(Setting(slices=3, budget=3))


def test_beyond_the_rotations_of_three_slices_nothing_is_bought():
    found = gain([ROTATIONS] * 2, [tuple(permutations(range(3)))] * 2)
    assert found.is_none
    assert found.before == found.after


@pytest.mark.parametrize(("slices", "old", "new"), [(3, 2, 3), (4, 4, 6), (6, 3, 6)])
def test_what_is_bought_is_the_difference_of_the_expected_depths(slices, old, new):
    setting = Setting(slices=slices, budget=old)
    before = survival(setting)
    after = survival(replace(setting, budget=new, given=before))
    found = gain([before], [after], deletions=(1, 2, 5))
    assert not found.is_none
    assert found.before == pytest.approx(retained(before, [1, 2, 5]).expected_depth, abs=0.05)
    assert found.after == pytest.approx(retained(after, [1, 2, 5]).expected_depth, abs=0.05)


def test_shards_count_alike_and_each_has_its_own_prior():
    one, two = ROTATIONS[:1], ROTATIONS[:2]
    prior = (0.0, 0.0, 1.0)  # no deletion hits the slices that (0, 1, 2) begins with
    found = gain([one, one], [two, two], priors=[None, prior], deletions=(1,))
    uniform, other = gain([one], [two], deletions=(1,)), gain([one], [two], priors=[prior], deletions=(1,))
    assert found.after[0] == pytest.approx((uniform.after[0] + other.after[0]) / 2)
    assert other.is_none
    assert not uniform.is_none


def test_added_orders_never_seem_to_cost_depth():
    setting = Setting(slices=24, budget=22)
    before = cyclic(setting)
    same = gain([before], [before])
    assert same.is_none
    more = gain([before], [cyclic(replace(setting, budget=24))[:24]], deletions=(1, 4))
    assert all(new >= old for old, new in zip(more.before, more.after, strict=True))
