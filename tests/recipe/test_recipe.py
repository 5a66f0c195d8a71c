"""Recipes: documented, validated with all problems at once, and closed to what is not exact."""

import math
import typing
from pathlib import Path

import pydantic
import pytest
import yaml

from s3t import Recipe, RecipeError, load_recipe
from s3t.descriptions import descriptions_of
from s3t.recipe import BelowDepth, Group, TrainingSettings, recipe_from
from s3t.recipe.loading import parse_yaml, to_yaml


def content(**changes):
    fields = {
        "task": "text-classification",
        "base_model": "some/model",
        "columns": {"id": "id", "text": "text", "label": "label"},
        "labels": ["a", "b"],
    }
    return {name: value for name, value in (fields | changes).items() if value is not ...}


def problems_of(**changes):
    with pytest.raises(RecipeError) as caught:
        recipe_from(content(**changes))
    return caught.value.problems


def only_problem_of(**changes):
    problems = problems_of(**changes)
    assert len(problems) == 1, problems
    return problems[0]


def parts_of(model):
    """The model and every model that its fields hold."""
    yield model
    for field in model.model_fields.values():
        for kind in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
                yield from parts_of(kind)


def test_every_field_of_every_part_is_documented():
    parts = list(parts_of(Recipe))
    described = {part: descriptions_of(part) for part in parts}
    fields = [(part, name) for part in parts for name in part.model_fields]
    assert len(fields) > 40
    assert [f"{part.__name__}.{name}" for part, name in fields if not described[part].get(name)] == []


def test_the_json_schema_of_a_recipe_has_the_descriptions():
    schema = Recipe.model_json_schema()
    for name, part in {"TrainingSettings": TrainingSettings, "BelowDepth": BelowDepth, "Group": Group}.items():
        described = {field: value["description"] for field, value in schema["$defs"][name]["properties"].items()}
        assert list(described.values()) == list(descriptions_of(part).values())
    assert schema["properties"]["revision"]["description"] == "Commit or tag of a hub model."


def test_defaults_are_enough_for_all_but_task_model_columns_and_labels():
    assert recipe_from(content()).partition.shards >= 1
    for name in ("task", "base_model", "columns", "labels"):
        assert name in " ".join(problems_of(**{name: ...}))


def test_all_problems_are_reported_at_once_each_with_its_field_and_those_between_fields():
    problems = problems_of(
        task="text-classification",
        columns={"image": "picture", "labl": "x"},
        labels=[True, "a"],
        partition={"slices": 2, "shards": 0},
        sequences={"budget": 9, "selector": "clever"},
        adapter={"rank": 0, "bias": "all"},
        training={"learning_rate": -1, "seed": -1},
        extra=1,
    )
    fields = {problem.partition(":")[0] for problem in problems}
    assert fields >= {"labels", "partition.shards", "adapter.rank", "adapter.bias", "columns.labl", "extra"}
    assert fields >= {"sequences.selector", "training.learning_rate", "training.seed"}
    told = " | ".join(problems)
    for part in ("booleans", "and 2! = 2", "columns.text", "columns.image"):
        assert part in told, part
    assert "declare the labels" not in told
    assert "task: " in " | ".join(problems_of(task="text-generation"))


def test_the_error_counts_the_problems_and_names_the_file(tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text("task: text-classification\nbase_model: m\ncolumns: {text: text}\nlabels: [a, b]\nx: 1\ny: 2\n")
    with pytest.raises(RecipeError, match=r"2 problems in .*wrong\.yaml") as caught:
        load_recipe(path)
    assert caught.value.where == str(path)
    assert caught.value.problems == (
        "x: no such field; see docs/recipe.md for the names",
        "y: no such field; see docs/recipe.md for the names",
    )


@pytest.mark.parametrize("part", ["columns", "training"])
def test_an_unknown_field_is_refused_in_every_part(part):
    inner = content().get(part, {}) | {"tpyo": 1}
    assert only_problem_of(**{part: inner}) == f"{part}.tpyo: no such field; see docs/recipe.md for the names"


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ({"training": {"epoch": 3}}, "training.epoch: no such field; did you mean training.epochs?"),
        ({"epochs": 3}, "epochs: no such field; did you mean training.epochs?"),
        ({"lables": ["a", "b"]}, "lables: no such field; did you mean labels?"),
        (
            {"partition": {"group": {"colum": "age"}}},
            "partition.group.colum: no such field; did you mean partition.group",
        ),
    ],
)
def test_a_field_that_is_like_one_is_told_which(wrong, meant):
    with pytest.raises(RecipeError) as caught:
        recipe_from(content(**wrong))
    assert any(problem.startswith(meant) for problem in caught.value.problems), caught.value.problems


