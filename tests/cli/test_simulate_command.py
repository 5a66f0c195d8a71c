"""`s3t simulate`: the library's numbers for orders and for chains, pictures, and what is never."""

from functools import partial

import numpy as np
import pytest

from experiments.laws import deletion_rate, first_failure
from s3t.core import AsNeeded, FixedOrders, StageCosts
from s3t.orders import Setting, cyclic, orders_of_shards
from s3t.planning.simulation import Deletions, simulate, simulate_repairs
from tests.cli import typed
from tests.drawing.pictures import assert_is_picture, texts

SYSTEM = ("--shards", 3, "--slices", 4)
ORDERS = (*SYSTEM, "--budget", 2, "--selector", "cyclic", "--trials", 200)
CHAINS = (*SYSTEM, "--depth", 3, "--trials", 50, "--over", 60)
COSTS = StageCosts.declared(4).in_trainings(3)

invoke = partial(typed.invoke, "simulate")
document = partial(typed.document, "simulate", quiet=True)
problems = partial(typed.problems, "simulate")


def test_the_document_has_simulated_numbers_about_the_exact_ones():
    found = document(*ORDERS, "--trials", 2000, "--seed", 4)
    orders, deletions = [cyclic(Setting(slices=4, budget=2))] * 3, Deletions.uniform(3, 4)
    tops = [{order[0] for order in chosen} for chosen in orders]
    system = simulate(orders, deletions, trials=2000, seed=4)
    assert set(found) == {"deletion_rate", "first_failure", "bound", "quantiles", "depth", "unit", "repaired"}
    for name, exact in (
        ("deletion_rate", deletion_rate(tops, deletions)),
        ("first_failure", first_failure(tops, deletions)),
    ):
        times = getattr(system, name)
        assert found[name] == {"mean": pytest.approx(times.mean()), "std": pytest.approx(times.std())}
        assert abs(exact.mean - found[name]["mean"]) < 5 * times.std() / 2000**0.5
        quantiles = found["quantiles"][name]
        assert list(quantiles) == ["0.05", "0.5", "0.95"]
        for share, value in quantiles.items():
            assert np.mean(times <= value) >= float(share) > np.mean(times < value)
    assert found["bound"] == pytest.approx(deletion_rate(tops, deletions).mean)  # Lemma 1
    for number, depth in found["depth"].items():
        assert depth == pytest.approx((system.falls > int(number)).sum(axis=2).mean())
    assert [int(number) for number in found["depth"]] == [2**power for power in range(len(found["depth"]))]
    assert 2 * int(list(found["depth"])[-1]) > found["quantiles"]["deletion_rate"]["0.95"]


def test_what_cannot_happen_is_null_and_what_must_is_certain(tmp_path):
    found = document("--shards", 1, "--slices", 1, "--budget", 1, "--trials", 10)
    once, never = {"mean": 1.0, "std": 0.0}, {"mean": None, "std": None}
    assert (found["deletion_rate"], found["first_failure"], found["depth"]) == (once, once, {"1": 0.0})
    two = ("--shards", 2, "--slices", 2, "--budget", 2, "--trials", 100)
    one_alone = document(*two, "--prior", "1,0")
    assert (one_alone["deletion_rate"], one_alone["first_failure"]) == (never, never)
    assert one_alone["depth"]["1"] < 2
    assert set(one_alone["quantiles"]["deletion_rate"].values()) == {None}
    assert "never, or beyond all counting" in invoke(*two, "--prior", "1,0", "--plot", tmp_path / "depth.png").stdout
    assert_is_picture(tmp_path / "depth.png")
    rare = document(*two, "--prior", "1,1e-300")
    assert rare["deletion_rate"]["mean"] is None
    assert len(rare["depth"]) < 40


def test_shards_may_have_orders_of_their_own():
    found = document(*ORDERS, "--vary-by-shard", "--seed", 1, "--prior", "0.4,0.4,0.1,0.1")
    setting = Setting(slices=4, budget=2, prior=(0.4, 0.4, 0.1, 0.1), seed=1)
    orders = orders_of_shards("cyclic", [setting] * 3, vary=True)
    assert len(set(orders)) > 1
    expected = simulate(orders, Deletions.from_prior(setting.probabilities, shards=3), trials=200, seed=1)
    assert found["first_failure"]["mean"] == pytest.approx(expected.first_failure.mean())


def expected(policy, costs, **given):
    """What the document says of repairs."""
    found = simulate_repairs(policy, **{"deletions": Deletions.uniform(3, 4), "costs": costs, "over": 60} | given)
    numbers = {
        name: {"mean": pytest.approx(values.mean()), "std": pytest.approx(values.std(), rel=1e-6, abs=1e-9)}
        for name in ("repairs", "cost", "mean_depth", "hit_depth")
        for values in [getattr(found, name)]
    }
    shares = {name: pytest.approx(getattr(found, name)) for name in ("training_cost", "dead_share", "least_hit_depth")}
    return numbers | shares | {"over": 60}


def test_repairs_of_orders_are_simulated_under_the_policy():
    found = document(*ORDERS, "--repair-below", 3, "--over", 60)
    orders = FixedOrders([cyclic(Setting(slices=4, budget=2))] * 3)
    assert found["repaired"] == expected(orders, COSTS, trials=200, below=3)
    assert document(*ORDERS) == found | {"repaired": None}  # of the system without repair
    assert "over 1,000 deletions" in invoke(*ORDERS, "--repair-below", 1).stdout


