"""Which systems are compared, what is advised, and what is refused, without a training."""

import pyarrow as pa
import pytest

from s3t.comparison import OWN, ComparedSystem, Point, _advice, _OutOfTimeError, _Sample, compare, lines_of, systems_of
from s3t.errors import DataError, InputError
from s3t.recipe import recipe_from
from s3t.tasks import task_named
from testing import tiny
from testing.language import language_recipe

TRAINED = {"sisa 1 x 3", "sisa 4 x 4", "s3t 1 x 3", "s3t 4 x 4"}
MERGED = {"sisa 4 x 4, merged", "s3t 4 x 4, merged"}
READ_OUT = {f"{name}, head: ridge" for name in ("full", *TRAINED)} | MERGED
ALL = {OWN, "ridge", "full", *TRAINED, *READ_OUT}


def systems(recipe, *, records=1600, layers=6):
    return systems_of(recipe_from(recipe), records=records, layers=layers)


@pytest.mark.parametrize(
    "recipe",
    [tiny.recipe("m"), tiny.recipe("m", task="text-regression", labels=None)],
    ids=lambda recipe: recipe["task"],
)
def test_of_labels_and_numbers_all_methods_are_compared(recipe):
    found, problems = systems(recipe)
    assert (found.keys(), problems) == (ALL, {})
    for name, fields in found.items():
        made = recipe_from(fields)
        assert name == OWN or name.startswith(made.method.name)
        assert (made.partition.salt, made.training.epochs) == (None, 2)
        assert (made.head == "ridge") == (name in READ_OUT)
        assert (made.readouts == "mean") == (name in MERGED)
    assert recipe_from(found["s3t 4 x 4"]).adapter.layers_per_slice == 1
    assert recipe_from(found["s3t 1 x 3"]).adapter.layers_per_slice == 2
    assert recipe_from(found["s3t 1 x 3"]).adapter.rank == 2


def test_groups_are_left_out_in_words():
    group = {"column": "age", "slices": {"young": [0], "other": [1, 2]}, "deletion": {"young": 0.2, "other": 0.1}}
    found, problems = systems(tiny.recipe("m", partition={"shards": 2, "slices": 3, "group": group}))
    assert recipe_from(found[OWN]).partition.group is None
    assert "all records are deleted alike" in problems["partition.group"]


def test_of_language_models_ridge_is_left_out_in_words():
    found, problems = systems(language_recipe("m"))
    assert found.keys() == {OWN, "full", *TRAINED}
    assert problems.keys() == {"ridge"}
    assert "use another method" in problems["ridge"]


def test_few_records_and_few_layers_give_few_shards_and_slices():
    assert {"s3t 1 x 2", "s3t 2 x 2"} <= systems(tiny.recipe("m"), records=60, layers=2)[0].keys()


FOUR = {"partition": {"shards": 4, "slices": 4}, "sequences": {"budget": 4}}
SAME = {
    "ridge": {"method": "ridge", "partition": {"shards": 1, "slices": 12}, "sequences": {"budget": 1}},
    "full": {"method": "full", "partition": {"shards": 1, "slices": 1}, "sequences": {"budget": 1}},
    "s3t 4 x 4": FOUR,
    "s3t 4 x 4, head: ridge": FOUR | {"head": "ridge"},
    "s3t 4 x 4, merged": FOUR | {"head": "ridge", "prediction": {"ensemble": "merged"}},
}


@pytest.mark.parametrize("same", SAME)
def test_a_system_that_the_recipe_has_already_is_not_compared_twice(same):
    assert systems(tiny.recipe("m", **SAME[same]))[0].keys() == ALL - {same}


def test_what_fits_one_system_alone_stays_with_the_recipe():
    asked = {
        "sequences": {"budget": None, "selector": "survival"},
        "deletion": {"repair": {"policy": "as-needed", "depth": 2}, "erase_within": 5},
        "partition": {"slices": 4},
        "prediction": {"select": "validation", "validation": "public.csv", "batch_size": 3},
    }
    recipe = tiny.recipe("m", **asked)
    del recipe["sequences"]
    found, _ = systems(recipe)
    assert found.keys() == ALL
    assert recipe_from(found[OWN]).prediction.select == "validation"
    for name in ALL - {OWN}:
        assert found[name]["prediction"] == {"batch_size": 3} | ({"ensemble": "merged"} if name in MERGED else {})
        assert found[name]["deletion"] == {"erase_within": 5}


@pytest.mark.parametrize(
    "asked",
    [
        {"method": "sisa", "head": "ridge", "prediction": {"ensemble": "merged"}, "ridge": {"layers": 0}},
        {"deletion": {"repair": {"policy": "as-needed", "depth": 2}}, "training": {"class_weight": "balanced"}},
        {
            "engine": {"on": "slurm", "workers": 4},
            "ledger": "postgresql://there/runs",
            "deletion": {"repair": "manual"},
        },
    ],
)
def test_the_lines_of_a_system_in_place_of_ones_own_make_it(asked):
    recipe = tiny.recipe("m") | asked
    del recipe["sequences"]
    found, problems = systems(recipe)
    assert not problems
    for name, fields in found.items():
        lines = lines_of(fields, own=found[OWN])
        replaced = {part: value for part, value in recipe.items() if part not in ("method", "partition", "ledger")}
        made, measured = recipe_from(replaced | lines), recipe_from(fields)
        for part in ("method", "head", "partition", "sequences", "ridge", "deletion", "prediction", "training"):
            assert getattr(made, part) == getattr(measured, part), (name, part)