def test_a_selector_that_is_like_one_is_told_which():
    assert only_problem_of(sequences={"selector": "survivl"}).endswith("did you mean survival?")


def test_labels_that_yaml_reads_as_booleans_are_refused_with_the_remedy(tmp_path):
    path = tmp_path / "recipe.yaml"
    text = "task: text-classification\nbase_model: m\ncolumns: {text: text}\nlabels: [%s]\n"
    path.write_text(text % "true, false")
    with pytest.raises(RecipeError, match="in quotes"):
        load_recipe(path)
    path.write_text(text % '"true", "false"')
    assert load_recipe(path).labels == ["true", "false"]


def test_a_recipe_is_read_by_the_core_schema_of_yaml(tmp_path):
    path = tmp_path / "recipe.yaml"
    labels = ["yes", "no", "on", "off", "y", "1:30", "1_000", "2024-01-01", "0b1", "1e5", "017", "0o7"]
    text = "task: text-classification\nbase_model: m\ncolumns: {text: text}\ntraining: {learning_rate: 1e-4}\n"
    path.write_text(f"{text}labels: [{', '.join(labels[:9])}, 017, 0o17, 0x1F]\n")
    read = load_recipe(path)
    assert read.labels == [*labels[:9], "17", "15", "31"]
    assert read.training.learning_rate == 1e-4
    # What s3t writes means the same by either version of YAML: a run's file, and recipes that are proposed.
    assert parse_yaml(to_yaml(labels)) == yaml.safe_load(to_yaml(labels)) == labels


NAMED = {
    "turned around": "{pos: 1, neg: 0}",
    "of ['a'] no label is text": "{a: [x], b: y}",
    "given twice, once as text": '{1: a, "1": b}',
    "is the same key as '1'": "{1: a, 0x1: b}",
    "no value that a record can have": "{~: a, 1: b}",
    "given twice, once more in line 4": "{1: a, 1: b}",
    "take label_names out": "{1: a, 2: b}\nlabel_names: {3: a}",
    "differ in blanks or Unicode form alone": '{"a b": x, "a  b": y}',
}


@pytest.mark.parametrize("problem", NAMED)
def test_a_mapping_of_labels_that_can_be_misread_is_refused(problem, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"task: text-classification\nbase_model: m\ncolumns: {{text: t}}\nlabels: {NAMED[problem]}\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert problem in caught.value.problems[0]


@pytest.mark.parametrize(
    "pair",
    [
        ("caf\u00e9", "cafe\u0301"),
        ("a b", "a  b"),
        ("a b", "a\u00a0b"),
        ("a", " a"),
        ("a", "a\u200b"),
        ("\u260e", "\u260e\ufe0f"),
    ],
)
def test_labels_that_look_alike_are_refused(pair):
    assert "differ in blanks or Unicode form alone" in only_problem_of(labels=[*pair, "c"])


def test_whole_numbers_are_labels_as_text_and_names_that_look_alike_may_stand_for_one_label():
    assert recipe_from(content(labels=[0, 1, 7])).labels == ["0", "1", "7"]
    names = {"a  b": "a b", "a\u00a0b": "a b"}
    assert recipe_from(content(labels=["a b", "c"], label_names=names)).label_names == names


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"labels": ["a"]}, "fewer than 2"),
        ({"labels": ["a", "b", "a"]}, "more than once"),
        ({"labels": None}, "labels: infer"),
        ({"task": "text-regression"}, "text-regression has no labels"),
        ({"task": "text-regression", "labels": "infer"}, "text-regression has no labels"),
        ({"columns": {"label": "label"}}, "needs columns.text"),
        ({"task": "image-classification", "columns": {"image": "i", "text": "t"}}, "columns.text does not apply"),
        ({"columns": {"text": "x", "text_pair": "x"}}, "text and text_pair both name"),
    ],
    ids=str,
)
def test_labels_and_columns_that_cannot_be_meant_are_refused(changes, reason):
    assert reason in only_problem_of(**changes)


