"""Deletion rate and first failure: against brute force, simulation, the paper's formula, and each other."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3t.errors import PlanningError
from s3t.planning import Deletions, Waiting, deletion_rate, first_failure, paper_bound, sisa_bound
from tests.planning import exact

# Cells are numbered row by row. Weights are of a cell with replacement, of a record without.
TINY = [
    pytest.param([[1, 1], [1, 1]], None, [{0, 1}, {0, 1}], id="uniform"),
    pytest.param([[1, 1, 1], [1, 1, 1]], None, [{0}, {1, 2}], id="uniform, few and unequal tops"),
    pytest.param([[5, 1, 2], [1, 7, 3]], None, [{0, 1}, {0, 2}], id="prior"),
    pytest.param([[1, 3], [2, 2], [3, 1]], None, [{0, 1}, {0}, {0, 1}], id="three shards"),
    pytest.param([[4]], None, [{0}], id="one slice"),
    pytest.param([[1, 1], [1, 1]], [[2, 2], [2, 2]], [{0, 1}, {0, 1}], id="records"),
    pytest.param([[1, 1], [1, 1]], [[1, 3], [2, 4]], [{0, 1}, {0}], id="unequal records"),
    pytest.param([[1, 1, 1]], [[1, 1, 1]], [{0, 1, 2}], id="one record a slice"),
    pytest.param([[7, 1], [2, 5]], [[2, 3], [3, 2]], [{0, 1}, {0, 1}], id="weighted records"),
    pytest.param([[9, 1, 4], [1, 1, 6]], [[1, 3, 2], [2, 1, 2]], [{0, 1}, {0}], id="weighted records, others about"),
    pytest.param([[100, 1], [1, 100]], [[1, 1], [2, 4]], [{0}, {0, 1}], id="steep weights"),
    pytest.param([[3, 0, 2], [1, 4, 0]], [[2, 3, 2], [2, 2, 0]], [{0, 2}, {1}], id="records that are never deleted"),
]
BOTH = pytest.mark.parametrize("waiting", [deletion_rate, first_failure])


def deletions_of(weights, records):
    weights = np.array(weights)
    amounts = weights if records is None else weights * np.array(records)
    return Deletions(probabilities=amounts / amounts.sum(), records=records)


def targets_of(waiting, tops, slices):
    shards = [{shard * slices + index for index in chosen} for shard, chosen in enumerate(tops)]
    return [frozenset(set.union(*shards))] if waiting is deletion_rate else [frozenset(cells) for cells in shards]


@BOTH
@pytest.mark.parametrize(("weights", "records", "tops"), TINY)
def test_the_distribution_is_that_of_brute_force(waiting, weights, records, tops):
    flat = [weight for row in weights for weight in row]
    counts = None if records is None else [count for row in records for count in row]
    upto = 24 if counts is None else sum(n for n, weight in zip(counts, flat, strict=True) if weight)
    expected = exact.distribution(flat, counts, targets_of(waiting, tops, len(weights[0])), upto)
    found = waiting(tops, deletions_of(weights, records)).distribution(np.arange(upto + 1))
    np.testing.assert_allclose(found, [float(value) for value in expected], atol=1e-12)


@BOTH
@pytest.mark.parametrize(("weights", "records", "tops"), TINY)
def test_mean_and_deviation_are_those_of_brute_force(waiting, weights, records, tops):
    flat = [weight for row in weights for weight in row]
    targets = targets_of(waiting, tops, len(weights[0]))
    found = waiting(tops, deletions_of(weights, records))
    if records is None:
        assert found.mean == pytest.approx(float(exact.mean(flat, targets)), rel=1e-12)
        return
    counts = [count for row in records for count in row]
    above = [1 - value for value in exact.distribution(flat, counts, targets, sum(counts))]
    mean = sum(above)
    square = sum((2 * index + 1) * value for index, value in enumerate(above))
    assert found.mean == pytest.approx(float(mean), rel=1e-12)
    assert found.std == pytest.approx(math.sqrt(square - mean**2), abs=1e-5)


@BOTH
@pytest.mark.parametrize("budget", [1, 3, 6])
def test_mean_and_deviation_are_those_of_the_distribution(waiting, budget):
    prior = np.random.default_rng(7).dirichlet(np.full(6, 5.0), 5)
    found = waiting([range(budget)] * 5, Deletions.from_prior(prior, shards=5))
    counts = np.arange(4000 * budget)
    above = 1 - found.distribution(counts)
    assert above.sum() == pytest.approx(found.mean, rel=1e-9)
    assert math.sqrt(((2 * counts + 1) * above).sum() - found.mean**2) == pytest.approx(found.std, rel=1e-6)


@pytest.mark.parametrize(
    ("budget", "rate", "first"),
    [(1, 68.5, 6.0), (2, 87.9, 15.2), (3, 99.5, 22.8), (4, 107.9, 28.9), (5, 114.5, 34.1), (6, 119.8, 38.5)],
)
def test_the_numbers_of_five_shards_of_six_slices(budget, rate, first):
    tops, deletions = [range(budget)] * 5, Deletions.uniform(5, 6)
    assert deletion_rate(tops, deletions).mean == pytest.approx(rate, abs=0.05)
    assert deletion_rate(tops, deletions).mean == pytest.approx(paper_bound(5, 6, budget), rel=1e-12)
    assert first_failure(tops, deletions).mean == pytest.approx(first, abs=0.05)


@pytest.mark.parametrize("budget", [2, 6])
def test_a_simulation_of_five_shards_of_six_slices_agrees(budget):
    runs, deletions = 4000, Deletions.uniform(5, 6)
    rng = np.random.default_rng(budget)
    first_hits = np.array([firsts(rng.integers(30, size=1500), 30) for _ in range(runs)])
    check_simulation(first_hits.reshape(runs, 5, 6)[:, :, :budget], [range(budget)] * 5, deletions)


def test_a_simulation_with_a_prior_and_records_that_run_out_agrees():
    runs, rng = 600, np.random.default_rng(3)
    records = rng.integers(5, 20, (3, 8))
    deletions = Deletions.from_records(records, replacement=False, prior=rng.dirichlet(np.ones(8), 3))
    slice_of = np.repeat(np.arange(24), records.ravel())
    weights = (deletions.probabilities / records).ravel()[slice_of]
    order = [rng.choice(len(slice_of), len(slice_of), replace=False, p=weights) for _ in range(runs)]
    first_hits = np.array([firsts(slice_of[records_in_order], 24) for records_in_order in order])
    check_simulation(first_hits.reshape(runs, 3, 8)[:, :, ::2], [{0, 2, 4, 6}] * 3, deletions)


def firsts(drawn, cells):
    """The number of the deletion that first hits each cell."""
    hit, where = np.unique(drawn, return_index=True)
    assert len(hit) == cells
    return where + 1


def check_simulation(top_hits, tops, deletions):
    """Compare with the deletions that first hit each top slice, runs x m x B: within 5 standard errors."""
    dead = top_hits.max(axis=2)
    for waiting, times in ((deletion_rate, dead.max(axis=1)), (first_failure, dead.min(axis=1))):
        law = waiting(tops, deletions)
        assert abs(times.mean() - law.mean) < 5 * law.std / math.sqrt(len(times))
        for share in (0.1, 0.5, 0.9):
            count = law.quantile(share)
            chance = float(law.distribution(count))
            error = math.sqrt(chance * (1 - chance) / len(times))
            assert abs((times <= count).mean() - chance) < 5 * error


@BOTH
def test_big_systems_are_as_exact(waiting):
    rng = np.random.default_rng(11)
    records = rng.integers(30, 96, (5, 32))
    prior = rng.dirichlet(np.ones(32), 5)
    for deletions, most in (
        (Deletions.uniform(5, 32), 20_000),
        (Deletions.from_records(records, replacement=False), records.sum()),
        (Deletions.from_records(records, replacement=False, prior=prior), records.sum()),
    ):
        found = waiting([range(32)] * 5, deletions)
        distribution = found.distribution(np.arange(most + 1))
        assert (1 - distribution).sum() == pytest.approx(found.mean, rel=1e-10)
        assert np.diff(distribution).min() > -1e-11


@pytest.mark.parametrize("count", [320, 321, 900, 2031, 6000])
def test_a_big_uniform_system_is_that_of_inclusion_and_exclusion(count):
    cells, records = 320, 20
    rate = deletion_rate([range(64)] * 5, Deletions.uniform(5, 64))
    missed = sum((-1) ** j * math.comb(cells, j) * (cells - j) ** count for j in range(cells + 1))
    assert float(rate.distribution(count)) == pytest.approx(float(Fraction(missed, cells**count)), abs=1e-11)

    drained = deletion_rate([range(64)] * 5, Deletions.from_records(np.full((5, 64), records), replacement=False))
    ways = sum((-1) ** j * math.comb(cells, j) * math.comb((cells - j) * records, count) for j in range(cells + 1))
    chance = Fraction(ways, math.comb(cells * records, count))
    assert float(drained.distribution(count)) == pytest.approx(float(chance), abs=1e-11)


def test_equal_weights_are_the_same_however_they_are_computed():
    records = np.array([[2, 5, 3], [4, 1, 6]])
    tops = [{0, 1}, {0, 2}]
    alike = Deletions.from_records(records, replacement=False)
    # Likelier by a billionth in one slice: computed in the other way, but the same to that order.
    probabilities = alike.probabilities * [[1 + 1e-9, 1, 1], [1, 1, 1]]
    nearly = Deletions(probabilities=probabilities / probabilities.sum(), records=records)
    for waiting in (deletion_rate, first_failure):
        one, other = waiting(tops, alike), waiting(tops, nearly)
        assert type(one.law) is not type(other.law)
        assert one.mean == pytest.approx(other.mean, rel=1e-8)
        assert one.std == pytest.approx(other.std, rel=1e-6)
        counts = np.arange(22)
        np.testing.assert_allclose(one.distribution(counts), other.distribution(counts), atol=1e-8)


def test_many_records_are_as_good_as_replacement():
    counts = np.array([[30, 10], [20, 40]]) * 10**9
    tops = [{0, 1}, {0, 1}]
    few = deletion_rate(tops, Deletions.from_records(counts, replacement=False))
    many = deletion_rate(tops, Deletions.from_records(counts, replacement=True))
    assert few.mean == pytest.approx(many.mean, rel=1e-9)
    np.testing.assert_allclose(few.distribution(np.arange(60)), many.distribution(np.arange(60)), atol=1e-9)


def test_a_rare_slice_takes_long_and_far_counts_are_no_harder():
    rare = 1e-13
    found = deletion_rate([{0, 1}], Deletions(probabilities=[[1 - rare, rare]]))
    assert found.mean == pytest.approx(1 / rare, rel=1e-9)
    assert found.quantile(0.5) == pytest.approx(math.log(2) / rare, rel=1e-8)
    assert found.distribution(10**13) == pytest.approx(1 - math.exp(-1), abs=1e-9)


def test_sisa_is_a_budget_of_one():
    assert sisa_bound(5, 6) == paper_bound(5, 6, 1) == pytest.approx(68.5)


@BOTH
@pytest.mark.parametrize("records", [None, [[2, 2], [2, 2]], [[1, 2], [3, 4]]])
def test_a_top_slice_that_is_never_hit_keeps_its_shard_alive_for_ever(waiting, records):
    found = waiting([{0, 1}, {0, 1}], Deletions(probabilities=[[0.5, 0], [0.5, 0]], records=records))
    assert found.mean == math.inf
    assert math.isnan(found.std)
    assert found.distribution([[0, 5, 10**6]]).tolist() == [[0, 0, 0]]
    with pytest.raises(PlanningError, match="it never happens"):
        found.quantile(0.5)


@pytest.mark.parametrize("records", [None, [[2, 2], [4, 2]], [[1, 2], [3, 4]]])
def test_the_first_failure_is_that_of_a_shard_that_can_die(records):
    deletions = Deletions(probabilities=[[0.5, 0], [0.25, 0.25]], records=records)
    both = first_failure([{0, 1}, {0, 1}], deletions)
    assert deletion_rate([{0, 1}, {0, 1}], deletions).mean == math.inf
    amounts = [0.5, 0, 0.25, 0.25]
    counts = None if records is None else [count for row in records for count in row]
    # In whole weights: of a cell with replacement, of a record without.
    weights = [
        round(12 * 4 * p / (1 if counts is None else n)) for p, n in zip(amounts, counts or [1] * 4, strict=True)
    ]
    expected = exact.distribution(weights, counts, [frozenset({2, 3})], 7)
    np.testing.assert_allclose(both.distribution(np.arange(8)), [float(value) for value in expected], atol=1e-12)


@st.composite
def systems(draw, replacement):
    shards, slices = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    tops = draw(st.lists(st.sets(st.integers(0, slices - 1), min_size=1), min_size=shards, max_size=shards))
    grid = st.lists(st.lists(st.integers(1, 9), min_size=slices, max_size=slices), min_size=shards, max_size=shards)
    records = draw(grid)
    weights = np.array(draw(grid)) * (1 if replacement else np.array(records))
    return tops, Deletions(probabilities=weights / weights.sum(), records=None if replacement else records), records


@settings(max_examples=60)
@given(
    weights=st.lists(st.integers(1, 50), min_size=4, max_size=4),
    records=st.none() | st.lists(st.integers(1, 3), min_size=4, max_size=4),
    tops=st.lists(st.sets(st.integers(0, 1), min_size=1), min_size=2, max_size=2),
)
def test_any_small_system_is_that_of_brute_force(weights, records, tops):
    rows = None if records is None else [records[:2], records[2:]]
    deletions = deletions_of([weights[:2], weights[2:]], rows)
    for waiting in (deletion_rate, first_failure):
        upto = 12 if records is None else sum(records)
        expected = exact.distribution(weights, records, targets_of(waiting, tops, 2), upto)
        found = waiting(tops, deletions).distribution(np.arange(upto + 1))
        np.testing.assert_allclose(found, [float(value) for value in expected], atol=1e-12)


@settings(max_examples=40)
@given(st.booleans().flatmap(systems))
def test_distributions_rise_from_zero_to_one_and_quantiles_invert_them(system):
    tops, deletions, _ = system
    for waiting in (deletion_rate, first_failure):
        found = waiting(tops, deletions)
        far = found.quantile(1 - 1e-7)
        chances = found.distribution(np.arange(far + 2))
        assert chances[0] == 0
        assert np.diff(chances).min() > -1e-12
        assert chances[-1] == pytest.approx(1, abs=1e-7)
        middle = found.quantile(0.5)
        assert found.distribution(middle) >= 0.5 > found.distribution(middle - 1)


@settings(max_examples=40)
@given(st.booleans().flatmap(systems))
def test_the_first_failure_is_never_after_the_last(system):
    tops, deletions, _ = system
    first, last = first_failure(tops, deletions), deletion_rate(tops, deletions)
    assert first.mean <= last.mean * (1 + 1e-12)
    counts = np.arange(60)
    assert (first.distribution(counts) >= last.distribution(counts) - 1e-12).all()


@settings(max_examples=40)
@given(systems(replacement=True))
def test_records_that_run_out_never_make_it_last_longer(system):
    tops, _, records = system
    for waiting in (deletion_rate, first_failure):
        drained = waiting(tops, Deletions.from_records(records, replacement=False))
        endless = waiting(tops, Deletions.from_records(records, replacement=True))
        assert drained.mean <= endless.mean * (1 + 1e-12)


def test_a_budget_more_never_lasts_shorter():
    for waiting in (deletion_rate, first_failure):
        means = [waiting([range(budget)] * 4, Deletions.uniform(4, 9)).mean for budget in range(1, 10)]
        assert means == sorted(means)


def test_the_order_of_tops_does_not_matter():
    deletions = Deletions.from_prior([0.5, 0.2, 0.3], shards=2)
    one, other = deletion_rate([[2, 0], [1]], deletions), deletion_rate([(0, 2), (1,)], deletions)
    assert one.mean == other.mean


@pytest.mark.parametrize(
    ("tops", "message"),
    [
        ([{0}], "they are of 1 shards; the deletions have 2"),
        ([{0}, set()], "shard 1 has none"),
        ([{0}, {3}], "shard 1 names 3; its slices are 0 to 2"),
        ([{-1}, {0}], "shard 0 names -1"),
    ],
)
@BOTH
def test_tops_that_do_not_fit_are_refused(waiting, tops, message):
    with pytest.raises(PlanningError, match=message):
        waiting(tops, Deletions.uniform(2, 3))


def test_all_problems_of_the_tops_are_reported_at_once():
    with pytest.raises(PlanningError) as caught:
        deletion_rate([{7}, set(), {0}], Deletions.uniform(2, 3))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("sizes", [(0, 6, 1), (5, 0, 1), (5, 6, 0), (-1, -1, -1)])
def test_bounds_of_nothing_are_refused(sizes):
    with pytest.raises(PlanningError, match="not at least 1"):
        paper_bound(*sizes)


@pytest.mark.parametrize("q", [0, 1, -0.5, 1.5, math.nan])
def test_a_quantile_out_of_range_is_refused(q):
    with pytest.raises(PlanningError, match="not between 0 and 1"):
        deletion_rate([{0}], Deletions.uniform(1, 2)).quantile(q)


@pytest.mark.parametrize("counts", [-1, [1, -2], 1.5, [0.0], "3", 2**53 + 1])
def test_numbers_of_deletions_that_cannot_be_are_refused(counts):
    for waiting in (deletion_rate([{0}], Deletions.uniform(1, 2)), Waiting(law=None)):
        with pytest.raises(PlanningError, match="whole numbers"):
            waiting.distribution(counts)


def test_a_quantile_beyond_all_counting_is_refused():
    found = deletion_rate([{0, 1}], Deletions(probabilities=[[1 - 1e-30, 1e-30]]))
    assert found.mean == pytest.approx(1e30)
    with pytest.raises(PlanningError, match=r"more than 2\*\*53 deletions"):
        found.quantile(0.5)


def test_the_distribution_keeps_the_shape_that_was_asked_for():
    for deletions in (Deletions.uniform(2, 2), Deletions.from_records([[1, 2], [3, 4]], replacement=False)):
        found = first_failure([{0}, {1}], deletions)
        assert found.distribution(3).shape == ()
        assert found.distribution([[3, 1], [2, 3]]).shape == (2, 2)
        assert found.distribution([3, 1, 3])[2] == pytest.approx(found.distribution(3), abs=1e-12)
        assert found.distribution([]).shape == (0,)