def sample(labels):
    table = pa.table({"record": [str(number) for number in range(len(labels))], "label": labels})
    target = task_named("text-classification").target
    return _Sample(table, [], table, len(labels), target, ("a", "b"), "", {})


def system(name, score, hours):
    point = Point(deleted=8, before=None, after=score, repair_seconds=1)
    measures = dict.fromkeys(("train_seconds", "train_hours", "delete_milliseconds", "answer_milliseconds"), 1.0)
    return ComparedSystem(
        name=name, recipe={"method": name}, points=(point,), hours_a_year=hours, stored_bytes=1, **measures
    )


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr("s3t.comparison.RESAMPLES", 30)


def advised(right, hours):
    """The advice, where each system answers so many of 100 records rightly."""
    held_out = sample(["a", "b"] * 50)
    answers = {
        name: [label if place < count else "ab"[label == "a"] for place, label in enumerate("ab" * 50)]
        for name, count in right.items()
    }
    systems = [system(name, held_out.score(answers[name]), hours[name]) for name in right]
    return _advice(systems, answers, held_out, 0)


def test_the_best_is_advised_and_within_noise_the_cheapest():
    hours = {"s3t": 9.0, "sisa": 5.0, "full": 1.0}
    guess, best, said = advised({"s3t": 90, "sisa": 70, "full": 60}, hours)
    assert (guess, best) == (0.5, "s3t")
    assert said == "Take s3t: after 8 deletions it scores 0.9, the best."
    _, best, said = advised({"s3t": 90, "sisa": 89, "full": 60}, hours)
    assert best == "sisa"
    assert (
        "within noise of the best (s3t, 0.9), and takes the fewest hours a year of the 2 that are as good (5)" in said
    )


def test_it_says_if_the_simplest_is_best_and_if_none_is_better_than_a_guess():
    assert "no model is trained" in advised({"s3t": 80, "ridge": 90}, {"s3t": 9.0, "ridge": 1.0})[2]
    guess, best, said = advised({"s3t": 53, "ridge": 49}, {"s3t": 9.0, "ridge": 1.0})
    assert (guess, best) == (0.5, None)
    assert said.startswith("No system is better than a guess (0.5): check ")


def test_too_few_records_and_senseless_numbers_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"has \d+ records to train on, of at least 20; give more"):
        compare(tiny.recipe("m"), data=tiny.text_table(20), folder=tmp_path)
    with pytest.raises(InputError) as refused:
        compare(tiny.recipe("m"), data="none.csv", minutes=float("nan"), records=3, deletions_per_month=-1)
    assert len(refused.value.problems) == 3
    with pytest.raises(DataError, match="is not a file; check the path"):
        compare(tiny.recipe("m"), data=tmp_path / "none.csv")
    assert list(tmp_path.iterdir()) == []


def test_labels_of_other_records_than_the_run_knows_are_refused_before_anything_is_trained(tmp_path):
    other = tiny.text_table(40).assign(label="z")
    with pytest.raises(DataError, match="outside the declared labels"):
        compare(tiny.recipe("m"), data=tiny.text_table(40), evaluate=other, folder=tmp_path)


def test_what_does_not_fit_the_time_is_left_out_and_named(text_model, tmp_path, monkeypatch):
    tried = []

    def measured(place, recipe, sample, progress):
        tried.append((recipe.method.name, recipe.partition.shards, recipe.partition.slices))
        if recipe.method.name != "ridge":
            raise _OutOfTimeError
        values = system("", 0.5, 0).model_dump(exclude={"name", "recipe", "hours_a_year"})
        return values | {"repair_hours": 2.0}, ["a"] * sample.held_out.num_rows

    monkeypatch.setattr("s3t.comparison._measured", measured)
    found = compare(tiny.recipe(text_model), data=tiny.text_table(40), folder=tmp_path, deletions_per_month=1)
    assert [each.name for each in found.systems] == ["ridge"]
    assert found.systems[0].hours_a_year == 1 + 12 * 2
    assert {OWN, "full", "s3t 2 x 3, merged"} <= found.left_out.keys()
    assert len(found.left_out) == 12
    assert tried[:2] == [("ridge", 1, 12), ("s3t", 2, 3)]  # the recipe's own is not the first to be left out
    assert set(found.left_out.values()) == {"the time of 30 min is too short; give more minutes"}
    with pytest.raises(InputError, match=r"ridge: the time of 0\.0 s is too short; give more minutes"):
        compare(tiny.recipe(text_model), data=tiny.text_table(40), folder=tmp_path, minutes=1e-9)
    assert list(tmp_path.iterdir()) == []