@pytest.mark.parametrize("slices", [1, 4])
def test_the_budget_may_reach_the_number_of_orders_and_not_exceed_it(slices):
    orders = math.factorial(slices)
    assert recipe_from(content(partition={"slices": slices}, sequences={"budget": orders})).sequences.budget == orders
    problem = only_problem_of(partition={"slices": slices}, sequences={"budget": orders + 1})
    assert problem.startswith(f"sequences: budget {orders + 1} is not between 1 and {slices}! = {orders}")
    assert problem.endswith("choose one in between")


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        ({"init_lora_weights": "pissa_niter_16"}, "rewrites the base weights; use true or gaussian"),
        ({"init_lora_weights": "olora"}, "rewrites the base weights; use true or gaussian"),
        ({"init_lora_weights": "LoftQ"}, "rewrites the base weights; use true or gaussian"),
        ({"init_lora_weights": "eva"}, "fitted on the training data"),
        ({"init_lora_weights": "corda"}, "fitted on the training data"),
        ({"init_lora_weights": "something_new"}, "not on the list of inits known to be exact"),
        ({"init_lora_weights": False}, "not on the list of inits known to be exact"),
        ({"bias": "all"}, "base model's own biases"),
        ({"bias": "lora_only"}, "base model's own biases"),
        ({"modules_to_save": ["classifier"]}, "the task head is trained and stored per stage already"),
        ({"feedforward_modules": ["dense"]}, "belongs to IA3"),
        ({"kind": "ia3", "target_modules": ["query"], "feedforward_modules": ["dense"]}, "not among target_modules"),
    ],
    ids=str,
)
def test_what_is_not_exact_in_an_adapter_is_refused_saying_why(adapter, reason):
    problem = only_problem_of(adapter=adapter)
    assert all(part in problem for part in reason.split("; "))


def test_allowed_adapters_are_allowed():
    for init in (True, "gaussian"):
        allowed = {"init_lora_weights": init, "bias": "none", "modules_to_save": None, "use_dora": True}
        assert recipe_from(content(adapter=allowed)).adapter.init_lora_weights == init
    assert recipe_from(content(adapter={"kind": "ia3"})).adapter.kind == "ia3"


def test_the_salt_is_not_shown():
    recipe = recipe_from(content(partition={"salt": "hush-hush"}))
    assert "hush-hush" not in repr(recipe)
    assert "hush-hush" not in recipe.model_dump_json()


def test_a_relative_base_model_is_looked_for_beside_the_recipe(tmp_path, monkeypatch):
    folder = tmp_path / "recipes"
    (folder / "model").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content(base_model="model")))
    monkeypatch.chdir(tmp_path)
    assert load_recipe(Path("recipes/recipe.yaml")).base_model == str((folder / "model").resolve())
    (folder / "model").rmdir()
    assert load_recipe(Path("recipes/recipe.yaml")).base_model == "model"


def test_each_shard_is_told_its_own_prior():
    rows = [[0.5, 0.5], [0.25, 0.75]]
    told = recipe_from(content(partition={"shards": 2, "slices": 2}, sequences={"prior": rows})).settings()
    assert [setting.prior for setting in told] == [(0.5, 0.5), (0.25, 0.75)]
    same = recipe_from(content(partition={"shards": 2, "slices": 2}, sequences={"prior": rows[1]})).settings()
    assert [setting.prior for setting in same] == [(0.25, 0.75)] * 2


