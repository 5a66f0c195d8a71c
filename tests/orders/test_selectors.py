"""What all selectors have in common, and what each promises of its own."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3t.errors import SettingError
from s3t.orders import (
    SELECTORS,
    Setting,
    bms,
    conditional,
    cyclic,
    cyclic_adjacent,
    full,
    mean_distance,
    orders_of_shards,
    prior_rows,
    random_orders,
    scores,
    select,
    sorted_cyclic,
)

UP_TO_L = ["bms"]
ANY_BUDGET = [name for name in SELECTORS if name not in ("full", *UP_TO_L)]


def priors(slices):
    weights = st.lists(st.integers(0, 20), min_size=slices, max_size=slices).filter(any)
    return st.none() | weights.map(lambda row: tuple(value / sum(row) for value in row))


@st.composite
def asked(draw, names, most_slices=6, most=40, up_to_slices=False):
    slices = draw(st.integers(1, most_slices))
    most = min(math.factorial(slices), slices if up_to_slices else most)
    name, prior = draw(st.sampled_from(names)), draw(priors(slices))
    if name == "conditional" and prior is not None and min(prior) == 0:
        prior = None  # it could not sample every order
    setting = Setting(
        slices=slices,
        budget=draw(st.integers(1, most)),
        prior=prior,
        seed=draw(st.integers(0, 5)),
        deletions=draw(st.integers(1, 10)),
    )
    return name, setting


def assert_distinct_permutations(orders, setting):
    assert len(orders) == len(set(orders)) == setting.budget
    assert all(sorted(order) == list(range(setting.slices)) for order in orders)


@pytest.mark.integration
@given(asked(ANY_BUDGET))
def test_orders_are_distinct_permutations_as_many_as_asked(case):
    name, setting = case
    assert_distinct_permutations(select(name, setting), setting)


@pytest.mark.integration
@given(asked([*ANY_BUDGET, *UP_TO_L], up_to_slices=True))
def test_up_to_l_orders_are_distinct_permutations_the_same_each_time(case):
    name, setting = case
    orders = select(name, setting)
    assert_distinct_permutations(orders, setting)
    assert select(name, setting) == orders


@given(asked(["bms", "cyclic", "cyclic-adjacent", "sorted-cyclic"], most_slices=9, up_to_slices=True))
def test_no_slice_is_twice_at_one_position_up_to_l_orders(case):
    """Lemma 3."""
    name, setting = case
    orders = select(name, setting)
    for position in range(setting.slices):
        assert len({order[position] for order in orders}) == setting.budget
    assert setting.budget == 1 or mean_distance(orders) == setting.slices


@pytest.mark.integration
@given(asked(ANY_BUDGET, most=12), st.integers(0, 6))
def test_more_orders_keep_those_that_are_there(case, extra):
    name, setting = case
    before = select(name, setting)
    wider = Setting(
        slices=setting.slices,
        budget=min(setting.budget + extra, math.factorial(setting.slices)),
        prior=setting.prior,
        seed=setting.seed,
        given=before,
    )
    after = select(name, wider)
    assert after[: len(before)] == before
    assert_distinct_permutations(after, wider)
    new_tops = Counter(order[0] for order in after[len(before) : setting.slices])
    assert name in ("random", "conditional") or all(count == 1 for count in new_tops.values())


@given(asked(["cyclic"], most_slices=12, most=200))
def test_cyclic_orders_are_distinct_evenly_topped_and_first_of_all_rotations(case):
    _, setting = case
    slices, budget = setting.slices, setting.budget
    orders = cyclic(setting)
    assert_distinct_permutations(orders, setting)
    tops = Counter(order[0] for order in orders)
    assert max(tops.values()) - min(tops[index] for index in range(slices)) <= 1
    rotations = cyclic(replace(setting, budget=min(slices, budget)))
    assert all(order == (*range(order[0], slices), *range(order[0])) for order in rotations)
    if slices <= budget < math.factorial(slices):
        assert cyclic(replace(setting, budget=budget + 1))[:budget] == orders


@given(slices=st.integers(1, 40), part=st.integers(1, 40))
def test_few_rotations_are_spaced_so_that_their_prefixes_are_disjoint(slices, part):
    budget = min(part, slices)
    prefixes = [order[: slices // budget] for order in cyclic(Setting(slices=slices, budget=budget))]
    named = [index for prefix in prefixes for index in prefix]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("slices", [3, 4, 5])
def test_cyclic_reaches_the_bound_on_mean_distance_for_every_budget(slices):
    """At each position some slices stand q+1 times and the others q times; fewer agreements cannot be."""
    for budget in range(2, math.factorial(slices) + 1):
        q, s = divmod(budget, slices)
        agreeing = slices * (s * math.comb(q + 1, 2) + (slices - s) * math.comb(q, 2))
        bound = slices - agreeing / math.comb(budget, 2)
        orders = cyclic(Setting(slices=slices, budget=budget))
        assert len(set(orders)) == budget
        assert mean_distance(orders) == pytest.approx(bound, abs=1e-12), budget


def test_mean_distance_is_that_of_all_pairs():
    orders = random_orders(Setting(slices=6, budget=50, seed=4))
    distances = [sum(a != b for a, b in zip(x, y, strict=True)) for x, y in itertools.combinations(orders, 2)]
    assert mean_distance(orders) == pytest.approx(np.mean(distances))
    assert mean_distance(orders[:1]) == 0


def paper_score(order, prior, deletions):
    return sum(
        (i + 1) * max(1 - sum(prior[index] for index in order[: i + 1]), 0) ** deletions for i in range(len(order))
    )


def test_the_score_is_the_papers():
    prior = (0.4, 0.3, 0.2, 0.1)
    orders = tuple(itertools.permutations(range(4)))
    assert scores(orders, prior, 3) == pytest.approx([paper_score(order, prior, 3) for order in orders])


def test_bms_keeps_the_best_by_score_and_refuses_more_than_l():
    prior = (0.1, 0.2, 0.3, 0.15, 0.25)
    everything = bms(Setting(slices=5, budget=5, prior=prior))
    found = scores(everything, prior, 8)
    assert list(found) == sorted(found, reverse=True)
    assert bms(Setting(slices=5, budget=2, prior=prior)) == everything[:2]
    with pytest.raises(SettingError, match="bms gives at most 5 orders of 5 slices, not 6"):
        select("bms", Setting(slices=5, budget=6))


def test_the_papers_first_rotations_are_adjacent():
    """The order of the paper's workflow: (1, 2, 3, 4), (4, 1, 2, 3), (3, 4, 1, 2), (2, 3, 4, 1)."""
    four = cyclic_adjacent(Setting(slices=4, budget=4))
    assert four == ((0, 1, 2, 3), (3, 0, 1, 2), (2, 3, 0, 1), (1, 2, 3, 0))
    assert cyclic_adjacent(Setting(slices=4, budget=2)) == four[:2]


