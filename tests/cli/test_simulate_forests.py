"""`s3t simulate --depth`: numbers of the library for chains, in full trainings or in the seconds given."""

from functools import partial

import pytest

from s3t.core import AsNeeded, StageCosts
from s3t.planning.simulation import Deletions, simulate, simulate_repairs
from tests.cli import typed
from tests.drawing.pictures import assert_is_picture

SMALL = ("--shards", 3, "--slices", 4, "--depth", 3, "--trials", 50, "--over", 60)

document = partial(typed.document, "simulate")
problems = partial(typed.problems, "simulate")


def expected(policy, costs, deletions=None, seed=0):
    deletions = deletions or Deletions.uniform(3, 4)
    found = simulate_repairs(policy, deletions, costs=costs, over=60, trials=50, seed=seed)
    return {
        "over": 60,
        "training_cost": pytest.approx(found.training_cost),
        "dead_share": pytest.approx(found.dead_share),
        "least_hit_depth": found.least_hit_depth,
    } | {
        name: {"mean": pytest.approx(values.mean()), "std": pytest.approx(values.std(), rel=1e-6, abs=1e-9)}
        for name in ("repairs", "cost", "mean_depth", "hit_depth")
        for values in [getattr(found, name)]
    }


def test_costs_are_full_trainings_as_those_of_fixed_orders_are():
    costs = StageCosts.declared(4).in_trainings(3)
    found = document(*SMALL)
    assert (found["unit"], found["repaired"]) == ("full trainings", expected(AsNeeded(depth=3), costs))
    # One chain of all slices, trained once, is one order; so are they without repair.
    orders = ("--shards", 3, "--slices", 4, "--budget", 1, "--selector", "cyclic", "--trials", 50, "--over", 60)
    order = document(*orders, "--repair-below", 4)
    assert document(*SMALL, "--depth", 4, "--spares", 0) == order


def test_without_repair_chains_last_as_the_first_hits_of_their_slices_say():
    found = document(*SMALL)
    falls = simulate([((0, 1, 2), (3,))] * 3, Deletions.uniform(3, 4), trials=50)
    assert found["deletion_rate"]["mean"] == pytest.approx(falls.deletion_rate.mean())
    assert found["depth"]["1"] == pytest.approx((falls.falls > 1).sum(axis=2).mean())


def test_spares_and_a_prior_are_simulated_and_stages_may_cost_seconds():
    found = document(
        *(*SMALL, "--spares", 2, "--spare-depth", 2, "--prior", "0.7,0.1,0.1,0.1", "--seed", 4),
        *("--stage-seconds", "1.5,3,7,13"),
    )
    deletions = Deletions.from_prior([0.7, 0.1, 0.1, 0.1], shards=3)
    policy = AsNeeded(depth=3, spares=2, spare_depth=2)
    assert found["unit"] == "seconds"
    assert found["repaired"] == expected(policy, StageCosts((1.5, 3, 7, 13)), deletions, seed=4)


def test_people_read_what_a_deletion_costs_and_how_many_leave_a_shard_dead(tmp_path):
    shown = typed.invoke("simulate", *SMALL, "--spares", 0, "--plot", tmp_path / "depth.png")
    words = " ".join(shown.stdout.split())
    assert "3 shards of 4 slices, main chain of 3, no spare: 50 systems" in words
    found = document(*SMALL, "--spares", 0)["repaired"]
    assert found["dead_share"] == pytest.approx(0.25, abs=0.05)
    assert f"deletions that leave a shard dead: {found['dead_share']:.2%}" in words
    assert f"a deletion {found['cost']['mean'] / 60:.4g}" in words
    assert_is_picture(tmp_path / "depth.png")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--depth", 5), "depth 5: a shard has 4 slices"),
        (("--spares", 4), "4 spares beside the main chain"),
        (("--spare-depth", 4), "spare_depth 4: give 1 to 3"),
        (("--budget", 2), "give one of --budget, orders a shard, and --depth"),
        (("--repair-below", 2), "are of orders; leave out --depth"),
        (("--vary-by-shard",), "are of orders; leave out --depth"),
        (("--selector", "cyclic"), "are of orders; leave out --depth"),
        (("--stage-seconds", "1,2,3,1e10"), "give at most 1,000,000,000 seconds"),
        (("--over", 0), "--over 0: give 1 to 100,000 deletions"),
        (("--trials", 0), "0 trials: give at least 1"),
        (("--trials", 10**8), "GB of memory, more than 2; lower --trials"),
        (("--stage-seconds", "1,2"), "--stage-seconds has 2 numbers for 4 slices"),
        (("--stage-seconds", "1,2,3,0"), "give finite numbers above 0"),
        (("--stage-seconds", "1,2,3,x"), "number 4 is 'x', not a number"),
    ],
)
def test_wrong_input_is_one_clear_error(arguments, said):
    (problem,) = problems(*SMALL, *arguments)
    assert said in problem


def test_chains_and_orders_are_not_mixed_up():
    orders = ("--shards", 3, "--slices", 4)
    assert problems(*orders) == ["give one of --budget, orders a shard, and --depth, of a main chain"]
    assert problems(*orders, "--budget", 2, "--spares", 2, "--stage-seconds", "1,2,3,4") == [
        "--spares and --spare-depth are of chains; give --depth, too",
        "--stage-seconds is of repaired systems; give --repair-below or --depth, too",
    ]
