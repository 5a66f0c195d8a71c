"""Groups: declared slices, declared probabilities, and every mistake in them told at once."""

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from s3t import RecipeError, load_recipe
from s3t.recipe import Group, recipe_from
from tests.recipe.test_recipe import content as of_recipe

GROUP = {
    "column": "age_band",
    "slices": {"young": [0, 1], "other": [2, 3]},
    "deletion": {"young": 0.3, "other": 0.05},
}
TEXT = """\
task: text-classification
base_model: some/model
columns: {text: text}
labels: [a, b]
partition: {slices: 2, group: {column: member, slices: %s, deletion: %s}}
"""


def content(group, **changes):
    return of_recipe(**{"partition": {"slices": 4, "group": group}} | changes)


def recipe(**changes):
    return recipe_from(content(GROUP | changes))


def problems_of(changes=None, **more):
    with pytest.raises(RecipeError) as caught:
        recipe_from(content(GROUP | (changes or {}), **more))
    return caught.value.problems


def only_problem_of(changes=None, **more):
    (problem,) = problems_of(changes, **more)
    return problem


def test_a_group_has_its_slices_and_probability_and_without_groups_there_is_no_prior():
    group = recipe().partition.group
    assert (group.among("young"), group.among("other")) == ((0, 1), (2, 3))
    assert recipe_from(content(None)).slice_prior is None


def test_slices_of_a_group_are_alike_and_groups_stand_in_the_ratio_of_their_probabilities():
    prior = recipe().slice_prior
    assert prior == pytest.approx((3 / 7, 3 / 7, 0.5 / 7, 0.5 / 7))
    assert (prior[0], prior[2]) == (prior[1], prior[3])
    assert recipe(deletion={"young": 1, "other": 0}).slice_prior == (0.5, 0.5, 0.0, 0.0)
    for scale in (1e-300, 1e308):  # none is too small or too big
        weights = {"young": 1.0 * scale, "other": 0.25 * scale}
        assert recipe(deletion=weights).slice_prior == pytest.approx((0.4, 0.4, 0.1, 0.1))


@given(weights=st.lists(st.floats(0, 1e308), min_size=1, max_size=12).filter(any), data=st.data())
def test_a_prior_is_a_distribution_that_follows_the_declared_probabilities(weights, data):
    order = data.draw(st.permutations(range(len(weights))))
    names = [f"g{number}" for number in range(len(weights))]
    group = Group(
        column="c",
        slices={name: [index] for name, index in zip(names, order, strict=True)},
        deletion=dict(zip(names, weights, strict=True)),
    )
    prior = group.prior()
    assert math.fsum(prior) == pytest.approx(1)
    by_weight = sorted(zip(weights, (prior[index] for index in order), strict=True))
    assert [probability for _, probability in by_weight] == sorted(prior)


def test_whole_numbers_are_groups_as_text_and_groups_that_look_alike_are_refused():
    group = recipe(slices={1: [0, 1], "2": [2, 3]}, deletion={1: 1, 2: 3}).partition.group
    assert set(group.slices) == set(group.deletion) == {"1", "2"}
    with pytest.raises(RecipeError, match="differ in blanks or Unicode form alone"):
        recipe(slices={"a b": [0, 1], "a  b": [2, 3]}, deletion={"a b": 1, "a  b": 3})


def test_the_order_in_which_groups_and_slices_are_written_does_not_matter():
    turned = {"slices": {"other": [3, 2], "young": [1, 0]}, "deletion": {"other": 0.05, "young": 0.3}}
    assert recipe(**turned).slice_prior == recipe().slice_prior
    assert recipe(**turned).partition.group.among("young") == (0, 1)