def test_sorted_cyclic_is_the_papers_example():
    found = sorted_cyclic(Setting(slices=3, budget=3, prior=(0.5, 0.4, 0.1)))
    assert set(found) == {(2, 1, 0), (0, 2, 1), (1, 0, 2)}


def test_full_is_every_order_and_refuses_others_budgets_and_many_slices():
    assert set(full(Setting(slices=4, budget=24))) == set(itertools.permutations(range(4)))
    with pytest.raises(SettingError, match="set the budget to 24"):
        select("full", Setting(slices=4, budget=23))
    with pytest.raises(SettingError, match="at most 8 slices, not 9"):
        select("full", Setting(slices=9, budget=100))


def test_random_orders_are_uniform():
    counts = Counter(random_orders(Setting(slices=3, budget=1, seed=seed))[0] for seed in range(3000))
    assert len(counts) == 6
    assert all(abs(count - 500) < 5 * math.sqrt(500) for count in counts.values())
    some = random_orders(Setting(slices=40, budget=7))
    assert len(set(some)) == 7


def test_conditional_puts_unlikely_slices_on_top():
    prior = (0.7, 0.1, 0.1, 0.1)
    tops = Counter(conditional(Setting(slices=4, budget=1, prior=prior, seed=seed))[0][0] for seed in range(2000))
    assert tops[0] == pytest.approx(2000 * 0.3 / 3, abs=60)  # weight 1 - 0.7 of the 3 there are


def test_conditional_ends_with_an_error_where_the_paper_published_a_loop():
    with pytest.raises(SettingError, match="found 1 of 2 orders and then nothing new in 1,000 samples"):
        conditional(Setting(slices=2, budget=2, prior=(1.0, 0.0)))


