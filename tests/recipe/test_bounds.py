"""Numbers of a recipe and of commands that nobody means: refused with a sentence, wherever they are given."""

import copy
import math
from pathlib import Path
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import pytest

import s3t
from s3t.events import silent
from s3t.recipe import Recipe, recipe_from
from s3t.recipe.schema import Section
from s3t.run.orders import extended
from testing import tiny
from tests.cli.typed import problems, program
from tests.recipe.test_recipe import content, problems_of

ROOT = Path(__file__).resolve().parents[2]


def only_numbers(annotation):
    """True if a field can hold a number, or several, and no boolean."""
    kinds = _kinds(annotation)
    return any(issubclass(kind, int | float) for kind in kinds) and bool not in kinds


def _kinds(annotation):
    if inner := get_args(annotation):
        return {kind for part in inner for kind in _kinds(part)}
    return {annotation} if isinstance(annotation, type) else set()


def number_fields(model, above=()):
    """Every field that holds numbers, with its path."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        if only_numbers(field.annotation) and not parts_in(field.annotation):
            yield ".".join(path), field
        for part in parts_in(field.annotation):
            yield from number_fields(part, path)


def parts_in(annotation):
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return [part for kind in get_args(annotation) for part in parts_in(kind)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, Section) else []


def most_of(field):
    """The upper bound of a field, or of its items; None if it has none."""
    inner = [*field.metadata, field.annotation]
    while inner:
        one = inner.pop()
        if (most := getattr(one, "le", None)) is not None:
            return most
        inner += [*getattr(one, "metadata", ()), *getattr(one, "__metadata__", ()), *get_args(one)]
    return None


FIELDS = dict(number_fields(Recipe))
MOST = {name: most for name, field in FIELDS.items() if (most := most_of(field)) is not None}
ELSEWHERE = {
    *("sequences.budget", "sequences.values", "sequences.prior", "adapter.dropout", "prediction.threshold"),
    *("partition.group.slices", "partition.group.deletion"),
}
"""Bounded by the number of slices and of orders, or below 1, or only compared with each other."""
CHAINS = ("depth", "spares", "spare_depth")
OF_FORESTS = {f"deletion.repair.{name}" for name in (*CHAINS, "level.mean_depth", "level.after_deletion")}
"""They need their policy, and are bounded by the number of slices."""
TYPED = {
    "deletion.repair.below_depth": "deletion.repair.below-depth",
    "training.class_weight": "training.class_weight.a",
}


def with_field(field, value):
    """A recipe's content with one field set."""
    changed = copy.deepcopy(content())
    *above, name = TYPED.get(field, field).split(".")
    inner = changed
    if field in OF_FORESTS:
        changed["deletion"] = {"repair": {"policy": "as-needed", "depth": 2}}
    if above == ["retention"]:
        changed["retention"] = {"column": "created"}
    for part in above:
        inner = inner.setdefault(part, {})
    inner[name] = [value] if field in ("image.mean", "image.std", "sequences.horizon") else value
    return changed


def test_the_fields_of_numbers_are_found():
    assert {"training.epochs", "image.std", "deletion.repair.below_depth", "training.threads"} <= FIELDS.keys()
    assert len(FIELDS) >= 30
    assert FIELDS.keys() - MOST.keys() <= ELSEWHERE


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_no_sensible_number_is_refused_wherever_it_stands(field):
    started = (field.removesuffix(".below_depth"), "sequences", "partition")
    for value in (True, False, math.inf, -math.inf, math.nan, "inf", 1e308, 10**400):
        with pytest.raises(s3t.RecipeError) as caught:
            recipe_from(with_field(field, value))
        assert any(problem.startswith(started) for problem in caught.value.problems), value


@pytest.mark.parametrize(
    "field",
    [each for each in MOST if each.partition(".")[0] not in ("partition", "sequences") and each not in OF_FORESTS],
)
def test_a_number_at_its_bound_is_taken_and_one_above_is_named_with_it(field):
    recipe_from(with_field(field, MOST[field]))
    name = TYPED.get(field, field).rpartition(".")[2]
    with pytest.raises(s3t.RecipeError, match=f"{name}: Input should be less than or equal to"):
        recipe_from(with_field(field, MOST[field] + 1))


def test_orders_that_are_too_many_in_all_are_refused():
    (problem,) = problems_of(partition={"shards": 100_000, "slices": 100}, sequences={"budget": 3})
    assert problem.startswith("partition: 100,000 shards of 100 slices in 3 orders are more than 20,000,000 numbers")