def test_groups_that_yaml_reads_as_booleans_are_refused_with_the_remedy(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(TEXT % ("{true: [0], false: [1]}", "{true: 1, false: 2}"))
    with pytest.raises(RecipeError, match="in quotes") as caught:
        load_recipe(path)
    fields = [problem.partition(":")[0] for problem in caught.value.problems]
    assert fields == ["partition.group.slices", "partition.group.deletion"]
    path.write_text(TEXT % ('{yes: [0], "no": [1]}', '{"yes": 1, no: 2}'))
    assert set(load_recipe(path).partition.group.slices) == {"yes", "no"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"slices": {"young": [0, 1], "other": [2]}}, "slices: slice 3 is in no group"),
        ({"slices": {"young": [0, 1], "other": [1, 2, 3]}}, "slices: slice 1 is given more than once"),
        ({"slices": {"young": [0, 1, -1], "other": [2, 3]}}, "slices: slice -1 is not among the slices 0 to 3"),
        ({"deletion": {"young": 0.3}}, "deletion: group 'other' is not there; say how probable"),
        ({"deletion": {"young": float("inf"), "other": 1}}, "deletion: 'young' has inf; give a finite number, 0 or"),
        ({"deletion": {"young": float("nan"), "other": 1}}, "deletion: 'young' has nan"),
        ({"deletion": {"young": 0, "other": 0}}, "deletion: no group is above 0"),
        ({"deletion": GROUP["deletion"] | {"old": 1}}, "slices: group 'old' is not there; give it slices"),
    ],
)
def test_every_slice_is_in_exactly_one_group_which_has_a_probability(changes, problem):
    (told,) = problems_of(changes)
    field, _, reason = problem.partition(": ")
    assert told.startswith(f"partition.group.{field}: ")
    assert reason in told


def test_all_mistakes_in_groups_are_reported_at_once_beside_others():
    group = {
        "column": "text",
        "slices": {"young": [0, 0, 9], "other": [], "": [1]},
        "deletion": {"young": -1, "gone": 0},
    }
    problems = problems_of(group, sequences={"budget": 99})
    wanted = (
        "empty name",
        "group 'other' is not there",
        "group '' is not there",
        "group 'gone' is not there",
        "group 'other' has no slice",
        "slice 9 is not among",
        "slice 0 is given more than once",
        "slices 2, 3 are in no group",
        "'young' has -1",
        "columns.text already",
        "and 4! = 24",
    )
    for part in wanted:
        assert sum(part in problem for problem in problems) == 1, part
    assert len(problems) == len(wanted)


@pytest.mark.parametrize(
    ("group", "field"),
    [
        (GROUP | {"tpyo": 1}, "partition.group.tpyo"),
        (GROUP | {"slices": {"young": ["x"], "other": [2, 3]}}, "partition.group.slices.young"),
        ("age_band", "partition.group"),
    ],
)
def test_a_field_of_the_wrong_type_is_one_problem_and_hides_no_other(group, field):
    with pytest.raises(RecipeError) as caught:
        recipe_from(content(group, sequences={"budget": 99}))
    here, other = caught.value.problems
    assert here.startswith(f"{field}: ")
    assert "and 4! = 24" in other


@pytest.mark.parametrize(("role", "column"), [("subject", "age_band"), ("text", "{age_band} and more")])
def test_a_group_has_a_column_of_its_own(role, column):
    columns = {"text": "text", role: column}
    assert f"'age_band' is columns.{role} already" in only_problem_of(columns=columns)


def test_the_labels_of_a_classification_may_be_its_groups():
    by_label = {"column": "label", "slices": {"a": [0], "b": [1, 2, 3]}, "deletion": {"a": 1, "b": 2}}
    assert recipe_from(content(by_label)).slice_prior == pytest.approx((1 / 7, 2 / 7, 2 / 7, 2 / 7))
    assert recipe_from(content(by_label, labels="infer")).slice_prior is not None
    assert "['c'] are not in both" in only_problem_of(by_label, labels=["a", "b", "c"])
    regression = problems_of(by_label, task="text-regression", labels=...)
    assert "columns.label already" in regression[0]


def test_a_recipe_with_groups_survives_being_written_and_read_again():
    before = recipe()
    written = yaml.safe_dump(before.model_dump(mode="json", exclude={"partition": {"salt"}}))
    assert recipe_from(yaml.safe_load(written)) == before
