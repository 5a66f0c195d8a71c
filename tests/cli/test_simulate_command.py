"""`s3t simulate`: simulated numbers, repairs, pictures, and what is never."""

from functools import partial

import numpy as np
import pytest

from experiments.laws import deletion_rate, first_failure
from s3t.core import FixedOrders, StageCosts
from s3t.orders import Setting, cyclic, orders_of_shards
from s3t.planning.simulation import Deletions, simulate, simulate_repairs
from tests.cli import typed
from tests.drawing.pictures import assert_is_picture, texts

KEYS = {"deletion_rate", "first_failure", "bound", "quantiles", "depth", "unit", "repaired"}
SMALL = ("--shards", 3, "--slices", 4, "--budget", 2, "--selector", "cyclic", "--trials", 2000)


invoke = partial(typed.invoke, "simulate")
document = partial(typed.document, "simulate", quiet=True)
problems = partial(typed.problems, "simulate")


def test_the_document_has_simulated_numbers_about_the_exact_ones():
    found = document(*SMALL, "--seed", 4)
    orders, deletions = [cyclic(Setting(slices=4, budget=2))] * 3, Deletions.uniform(3, 4)
    tops = [{order[0] for order in chosen} for chosen in orders]
    system = simulate(orders, deletions, trials=2000, seed=4)
    assert set(found) == KEYS
    for name, exact in (
        ("deletion_rate", deletion_rate(tops, deletions)),
        ("first_failure", first_failure(tops, deletions)),
    ):
        times = getattr(system, name)
        assert found[name] == {
            "mean": pytest.approx(times.mean()),
            "std": pytest.approx(times.std()),
        }
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


def test_a_single_slice_dies_at_the_first_deletion():
    found = document("--shards", 1, "--slices", 1, "--budget", 1, "--trials", 10)
    once = {"mean": 1.0, "std": 0.0}
    assert (found["deletion_rate"], found["first_failure"], found["depth"]) == (once, once, {"1": 0.0})


def test_what_cannot_happen_is_null(tmp_path):
    never = {"mean": None, "std": None}
    both = ("--shards", 2, "--slices", 2, "--budget", 2, "--trials", 100, "--prior", "1,0")
    one_alone = document(*both)
    assert (one_alone["deletion_rate"], one_alone["first_failure"]) == (never, never)
    assert one_alone["depth"]["1"] < 2
    assert set(one_alone["quantiles"]["deletion_rate"].values()) == {None}
    shown = invoke(*both, "--plot", tmp_path / "depth.png")
    assert shown.exit_code == 0
    assert "never, or beyond all counting" in shown.stdout
    assert_is_picture(tmp_path / "depth.png")


def test_what_is_too_rare_to_be_counted_is_null():
    found = document("--shards", 2, "--slices", 2, "--budget", 2, "--trials", 100, "--prior", "1,1e-300")
    assert found["deletion_rate"]["mean"] is None
    assert len(found["depth"]) < 40


def test_shards_may_have_orders_of_their_own():
    found = document(*SMALL, "--vary-by-shard", "--seed", 1, "--prior", "0.4,0.4,0.1,0.1")
    setting = Setting(slices=4, budget=2, prior=(0.4, 0.4, 0.1, 0.1), seed=1)
    orders = orders_of_shards("cyclic", [setting] * 3, vary=True)
    assert len(set(orders)) > 1
    deletions = Deletions.from_prior(setting.probabilities, shards=3)
    expected = simulate(orders, deletions, trials=2000, seed=1)
    assert found["first_failure"]["mean"] == pytest.approx(expected.first_failure.mean())


@pytest.mark.parametrize(
    ("arguments", "policy", "over"),
    [
        (("--repair-below", 1), {"below": 1}, 1000),
        (("--repair-below", 3, "--over", 50), {"below": 3}, 50),
    ],
)
def test_repairs_are_simulated_under_the_policy(arguments, policy, over):
    found = document(*SMALL, "--trials", 200, *arguments)
    orders = [cyclic(Setting(slices=4, budget=2))] * 3
    costs = StageCosts.declared(4).in_trainings(3)
    expected = simulate_repairs(
        FixedOrders(orders), Deletions.uniform(3, 4), costs=costs, over=over, trials=200, **policy
    )
    repaired = found["repaired"]
    for name in ("repairs", "cost", "mean_depth", "hit_depth"):
        values = getattr(expected, name)
        assert repaired[name] == {"mean": pytest.approx(values.mean()), "std": pytest.approx(values.std())}
    assert repaired["training_cost"] == pytest.approx(expected.training_cost)
    assert repaired["over"] == over
    plain = document(*SMALL, "--trials", 200)
    assert plain == found | {"repaired": None}  # of the system without repair
    assert f"over {over:,} deletions" in invoke(*SMALL, "--trials", 200, *arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shards", 0), "0 shards: a system has 1 to 100,000"),
        (("--shards", 10**9), "1000000000 shards: a system has 1 to 100,000"),
        (("--slices", 0), "slices: Input should be greater"),
        (("--budget", 25), "budget 25 is not between 1 and 4! = 24"),
        (("--trials", 0), "0 trials: give at least 1"),
        (("--trials", -5), "-5 trials: give at least 1"),
        (("--selector", "best"), "no selector is called 'best'"),
        (("--prior", "0.5,0.5"), "the prior has 2 probabilities for 4 slices"),
        (("--prior", "1,1,0,0"), "the prior sums to 2, not to 1"),
        (("--seed", -1), "seed: Input should be greater than or equal to 0, not -1"),
        (("--over", 10), "--over is of repaired systems"),
        (("--over", 0, "--repair-below", 1), "--over 0: give 1 to 100,000 deletions"),
        (("--repair-below", 5), "--repair-below 5: give 0 to 4 slices"),
        (("--repair-below", -1), "--repair-below -1"),
        (("--plot", "depth.txt"), "depth.txt: has the suffix '.txt'"),
        (("--plot", "missing/depth.png"), "its folder missing does not exist"),
    ],
)
def test_wrong_input_is_one_clear_error(arguments, said):
    found = problems(*SMALL, *arguments)
    assert any(said in problem for problem in found)
    assert len(found) == 1 or arguments[0] == "--shards"


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


@pytest.mark.parametrize("repair", [(), ("--repair-below", 1, "--over", 30)])
def test_a_picture_is_drawn_beside_the_document(tmp_path, repair):
    path = tmp_path / "depth.svg"
    arguments = (*SMALL, "--trials", 200, *repair)
    assert document(*arguments, "--plot", path) == document(*arguments)
    assert_is_picture(path)
    found = [text.strip() for text in texts(path)]
    assert "3 shards of 4 slices, 2 orders each (cyclic)" in found
    assert ("never repaired" in found) == bool(repair)


def test_people_read_numbers_and_their_intervals():
    shown = invoke(*SMALL).stdout
    assert "3 shards of 4 slices, 2 orders each (cyclic): 2000 systems" in " ".join(shown.split())
    assert "±" in shown
    assert "Lemma 1" in shown
    assert "full trainings" not in shown
