"""`s3t simulate --repair as-needed`: numbers of the library, in full trainings or in the seconds given."""

from functools import partial

import pytest

from s3t.forests import AsNeeded, StageCosts
from s3t.planning.deletions import Deletions
from s3t.planning.forests import simulate_growth
from tests.cli import typed

SMALL = ("--shards", 3, "--slices", 4, "--repair", "as-needed", "--depth", 3, "--trials", 50, "--over", 60)

document = partial(typed.document, "simulate")
problems = partial(typed.problems, "simulate")


def expected(policy, costs, deletions=None, seed=0):
    found = simulate_growth(policy, costs, deletions or Deletions.uniform(3, 4), over=60, trials=50, seed=seed)
    return {
        "training_cost": pytest.approx(found.training),
        "dead_share": pytest.approx(found.dead_share),
        "least_hit_depth": found.least_hit_depth,
    } | {
        name: {"mean": pytest.approx(values.mean()), "std": pytest.approx(values.std(), rel=1e-6, abs=1e-9)}
        for name, values in {"cost": found.cost, "mean_depth": found.mean_depth, "hit_depth": found.hit_depth}.items()
    }


def test_costs_are_slices_trained_of_all_slices_as_those_of_fixed_orders_are():
    costs = StageCosts(tuple(depth / 12 for depth in (1, 2, 3, 4)))
    assert document(*SMALL) == {"unit": "full trainings"} | expected(AsNeeded(depth=3), costs)
    # One chain of all slices, trained once, is one order.
    orders = ("--shards", 3, "--slices", 4, "--budget", 1, "--trials", 10, "--repair-below", 1, "--over", 5)
    chain = document(*SMALL, "--depth", 4, "--spares", 0)
    assert chain["training_cost"] == document(*orders)["training_cost"]


def test_spares_and_a_prior_are_simulated_and_stages_may_cost_seconds():
    found = document(
        *(*SMALL, "--spares", 2, "--spare-depth", 2, "--prior", "0.7,0.1,0.1,0.1", "--seed", 4),
        *("--stage-seconds", "1.5,3,7,13"),
    )
    deletions = Deletions.from_prior([0.7, 0.1, 0.1, 0.1], shards=3)
    policy = AsNeeded(depth=3, spares=2, spare_depth=2)
    assert found == {"unit": "seconds"} | expected(policy, StageCosts((1.5, 3, 7, 13)), deletions, seed=4)


def test_people_read_what_a_deletion_costs_and_how_many_leave_a_shard_dead():
    shown = typed.invoke("simulate", *SMALL, "--spares", 0)
    words = " ".join(shown.stdout.split())
    assert "3 shards of 4 slices, main chain of 3, no spare: 50 systems" in words
    found = document(*SMALL, "--spares", 0)
    assert found["dead_share"] == pytest.approx(0.25, abs=0.05)
    assert f"deletions that leave a shard dead until its repair: {found['dead_share']:.2%}" in words
    assert f"a deletion {found['cost']['mean'] / 60:.4g}" in words
    assert "simulating 50 systems" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--depth", 5), "depth 5: a shard has 4 slices"),
        (("--spares", 4), "4 spares beside the main chain"),
        (("--spare-depth", 4), "spare_depth 4: give 1 to 3"),
        (("--repair", "eager"), "--repair eager: give as-needed"),
        (("--budget", 2), "--budget is of fixed orders"),
        (("--repair-below", 2), "--repair-below is of fixed orders"),
        (("--repair-every", 2), "--repair-every is of fixed orders"),
        (("--vary-by-shard",), "--vary-by-shard is of fixed orders"),
        (("--selector", "cyclic"), "--selector is of fixed orders"),
        (("--plot", "depth.png"), "--plot is of fixed orders"),
        (("--over", 0), "--over 0: give 1 to 100,000 deletions"),
        (("--trials", 0), "0 trials: give at least 1"),
        (("--trials", 10**8), "more than 200,000,000; lower --trials"),
        (("--stage-seconds", "1,2"), "--stage-seconds: has 2 numbers for 4 slices"),
        (("--stage-seconds", "1,2,3,0"), "0 seconds: give 1e-06 to 1,000,000,000"),
        (("--stage-seconds", "1,2,3,x"), "number 4 is 'x', not a number"),
    ],
)
def test_wrong_input_is_one_clear_error(arguments, said):
    (problem,) = problems(*SMALL, *arguments)
    assert said in problem


def test_chains_and_orders_are_not_mixed_up():
    orders = ("--shards", 3, "--slices", 4)
    assert problems(*orders) == ["give --budget, or --repair as-needed"]
    assert problems(*orders, "--budget", 2, "--depth", 2, "--stage-seconds", "1,2,3,4") == [
        "--depth is of --repair as-needed; give that, too",
        "--stage-seconds is of --repair as-needed; give that, too",
    ]
    assert problems(*orders, "--repair", "as-needed") == ["--repair as-needed: give --depth, slices of a main chain"]
