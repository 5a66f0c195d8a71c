"""Groups: declared slices, declared probabilities, and every mistake in them told at once."""

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from s3t import RecipeError, load_recipe
from s3t.recipe import Group, recipe_from

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
    fields = {
        "task": "text-classification",
        "base_model": "some/model",
        "columns": {"id": "id", "text": "text", "label": "label"},
        "labels": ["a", "b"],
        "partition": {"slices": 4, "group": group},
    }
    return {name: value for name, value in (fields | changes).items() if value is not ...}


def recipe(**changes):
    return recipe_from(content(GROUP | changes))


def problems_of(changes=None, **more):
    with pytest.raises(RecipeError) as caught:
        recipe_from(content(GROUP | (changes or {}), **more))
    return caught.value.problems


def only_problem_of(changes=None, **more):
    (problem,) = problems_of(changes, **more)
    return problem


def test_the_example_of_the_issue_loads_with_the_values_it_shows():
    group = recipe().partition.group
    assert group.column == "age_band"
    assert (group.among("young"), group.among("other")) == ((0, 1), (2, 3))
    assert group.deletion == {"young": 0.3, "other": 0.05}


def test_without_groups_there_is_no_prior():
    assert recipe_from(content(None)).slice_prior is None


def test_slices_of_a_group_are_alike_and_groups_stand_in_the_ratio_of_their_probabilities():
    prior = recipe().slice_prior
    assert prior == pytest.approx((3 / 7, 3 / 7, 0.5 / 7, 0.5 / 7))
    assert prior[0] == prior[1]
    assert prior[2] == prior[3]


def test_only_the_ratios_of_the_probabilities_count_and_none_is_too_big_or_too_small():
    for scale in (1e-300, 1.0, 1e308):
        weights = {"young": 1.0 * scale, "other": 0.25 * scale}
        assert recipe(deletion=weights).slice_prior == pytest.approx((0.4, 0.4, 0.1, 0.1))


def test_a_group_that_never_deletes_has_probability_0():
    assert recipe(deletion={"young": 1, "other": 0}).slice_prior == (0.5, 0.5, 0.0, 0.0)


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


def test_the_order_in_which_groups_and_slices_are_written_does_not_matter():
    turned = {"slices": {"other": [3, 2], "young": [1, 0]}, "deletion": {"other": 0.05, "young": 0.3}}
    assert recipe(**turned).slice_prior == recipe().slice_prior
    assert recipe(**turned).partition.group.among("young") == (0, 1)


def test_whole_numbers_are_groups_as_text():
    group = recipe(slices={1: [0, 1], "2": [2, 3]}, deletion={1: 1, 2: 3}).partition.group
    assert set(group.slices) == set(group.deletion) == {"1", "2"}


def test_groups_that_yaml_reads_as_booleans_are_refused_with_the_remedy(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(TEXT % ("{true: [0], false: [1]}", "{true: 1, false: 2}"))
    with pytest.raises(RecipeError, match="in quotes") as caught:
        load_recipe(path)
    fields = [problem.partition(":")[0] for problem in caught.value.problems]
    assert fields == ["partition.group.slices", "partition.group.deletion"]
    path.write_text(TEXT % ('{yes: [0], "no": [1]}', '{"yes": 1, no: 2}'))
    assert set(load_recipe(path).partition.group.slices) == {"yes", "no"}


def test_groups_that_look_alike_are_refused():
    with pytest.raises(RecipeError, match="differ in blanks or Unicode form alone"):
        recipe(slices={"a b": [0, 1], "a  b": [2, 3]}, deletion={"a b": 1, "a  b": 3})


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ({"young": [0, 1], "other": [2]}, "slice 3 is in no group"),
        ({"young": [0], "other": [2]}, "slices 1, 3 are in no group"),
        ({"young": [0, 1], "other": [1, 2, 3]}, "slice 1 is given more than once"),
        ({"young": [0, 1, 1], "other": [2, 3]}, "slice 1 is given more than once"),
        ({"young": [0, 1], "other": [2, 3, 4]}, "slice 4 is not among the slices 0 to 3"),
        ({"young": [0, 1, -1], "other": [2, 3]}, "slice -1 is not among the slices 0 to 3"),
        ({"young": [0, 1, 2, 3], "other": []}, "group 'other' has no slice"),
    ],
)
def test_every_slice_is_in_exactly_one_group(slices, reason):
    problem = only_problem_of({"slices": slices})
    assert problem.startswith("partition.group.slices: ")
    assert reason in problem


@pytest.mark.parametrize(
    ("deletion", "reason"),
    [
        ({"young": 0.3}, "group 'other' is not there; say how probable"),
        ({"young": 0.3, "other": -0.1}, "'other' has -0.1; give a finite number, 0 or above"),
        ({"young": float("inf"), "other": 1}, "'young' has inf"),
        ({"young": float("nan"), "other": 1}, "'young' has nan"),
        ({"young": 0, "other": 0}, "no group is above 0"),
    ],
)
def test_every_group_has_a_probability_that_can_be_one(deletion, reason):
    problem = only_problem_of({"deletion": deletion})
    assert problem.startswith("partition.group.deletion: ")
    assert reason in problem


def test_a_probability_for_a_group_without_slices_is_named():
    problem = only_problem_of({"deletion": GROUP["deletion"] | {"old": 1}})
    assert problem.startswith("partition.group.slices: group 'old' is not there; give it slices")


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
        (GROUP | {"deletion": {"young": "often", "other": 1}}, "partition.group.deletion.young"),
        (GROUP | {"slices": [[0, 1], [2, 3]]}, "partition.group.slices"),
        (GROUP | {"column": ""}, "partition.group.column"),
        ({"column": "age_band", "slices": GROUP["slices"]}, "partition.group.deletion"),
        ("age_band", "partition.group"),
    ],
)
def test_a_field_of_the_wrong_type_is_one_problem_and_hides_no_other(group, field):
    with pytest.raises(RecipeError) as caught:
        recipe_from(content(group, sequences={"budget": 99}))
    here, other = caught.value.problems
    assert here.startswith(f"{field}: ")
    assert "and 4! = 24" in other


@pytest.mark.parametrize("role", ["id", "subject", "text", "text_pair"])
def test_a_group_has_a_column_of_its_own(role):
    columns = {"text": "text", role: "age_band"}
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