def test_costs_of_chains_are_full_trainings_as_those_of_fixed_orders_are():
    found = document(*CHAINS)
    assert (found["unit"], found["repaired"]) == ("full trainings", expected(AsNeeded(depth=3), COSTS, trials=50))
    falls = simulate([((0, 1, 2), (3,))] * 3, Deletions.uniform(3, 4), trials=50)  # without repair
    assert found["deletion_rate"]["mean"] == pytest.approx(falls.deletion_rate.mean())
    assert found["depth"]["1"] == pytest.approx((falls.falls > 1).sum(axis=2).mean())
    # One chain of all slices, trained once, is one order; so are they without repair.
    order = document(*ORDERS, "--budget", 1, "--trials", 50, "--over", 60, "--repair-below", 4)
    assert document(*CHAINS, "--depth", 4, "--spares", 0) == order


def test_spares_and_a_prior_are_simulated_and_stages_may_cost_seconds():
    spares = ("--spares", 2, "--spare-depth", 2, "--prior", "0.7,0.1,0.1,0.1", "--seed", 4)
    found = document(*CHAINS, *spares, "--stage-seconds", "1.5,3,7,13")
    deletions = Deletions.from_prior([0.7, 0.1, 0.1, 0.1], shards=3)
    policy = AsNeeded(depth=3, spares=2, spare_depth=2)
    assert found["unit"] == "seconds"
    wanted = expected(policy, StageCosts((1.5, 3, 7, 13)), deletions=deletions, trials=50, seed=4)
    assert found["repaired"] == wanted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*ORDERS, "--shards", 0), "0 shards: a system has 1 to 100,000"),
        ((*ORDERS, "--trials", 0), "0 trials: give at least 1"),
        ((*ORDERS, "--prior", "1,1,0,0"), "the prior sums to 2, not to 1"),
        ((*ORDERS, "--over", 10), "--over is of repaired systems"),
        ((*ORDERS, "--over", 0, "--repair-below", 1), "--over 0: give 1 to 100,000 deletions"),
        ((*ORDERS, "--repair-below", 5), "--repair-below 5: give 0 to 4 slices"),
        ((*ORDERS, "--plot", "depth.txt"), "depth.txt: has the suffix '.txt'"),
        (SYSTEM, "give one of --budget, orders a shard, and --depth, of a main chain"),
        ((*CHAINS, "--budget", 2), "give one of --budget, orders a shard, and --depth"),
        ((*CHAINS, "--vary-by-shard"), "are of orders; leave out --depth"),
        ((*ORDERS, "--spares", 2), "--spares and --spare-depth are of chains; give --depth, too"),
        ((*ORDERS, "--stage-seconds", "1,2,3,4"), "--stage-seconds is of repaired systems; give --repair-below or"),
        ((*CHAINS, "--depth", 5), "depth 5: a shard has 4 slices"),
        ((*CHAINS, "--spare-depth", 4), "spare_depth 4: give 1 to 3"),
        ((*CHAINS, "--trials", 10**8), "GB of memory, more than 2; lower --trials"),
        ((*CHAINS, "--stage-seconds", "1,2,3,1e10"), "give at most 1,000,000,000 seconds"),
        ((*CHAINS, "--stage-seconds", "1,2"), "--stage-seconds has 2 numbers for 4 slices"),
        ((*CHAINS, "--stage-seconds", "1,2,3,0"), "give finite numbers above 0"),
    ],
)
def test_wrong_input_is_one_clear_error(arguments, said):
    (problem,) = problems(*arguments)
    assert said in problem


@pytest.mark.parametrize(
    "sizes",
    [
        ("--shards", 50, "--slices", 64, "--budget", 8, "--trials", 1_000_000),
        ("--shards", 100_000, "--slices", 10_000, "--budget", 1, "--trials", 1),
        ("--shards", 50, "--slices", 64, "--budget", 5000, "--trials", 5000, "--repair-below", 1),
        ("--shards", 10_000, "--slices", 10, "--budget", 5000, "--trials", 1, "--vary-by-shard"),
    ],
)
def test_what_would_not_fit_into_memory_is_refused_before_any_work(sizes):
    (problem,) = problems(*sizes, "--selector", "cyclic")
    assert "GB of memory, more than 2; lower --trials" in problem


def test_a_picture_is_drawn_beside_the_document(tmp_path):
    path = tmp_path / "depth.svg"
    arguments = (*ORDERS, "--repair-below", 1, "--over", 30)
    assert document(*arguments, "--plot", path) == document(*arguments)
    assert_is_picture(path)
    assert {"3 shards of 4 slices, 2 orders each (cyclic)", "never repaired"} <= {text.strip() for text in texts(path)}


def test_people_read_numbers_and_their_intervals_and_how_many_deletions_leave_a_shard_dead():
    words = " ".join(invoke(*ORDERS).stdout.split())
    assert "3 shards of 4 slices, 2 orders each (cyclic): 200 systems" in words
    assert "±" in words
    assert "Lemma 1" in words
    assert "full trainings" not in words
    words = " ".join(invoke(*CHAINS, "--spares", 0).stdout.split())
    assert "3 shards of 4 slices, main chain of 3, no spare: 50 systems" in words
    found = document(*CHAINS, "--spares", 0)["repaired"]
    assert found["dead_share"] == pytest.approx(0.25, abs=0.05)
    assert f"deletions that leave a shard dead: {found['dead_share']:.2%}" in words
    assert f"a deletion {found['cost']['mean'] / 60:.4g}" in words
