"""`s3t sequences`: its document, its tables, its pictures, and everything that can be wrong with what it is told."""

import itertools
import math
import re
from functools import partial

import pytest

from s3t.cli import choose
from s3t.orders import DEFAULT_SELECTOR, SELECTORS, Setting, scores, select
from s3t.orders.setting import DEFAULT_DELETIONS, DEFAULT_HORIZON
from s3t.planning.bounds import full_budget_depth
from s3t.planning.simulation import retention
from tests.cli import typed
from tests.drawing.pictures import assert_is_picture, texts

invoke = partial(typed.invoke, "sequences")
document = partial(typed.document, "sequences", quiet=True)
problems = partial(typed.problems, "sequences")


SMALL = ("--slices", 4, "--budget", 3)


@pytest.mark.integration
@pytest.mark.parametrize("selector", [name for name in SELECTORS if name != "full"])
@pytest.mark.parametrize("prior", [None, (0.4, 0.3, 0.2, 0.1)])
def test_the_document_has_the_orders_and_what_they_are_worth(selector, prior):
    given = () if prior is None else ("--prior", ",".join(map(str, prior)))
    found = document(*SMALL, "--selector", selector, *given, "--deletions", 3, "--seed", 5)
    setting = Setting(slices=4, budget=3, prior=prior, deletions=3, seed=5)
    orders = select(selector, setting)
    assert set(found) == {"selector", "sequences", "mean_distance", "score", "expected_depth"}
    assert found["selector"] == selector
    assert found["sequences"] == [list(order) for order in orders]
    pairs = list(itertools.combinations(orders, 2))
    distance = sum(a != b for pair in pairs for a, b in zip(*pair, strict=True)) / len(pairs)
    assert found["mean_distance"] == pytest.approx(distance)
    assert found["score"] == pytest.approx(sum(scores(orders, setting.probabilities, 3)))
    assert list(found["expected_depth"]) == ["1", "2", "4", "8", "16"]
    kept = retention(orders, [1, 2, 4, 8, 16], prior=prior, seed=5)
    assert list(found["expected_depth"].values()) == pytest.approx(kept[:, 1:].sum(axis=1).tolist())


def test_defaults_are_those_of_the_recipe():
    assert choose.SELECTOR == DEFAULT_SELECTOR
    assert choose.DELETIONS == DEFAULT_DELETIONS
    assert tuple(map(int, choose.HORIZON.split(","))) == DEFAULT_HORIZON
    assert document(*SMALL)["selector"] == DEFAULT_SELECTOR
    assert document(*SMALL) == document(*SMALL, "--seed", 0, "--deletions", 8, "--horizon", "1,2,4,8")


def test_a_single_order_lies_nowhere_apart():
    found = document("--slices", 1, "--budget", 1)
    assert found["sequences"] == [[0]]
    assert found["mean_distance"] == 0
    assert set(found["expected_depth"].values()) == {0}


def test_horizon_and_values_reach_survival():
    sizes = ("--slices", 6, "--budget", 3)
    setting = Setting(slices=6, budget=3, horizon=(3,), values=(0, 0, 0, 1, 1, 1))
    found = document(*sizes, "--horizon", "3", "--values", "0,0,0,1,1,1")
    assert found["sequences"] == [list(order) for order in select("survival", setting)]
    assert found["sequences"] != document(*sizes)["sequences"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--slices", 0, "--budget", 1), "slices: Input should be greater than or equal to 1, not 0"),
        (("--slices", -3, "--budget", 1), "slices: Input should be greater than or equal to 1, not -3"),
        (("--slices", 10_001, "--budget", 1), "slices: Input should be less than or equal to 10000, not 10001"),
        (("--slices", 3, "--budget", 0), "budget 0 is not between 1 and 3! = 6"),
        (("--slices", 3, "--budget", 7), "budget 7 is not between 1 and 3! = 6"),
        (("--slices", 30, "--budget", 10**9), "lower the budget"),
        ((*SMALL, "--selector", "best"), "no selector is called 'best'; choose one of survival, cyclic,"),
        (("--slices", 4, "--budget", 5, "--selector", "bms"), "bms gives at most 4 orders"),
        ((*SMALL, "--selector", "full"), "full takes all 24 orders"),
        (("--slices", 600, "--budget", 2), "survival takes at most 512 slices"),
        (("--slices", 16, "--budget", 2, "--horizon", "1000"), "survival looks at most 256 deletions ahead"),
        ((*SMALL, "--prior", "0.5,0.5"), "the prior has 2 probabilities for 4 slices"),
        ((*SMALL, "--prior", "0.5,0.5,0.5,0.5"), "the prior sums to 2, not to 1"),
        ((*SMALL, "--prior", "-0.5,0.5,0.5,0.5"), "the prior holds -0.5"),
        ((*SMALL, "--prior", "nan,0.5,0.5,0"), "the prior holds nan"),
        ((*SMALL, "--prior", "a,0.5,0.5,0"), "--prior: number 1 is 'a', not a number"),
        ((*SMALL, "--prior", "0.5,,0.5,0"), "--prior: number 2 is missing"),
        ((*SMALL, "--prior", "0.5;0.5;0;0"), "number 1 is '0.5;0.5;0;0', not a number"),
        ((*SMALL, "--prior", ""), "--prior: holds no numbers"),
        ((*SMALL, "--deletions", 0), "deletions: Input should be greater than or equal to 1, not 0"),
        ((*SMALL, "--seed", -1), "seed: Input should be greater than or equal to 0, not -1"),
        ((*SMALL, "--horizon", "1,0"), "horizon.1: Input should be greater than or equal to 1, not 0"),
        ((*SMALL, "--horizon", "1,2.5"), "horizon.1: Input should be a valid integer, not 2.5"),
        ((*SMALL, "--horizon", "inf"), "horizon.0: Input should be a valid integer, not inf"),
        ((*SMALL, "--values", "1,2,3"), "the table of values has 3 numbers for 4 slices"),
        ((*SMALL, "--values", "1,2,3,2"), "the table of values falls at F(4)"),
        ((*SMALL, "--values", "x"), "--values: number 1 is 'x'"),
        ((*SMALL, "--plot", "orders.gif"), "orders.gif: has the suffix '.gif'; use .png, .svg, .pdf"),
        ((*SMALL, "--plot", "missing/orders.png"), "its folder missing does not exist"),
    ],
)
def test_wrong_input_is_one_clear_error(arguments, said):
    (problem,) = problems(*arguments)
    assert said in problem


