"""`survival` against exact expectations, and against the paper's selectors on its own objective."""

import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3t.errors import SettingError
from s3t.events import WorkEnd, WorkStart, WorkStep
from s3t.orders import (
    Setting,
    bms,
    cyclic,
    cyclic_adjacent,
    expected_worth,
    orders_of_shards,
    select,
    sorted_cyclic,
    survival,
)
from s3t.orders.survival import hits_over
from tests.orders.test_selectors import priors

module = sys.modules["s3t.orders.survival"]


def exact_worth(orders, setting):
    """By going through every sequence of deletions."""
    total = 0.0
    for deletions in setting.horizon:
        for hits in itertools.product(range(setting.slices), repeat=deletions):
            chance = math.prod(setting.probabilities[index] for index in hits)
            depths = [next((k for k, index in enumerate(order) if index in hits), setting.slices) for order in orders]
            total += chance * setting.worth[max(depths)] / len(setting.horizon)
    return total


@st.composite
def small(draw):
    slices = draw(st.integers(1, 5))
    values = draw(st.none() | st.lists(st.integers(0, 9), min_size=slices, max_size=slices).map(sorted))
    return Setting(
        slices=slices,
        budget=draw(st.integers(1, min(math.factorial(slices), 8))),
        prior=draw(priors(slices)),
        horizon=tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))),
        values=None if values is None or values[-1] == 0 else tuple(map(float, values)),
    )


@pytest.mark.integration
@settings(max_examples=25)
@given(small())
def test_the_objective_is_the_expected_worth_of_the_best_prefix_and_never_worse_than_of_cyclic_and_bms(setting):
    orders = survival(setting)
    assert len({order[0] for order in orders}) == min(setting.budget, setting.slices)
    ours = exact_worth(orders, setting)
    assert expected_worth(orders, setting) == pytest.approx(ours, abs=1e-9)
    for selector in (cyclic, sorted_cyclic, *([bms] if setting.budget <= setting.slices else [])):
        assert ours >= exact_worth(selector(setting), setting) - 1e-9


@pytest.mark.integration
@settings(max_examples=4)
@given(st.integers(13, 14), st.integers(1, 15), st.integers(0, 100))
def test_it_is_never_worse_where_the_objective_is_sampled(slices, budget, seed):
    prior = tuple(np.random.default_rng(seed).dirichlet(np.ones(slices)))
    setting = Setting(slices=slices, budget=budget, prior=prior)
    ours = expected_worth(survival(setting), setting)
    for selector in (cyclic, sorted_cyclic, *([bms] if budget <= slices else [])):
        assert ours >= expected_worth(selector(setting), setting)


@pytest.mark.integration
@settings(max_examples=12)
@given(st.integers(1, 3), st.data())
def test_it_finds_the_best_there_is_where_all_can_be_tried(budget, data):
    slices = 4
    setting = Setting(slices=slices, budget=budget, prior=data.draw(priors(slices)), horizon=(1, 2))
    tops = {order[0] for order in survival(setting)}
    choices = (
        orders
        for orders in itertools.combinations(itertools.permutations(range(slices)), budget)
        if {order[0] for order in orders} == tops
    )
    best = max(exact_worth(orders, setting) for orders in choices)
    assert exact_worth(survival(setting), setting) >= 0.985 * best


def depths_after(orders, deletions, *, slices, trials=5_000):
    hits = np.random.default_rng(deletions).integers(slices, size=(trials, deletions))
    positions = np.argsort(np.asarray(orders), axis=1)
    return np.max([position[hits].min(axis=1) for position in positions], axis=0).mean()


def test_it_serves_deeper_than_the_papers_rotations():
    setting = Setting(slices=16, budget=4)
    ours, papers = survival(setting), cyclic_adjacent(setting)
    found = [depths_after(ours, r, slices=16) for r in (1, 2, 4, 8)]
    theirs = [depths_after(papers, r, slices=16) for r in (1, 2, 4, 8)]
    assert sum(found) >= 1.3 * sum(theirs)
    assert all(mine >= 0.99 * other for mine, other in zip(found, theirs, strict=True))