def test_docs_tell_every_bound_of_numbers_that_are_no_shares():
    text = (ROOT / "docs" / "recipe.md").read_text()
    for field, most in ((field, most) for field, most in MOST.items() if most > 1):
        name = TYPED.get(field, field).rpartition(".")[2]
        told = {2**50: "1PiB", 2**63 - 1: "2^63-1"}.get(most, f"{most:,.0f}")
        assert any(name in line and told in line for line in text.splitlines()), field


def test_labels_that_no_record_can_have_and_a_division_by_nothing_are_refused():
    assert problems_of(labels=["a", " "])[0].startswith("labels: one is empty or blank")
    assert problems_of(image={"std": [0.0]})[0].startswith("image.std: ")
    assert problems_of(image={"std": [math.nan]})


def test_a_recipe_beyond_the_bounds_makes_no_run_and_its_model_is_not_tried(tmp_path):
    recipe = tiny.recipe(tmp_path / "no-model", adapter={"rank": 10**12}, training={"epochs": 10**12}, labels=["", "a"])
    with pytest.raises(s3t.RecipeError) as caught:
        s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(2).assign(label="a"))
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "adapter.rank", "training.epochs", "labels",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


PLAN = ("plan", "--budget", 12, "--max-shards", 2, "--max-slices", 2, "--deletions-per-month", 5)
SIMULATE = ("simulate", "--shards", 2, "--slices", 4, "--budget", 2, "--trials", 10)
SERVICE = ("plan", "--shards", 2, "--slices", 4, "--mean-depth", 2, "--deletions-per-month", 5)
FORESTS = ("simulate", "--shards", 2, "--slices", 4, "--depth", 2, "--trials", 10)
SEQUENCES = ("sequences", "--slices", 4, "--budget", 2)
COMMANDS = [
    (*PLAN, "--deletions-per-month", "inf"),
    (*PLAN, "--months", "1e308"),
    (*PLAN, "--share", "nan"),
    (*PLAN, "--layers", 10**12),
    (*PLAN, "--hours-a-day", "inf"),
    (*PLAN, "--seed", 10**30),
    (*SIMULATE, "--shards", 10**9),
    (*SIMULATE, "--slices", 10**9),
    (*SIMULATE, "--budget", 10**12),
    (*SIMULATE, "--trials", 10**12),
    (*SIMULATE, "--deletions", 10**14),
    (*SIMULATE, "--repair-below", 1, "--over", 10**12),
    (*SERVICE, "--mean-depth", "inf"),
    (*SERVICE, "--depth-after-deletion", 10**30),
    (*SERVICE, "--shards", 10**12),
    (*SERVICE, "--stage-seconds", "1,2,3,1e300"),
    (*FORESTS, "--depth", 10**18),
    (*FORESTS, "--spares", 10**18),
    (*FORESTS, "--stage-seconds", "inf"),
    (*SEQUENCES, "--slices", 10**9),
    (*SEQUENCES, "--slices", 20, "--budget", 10**12),
    (*SEQUENCES, "--horizon", "1e300"),
    (*SEQUENCES, "--values", "1,2,3,inf"),
    (*SEQUENCES, "--prior", "inf,0,0,0"),
    (*SEQUENCES, "--deletions", 10**18),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command[0]} {command[-2]} {command[-1]}")
def test_a_command_refuses_numbers_that_nobody_means(command):
    assert problems(*command)


@pytest.mark.parametrize("option", [("--trials", 10**9), ("--seed", -1), ("--seed", 2**32)])
def test_tune_refuses_them_as_options(option):
    ended = program("tune", "recipe.yaml", "--space", "s", "--data", "d", "--validation", "v", "--study", "f", *option)
    assert ended.status == 2
    assert "than or equal to" in ended.stderr


def test_a_number_of_workers_of_5000_digits_is_refused(trained_once):
    for workers in ("9" * 5000, 10**9):
        (problem,) = problems("train", trained_once, "--workers", workers)
        assert "neither a whole number from 1 to 10,000 nor auto" in problem


def test_more_orders_than_can_be_written_are_refused():
    recipe = recipe_from(content(partition={"shards": 1, "slices": 20}))
    for budget, remedy in ((10**9, "lower the budget"), (10**40, "choose one in between")):
        with pytest.raises(s3t.SettingError, match=remedy):
            extended(((tuple(range(20)),),), recipe, budget=budget, progress=silent)