def test_a_prior_comes_from_a_file_by_the_shell():
    lines = "0.5\n0.25\n0.25\n"
    sizes = ("--slices", 3, "--budget", 2, "--selector", "bms")
    assert document(*sizes, "--prior", lines) == document(*sizes, "--prior", "0.5,0.25,0.25")


def test_all_problems_are_told_at_once(tmp_path):
    found = problems(
        *("--slices", 3, "--budget", 7, "--prior", "0.5,x,1", "--selector", "best", "--horizon", "1.5"),
        *("--plot", tmp_path / "missing" / "orders.gif"),
    )
    assert len(found) == 6


def test_without_matplotlib_the_remedy_is_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (problem,) = problems(*SMALL, "--plot", tmp_path / "orders.png")
    assert 'pip install "matplotlib' in problem


def test_a_picture_is_drawn_beside_the_document(tmp_path):
    path = tmp_path / "orders.png"
    assert document(*SMALL, "--plot", path) == document(*SMALL)
    assert_is_picture(path)
    assert f"drawn: {path}" in invoke(*SMALL, "--plot", path).stdout.replace("\n", "")


def test_the_picture_says_what_it_shows(tmp_path):
    document(*SMALL, "--selector", "cyclic", "--prior", "0.4,0.3,0.2,0.1", "--plot", tmp_path / "orders.svg")
    assert {"3 orders of 4 slices (cyclic)", "probability that a deletion hits the slice"} <= set(
        texts(tmp_path / "orders.svg")
    )


def test_people_read_the_orders_and_how_far_they_are_from_the_best():
    shown = invoke("--slices", 4, "--budget", 24, "--selector", "full").stdout
    assert "0 1 2 3" in shown
    assert "and 4 more" in shown
    limit = full_budget_depth([2], [0.25] * 4)[0]
    assert f"{limit:.4f}" in shown
    assert re.search(r"100\.0%|99\.\d%", shown)
    assert "expected depths: from 100,000 simulated histories" in shown


def test_simulated_depths_have_their_interval():
    arguments = ("--slices", 40, "--budget", 40, "--selector", "random", "--seed", 3)
    found = document(*arguments)
    shown = invoke(*arguments).stdout
    assert "±" in shown
    assert "from 100,000 simulated histories, ± the half of a 95 % interval" in shown
    # After one deletion: the longest part of an order before the slice that is hit, whichever it is.
    longest = [max(order.index(hit) for order in found["sequences"]) for hit in range(40)]
    row = next(line for line in shown.splitlines() if line.split()[1:2] == ["1"] and "±" in line)
    half = float(row.split("±")[1].split()[0])
    assert 0 < half < 0.01
    assert math.isclose(found["expected_depth"]["1"], sum(longest) / 40, abs_tol=2.5 * half)


def test_long_orders_are_cut_in_the_table_alone():
    arguments = ("--slices", 60, "--budget", 2, "--selector", "cyclic")
    assert "29 30 31 ..." in " ".join(invoke(*arguments).stdout.replace("│", " ").split())
    assert [len(order) for order in document(*arguments)["sequences"]] == [60, 60]