def test_the_same_setting_gives_the_same_orders_on_any_machine():
    """Pinned: another answer means that the arithmetic is not the same everywhere, or that the search has changed."""
    assert survival(Setting(slices=4, budget=2)) == ((0, 2, 1, 3), (1, 3, 0, 2))


def test_all_that_the_search_adds_up_is_whole_numbers_below_2_to_53(monkeypatch):
    """So that it is exact, in whatever order a machine adds. Its orders are pinned, as above."""
    largest, added = [0], [0]
    choose = module._Beam._chosen

    def spied(self, scores, members):
        values = scores[np.isfinite(scores)]
        assert (values == np.rint(values)).all()
        largest[0] = max(largest[0], np.abs(values).max())
        added[0] += len(values)
        return choose(self, scores, members)

    monkeypatch.setattr(module._Beam, "_chosen", spied)
    found = survival(Setting(slices=13, budget=2, prior=tuple(np.arange(1, 14) / 91)))
    assert [order[:6] for order in found] == [(0, 3, 6, 1, 7, 2), (1, 2, 0, 4, 5, 8)]
    assert added[0] > 1000
    assert largest[0] < 2**53


@pytest.mark.integration
def test_progress_hears_of_the_whole_search_for_each_different_shard_and_changes_nothing(monkeypatch):
    heard = []
    survival(Setting(slices=4, budget=2), progress=heard.append)
    assert heard == []  # so short a search is not worth telling
    monkeypatch.setattr(module, "LONG_EVALUATIONS", 1)
    of_shards = [*[Setting(slices=4, budget=2)] * 2, Setting(slices=5, budget=4, given=((4, 3, 2, 1, 0),))]
    orders = orders_of_shards("survival", of_shards, vary=False, progress=heard.append)
    assert orders == orders_of_shards("survival", of_shards, vary=False)
    begun = [event for event in heard if isinstance(event, WorkStart)]
    assert [event.what for event in begun] == ["choosing 2 orders of 4 slices", "choosing 4 orders of 5 slices"]
    done = sum(event.count for event in heard if isinstance(event, WorkStep))
    assert done == sum(event.total for event in begun) > 0
    assert sum(isinstance(event, WorkEnd) for event in heard) == 2


@pytest.mark.parametrize("slices", [3, 12, 13])
def test_hits_weigh_one_in_all_and_have_the_right_means(slices):
    prior = np.arange(1, slices + 1) / (slices * (slices + 1) / 2)
    hits = hits_over((1, 2, 5), tuple(prior), samples=2**14, seed=0)
    assert hits.weights.sum() == pytest.approx(1)
    spared = [hits.weights[(hits.slices != index).all(axis=1)].sum() for index in range(slices)]
    expected = np.mean([(1 - prior) ** deletions for deletions in (1, 2, 5)], axis=0)
    assert spared == pytest.approx(expected, abs=1e-12 if slices <= 12 else 0.01)
    assert (hits.counts == (hits.slices < slices).sum(axis=1)).all()


def test_values_decide_what_is_worth_keeping():
    """If only whole orders count, nothing shallow is kept for its own sake."""
    only_full = Setting(slices=4, budget=4, values=(0.0, 0.0, 1.0, 1.0), horizon=(1,))
    assert expected_worth(survival(only_full), only_full) == pytest.approx(1.0)


def test_it_refuses_more_slices_than_it_can_search():
    with pytest.raises(SettingError, match="at most 512 slices, not 513"):
        select("survival", Setting(slices=513, budget=1))


def test_it_ends_with_cyclic_orders_when_the_evaluations_are_spent(monkeypatch):
    monkeypatch.setattr(module, "MAX_EVALUATIONS", 30)
    orders = survival(Setting(slices=6, budget=6))
    assert len(set(orders)) == 6
