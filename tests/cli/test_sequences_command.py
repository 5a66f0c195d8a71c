"""`s3t sequences`: its document, its tables, its pictures, and everything that can be wrong with what it is told."""

import itertools
import re
from functools import partial

import pytest

from s3t.cli import choose
from s3t.orders import DEFAULT_SELECTOR, Setting, scores, select
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
@pytest.mark.parametrize(("selector", "prior"), [("bms", None), ("survival", (0.4, 0.3, 0.2, 0.1))])
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
    found = document(*SMALL)
    assert found["selector"] == DEFAULT_SELECTOR
    assert found == document(*SMALL, "--seed", 0, "--deletions", 8, "--horizon", "1,2,4,8")


def test_horizon_and_values_reach_survival():
    sizes = ("--slices", 6, "--budget", 3)
    setting = Setting(slices=6, budget=3, horizon=(3,), values=(0, 0, 0, 1, 1, 1))
    found = document(*sizes, "--horizon", "3", "--values", "0\n0\n0\n1\n1\n1\n")  # the lines of a file
    assert found["sequences"] == [list(order) for order in select("survival", setting)]
    assert found["sequences"] != document(*sizes)["sequences"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--slices", 0, "--budget", 1), "slices: Input should be greater than or equal to 1, not 0"),
        ((*SMALL, "--selector", "full"), "full takes all 24 orders"),
        (("--slices", 16, "--budget", 2, "--horizon", "1000"), "survival looks at most 256 deletions ahead"),
        ((*SMALL, "--prior", "a,0.5,0.5,0"), "--prior: number 1 is 'a', not a number"),
        ((*SMALL, "--prior", "0.5,,0.5,0"), "--prior: number 2 is missing"),
        ((*SMALL, "--prior", ""), "--prior: holds no numbers"),
        ((*SMALL, "--horizon", "1,2.5"), "horizon.1: Input should be a valid integer, not 2.5"),
        ((*SMALL, "--horizon", "inf"), "horizon.0: Input should be a valid integer, not inf"),
        ((*SMALL, "--values", "x"), "--values: number 1 is 'x'"),
        ((*SMALL, "--plot", "orders.gif"), "orders.gif: has the suffix '.gif'; use .png, .svg, .pdf"),
        ((*SMALL, "--plot", "missing/orders.png"), "its folder missing does not exist"),
    ],
)
def test_wrong_input_is_one_clear_error(arguments, said):
    (problem,) = problems(*arguments)
    assert said in problem


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


def test_a_picture_is_drawn_beside_the_document_and_says_what_it_shows(tmp_path):
    path, asked = tmp_path / "orders.png", (*SMALL, "--selector", "cyclic", "--prior", "0.4,0.3,0.2,0.1")
    assert document(*asked, "--plot", path) == document(*asked)
    assert_is_picture(path)
    path = tmp_path / "orders.svg"
    assert f"drawn: {path}" in invoke(*asked, "--plot", path).stdout.replace("\n", "")
    assert {"3 orders of 4 slices (cyclic)", "probability that a deletion hits the slice"} <= set(texts(path))


def test_people_read_the_orders_and_how_far_they_are_from_the_best():
    shown = invoke("--slices", 4, "--budget", 24, "--selector", "full").stdout
    assert "0 1 2 3" in shown
    assert "and 4 more" in shown
    limit = full_budget_depth([2], [0.25] * 4)[0]
    assert f"{limit:.4f}" in shown
    assert re.search(r"100\.0%|99\.\d%", shown)
    assert "expected depths: from 100,000 simulated histories" in shown


def test_long_orders_are_cut_in_the_table_alone():
    arguments = ("--slices", 60, "--budget", 2, "--selector", "cyclic")
    words = " ".join(invoke(*arguments).stdout.replace("│", " ").split())
    assert "29 30 31 ..." in words
    assert "from 100,000 simulated histories, ± the half of a 95 % interval" in words
    assert [len(order) for order in document(*arguments)["sequences"]] == [60, 60]