def test_shards_share_orders_unless_they_vary():
    same = orders_of_shards("survival", [Setting(slices=5, budget=3)] * 4, vary=False)
    assert len(set(same)) == 1
    varied = orders_of_shards("survival", [Setting(slices=5, budget=3)] * 4, vary=True)
    assert varied[0] == same[0]
    assert len(set(varied)) == 4
    assert len({mean_distance(orders) for orders in varied}) == 1
    assert orders_of_shards("survival", [Setting(slices=5, budget=3)] * 4, vary=True) == varied


def test_varied_orders_can_be_extended():
    few = orders_of_shards("cyclic", [Setting(slices=6, budget=2)] * 3, vary=True)
    more = orders_of_shards("cyclic", [Setting(slices=6, budget=4, given=orders) for orders in few], vary=True)
    for before, after in zip(few, more, strict=True):
        assert after[:2] == before
        assert len({order[0] for order in after}) == 4


def test_a_prior_is_one_row_or_one_a_shard():
    assert prior_rows(None, shards=2) == (None, None)
    assert prior_rows([[0.5, 0.5], [0.1, 0.9]], shards=2) == ((0.5, 0.5), (0.1, 0.9))
    with pytest.raises(SettingError, match="1 rows for 2 shards"):
        prior_rows([[0.5, 0.5]], shards=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prior": (0.5, 0.4)}, "sums to 0.9, not to 1"),
        ({"prior": (1.5, -0.5)}, "holds -0.5"),
        ({"prior": (0.5, 0.25, 0.25)}, "3 probabilities for 2 slices"),
        ({"budget": 3}, "budget 3 is not between 1 and 2! = 2"),
        ({"slices": 0}, "slices: Input should be greater than or equal to 1, not 0"),
        ({"values": (2.0, 1.0)}, r"falls at F\(2\)"),
        ({"values": (1.0,)}, "1 numbers for 2 slices"),
        ({"values": (0.0, 1e-300)}, "worth at least"),
        ({"slices": 30, "budget": 10**12}, "at most 50,000 orders"),
        ({"budget": True}, "budget: Input should be a valid integer, not True"),
        ({"prior": (True, False)}, None),
        ({"horizon": (1.5,)}, r"horizon.0: Input should be a valid integer, not 1.5"),
        ({"deletions": 0}, "deletions: .* or equal to 1, not 0"),
        ({"horizon": ()}, "horizon"),
        ({"seed": -1}, "seed: .* or equal to 0, not -1"),
        ({"given": ((0, 0),)}, "not a permutation"),
        ({"given": ((0, 1), (0, 1))}, "not distinct"),
    ],
)
def test_wrong_settings_are_refused_with_one_clear_problem(wrong, message):
    with pytest.raises(SettingError, match=message) as caught:
        Setting(**({"slices": 2, "budget": 2} | wrong))
    assert len(caught.value.problems) == (1 if message else 2)


def test_all_problems_are_told_at_once():
    with pytest.raises(SettingError) as caught:
        Setting(slices=3, budget=7, prior=(0.5, 0.1, 0.1), seed=-1)
    assert len(caught.value.problems) == 3
    with pytest.raises(SettingError, match="no selector is called 'clever'; choose one of survival, cyclic"):
        select("clever", Setting(slices=2, budget=2))


def plain_bms_score(setting):
    """What Algorithm 2 reaches, with weights that are whole scores, and rows and columns as they come."""
    from scipy.optimize import linear_sum_assignment

    orders = [(top,) for top in range(setting.slices)]
    for _ in range(setting.slices - 1):
        weights = [
            [
                -np.inf if index in order else paper_score((*order, index), setting.probabilities, setting.deletions)
                for index in range(setting.slices)
            ]
            for order in orders
        ]
        chosen = linear_sum_assignment(np.array(weights), maximize=True)[1].tolist()
        orders = [(*order, index) for order, index in zip(orders, chosen, strict=True)]
    return scores(orders, setting.probabilities, setting.deletions).sum()


@settings(max_examples=25)
@given(st.integers(1, 14), st.integers(0, 1000), st.integers(1, 10))
def test_bms_reaches_what_the_algorithm_reaches_as_the_paper_writes_it(slices, seed, deletions):
    prior = tuple(np.random.default_rng(seed).dirichlet(np.ones(slices)).tolist())
    setting = Setting(slices=slices, budget=slices, prior=prior, deletions=deletions)
    reached = scores(bms(setting), setting.probabilities, deletions).sum()
    assert reached == pytest.approx(plain_bms_score(setting), rel=1e-9)