def test_a_declared_group_is_the_prior_of_every_shard():
    group = {"column": "age", "slices": {"young": [0], "old": [1, 2]}, "deletion": {"young": 0.3, "old": 0.15}}
    split = {"shards": 2, "slices": 3, "group": group}
    assert [setting.prior for setting in recipe_from(content(partition=split)).settings()] == [(0.5, 0.25, 0.25)] * 2
    problem = only_problem_of(partition=split, sequences={"prior": [0.2, 0.3, 0.5]})
    assert problem.startswith("sequences.prior: the prior follows from partition.group.deletion")


@pytest.mark.parametrize(
    ("sequences", "problem"),
    [
        ({"prior": [0.5, 0.4]}, "sums to 0.9, not to 1"),
        ({"prior": [[0.5, 0.5]]}, "1 rows for 2 shards"),
        ({"values": [2, 1]}, "falls at F(2)"),
        ({"selector": "full", "budget": 1}, "set the budget to 2"),
    ],
)
def test_what_no_orders_can_be_chosen_from_is_a_problem_of_the_recipe(sequences, problem):
    assert problem in only_problem_of(partition={"shards": 2, "slices": 2}, sequences=sequences)


def test_full_takes_every_order_unless_told_otherwise():
    assert recipe_from(content(partition={"slices": 3}, sequences={"selector": "full"})).budget == 6


@pytest.mark.parametrize(
    ("sequences", "problem"),
    [
        ({"budget": True}, "sequences.budget: True is no number"),
        ({"prior": ["0.5", "0.5"]}, "sequences.prior: '0.5' is no number"),
        ({"horizon": [True]}, "sequences.horizon: True is no number"),
    ],
)
def test_booleans_and_texts_are_no_numbers(sequences, problem):
    assert only_problem_of(partition={"shards": 2, "slices": 2}, sequences=sequences) == problem


BAD_YAML = {
    "nested too deeply": "task: " + "[" * 2000 + "]" * 2000,
    "aliases": "\n".join(
        ["a0: &a0 [1.0]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)), "prior: *a9"]
    ),
    "an alias of itself": "labels: &x [*x]",
    "a date that cannot be": "task: !!timestamp 2024-99-99",
    "is not YAML": '!!int ""',
    "is not YAML: ": "!!timestamp soon",
    "a number or a date": "task: " + "7" * 5000,
    "holds no fields": "- a\n- b\n",
    "'budget' is given twice": "task: text-classification\nsequences: {budget: 1, budget: 2}\n",
    "not UTF-8 text": b"task: \xff",
}


@pytest.mark.parametrize("what", BAD_YAML)
def test_a_file_that_makes_no_recipe_is_refused_in_a_sentence(what, tmp_path):
    content = BAD_YAML[what]
    (tmp_path / "recipe.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / "recipe.yaml")
    assert caught.value.where == str(tmp_path / "recipe.yaml")
    (problem,) = caught.value.problems
    assert {"an alias of itself": "aliases"}.get(what, what).replace(":  ", ": ").strip(": ") in problem


def test_an_alias_that_names_a_value_is_taken(tmp_path):
    fields = "task: text-classification\nbase_model: m\nlabels: [a, b]\ncolumns: {id: &x id, text: t, label: l}\n"
    (tmp_path / "recipe.yaml").write_text(f"{fields}revision: *x\n")
    assert load_recipe(tmp_path / "recipe.yaml").revision == "id"


def test_a_recipe_that_is_far_too_long_or_no_file_is_not_read(tmp_path, monkeypatch):
    with pytest.raises(RecipeError, match=r"nowhere\.yaml.*\n.*check the path"):
        load_recipe(tmp_path / "nowhere.yaml")
    with pytest.raises(RecipeError, match="no regular file"):
        load_recipe("/dev/zero")
    monkeypatch.setattr("s3t.recipe.loading.MOST_BYTES", 10**6)
    (tmp_path / "recipe.yaml").write_text("#" * (10**6 + 1))
    with pytest.raises(RecipeError, match="longer than 1 MB"):
        load_recipe(tmp_path / "recipe.yaml")
