"""The recipes of the paper's table read data as people have it: the hub's columns, labels as numbers, and by name."""

import json
import lzma
from pathlib import Path

import pandas as pd
import pytest

from s3t.errors import DataError, RecipeError
from s3t.recipe import load_recipe, recipe_from
from s3t.records.ingest import ingest
from testing import tiny

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
IMAGE = tiny.png([[0, 255], [255, 0]])
SENTENCES = {"sentence1": "a", "sentence2": "b"}
ENTAILED = {"premise": "a", "hypothesis": "b"}
# A record as the hub has it, and its labels in the order of their numbers.
HUB = {
    "boolq": ({"question": "is it", "passage": "it is", "idx": 0}, ["False", "True"]),
    "cb": (ENTAILED | {"idx": 0}, ["entailment", "contradiction", "neutral"]),
    "cifar10": ({"img": {"bytes": IMAGE, "path": None}}, None),
    "cifar100": ({"img": {"bytes": IMAGE, "path": None}, "coarse_label": 3}, None),
    "cola": ({"sentence": "a", "idx": 0}, ["unacceptable", "acceptable"]),
    "copa": ({"premise": "p", "choice1": "a", "choice2": "b", "question": "cause", "idx": 0}, ["choice1", "choice2"]),
    "mnli": (ENTAILED | {"idx": 0}, ["entailment", "neutral", "contradiction"]),
    "mrpc": (SENTENCES | {"idx": 0}, ["not_equivalent", "equivalent"]),
    "multirc": ({"paragraph": "p", "question": "q", "answer": "a", "idx": {"answer": 0}}, ["False", "True"]),
    "qnli": ({"question": "a", "sentence": "b", "idx": 0}, ["entailment", "not_entailment"]),
    "qqp": ({"question1": "a", "question2": "b", "idx": 0}, ["not_duplicate", "duplicate"]),
    "rte": (ENTAILED | {"idx": 0}, ["entailment", "not_entailment"]),
    "sst2": ({"sentence": "a", "idx": 0}, ["negative", "positive"]),
    "stsb": (SENTENCES | {"idx": 0}, None),
    "tiny-imagenet": ({"image": {"bytes": IMAGE, "path": None}}, None),
    "wic": (SENTENCES | {"word": "w", "start1": 0, "end1": 1, "start2": 0, "end2": 1}, ["False", "True"]),
}
TEXTS = {"wic": ("w: a", "b"), "copa": ("p What was the cause?", "a or b"), "multirc": ("p", "q a")}
"""What templates make of them."""
LANGUAGE = ["llama2-7b", "llama2-13b", "llama3-8b"]
ALPACA = [
    {"instruction": "Name it.", "input": "a cat", "output": "Tom", "text": "unused"},
    {"instruction": "Name {one}.", "input": "", "output": "Tom", "text": "unused"},
]
# In the folder of real data: the file, and what its columns are called in the recipe.
REAL = {
    "sst2": ("sst2/sst2.parquet", {}),
    "cola": ("cola/cola.parquet", {}),
    "rte": ("rte/rte.parquet", {"sentence1": "premise", "sentence2": "hypothesis"}),
    "stsb": ("stsb/stsb.parquet", {"score": "label"}),
    "cb": ("cb/cb.parquet", {}),
    "copa": ("copa/copa.parquet", {}),
    "cifar10": ("cifar10/test_jpegq75_full.parquet", {"image": "img"}),
    "cifar100": ("cifar100/cifar100_test_jpegq75_transcoded.parquet", {"image": "img", "label": "fine_label"}),
}


@pytest.mark.parametrize("name", HUB)
def test_labels_are_read_as_the_hub_counts_them_and_by_name(name, tmp_path):
    recipe = load_recipe(FOLDER / f"{name}.yaml")
    features, labels = HUB[name]
    declared = recipe.labels if isinstance(recipe.labels, list) else None
    assert labels is None or declared == labels
    count = 2 if declared is None else len(declared)
    table = pd.DataFrame([features | {recipe.columns.label: number} for number in range(count)])
    table.to_parquet(tmp_path / "hub.parquet")
    found = ingest(tmp_path / "hub.parquet", recipe)
    wanted = declared or (["0", "1"] if recipe.task.target.has_labels else [0.0, 1.0])
    assert found.rows["label"].to_pylist() == wanted
    if name in TEXTS:
        assert (found.rows["text"][0].as_py(), found.rows["text_pair"][0].as_py()) == TEXTS[name]
    if declared is not None:
        table[recipe.columns.label] = declared
        assert ingest(table, recipe).rows.equals(found.rows)


@pytest.mark.parametrize("name", LANGUAGE)
def test_records_of_alpaca_take_the_template_of_theirs(name):
    found = ingest(pd.DataFrame(ALPACA), load_recipe(FOLDER / f"{name}.yaml")).rows
    task = "Below is an instruction that describes a task"
    asked = "Write a response that appropriately completes the request.\n\n### Instruction:\n"
    given = f"{task}, paired with an input that provides further context. {asked}Name it.\n\n### Input:\na cat"
    without = f"{task}. {asked}Name {{one}}."
    assert found["prompt"].to_pylist() == [f"{prompt}\n\n### Response:" for prompt in (given, without)]
    assert found["completion"].to_pylist() == ["Tom", "Tom"]


def test_of_alpaca_all_but_the_records_without_output_are_read(real_data):
    table = pd.DataFrame(json.loads(lzma.decompress((real_data / "alpaca" / "alpaca_data.json.xz").read_bytes())))
    recipe = load_recipe(FOLDER / "llama2-7b.yaml")
    with pytest.raises(DataError, match=r"and 18 more: column 'output' is empty or blank"):
        ingest(table, recipe)
    filled = table[table.output.str.strip() != ""]
    assert len(table) - len(filled) == 28
    assert ingest(filled, recipe).rows.num_rows == len(filled)


@pytest.mark.parametrize(("name", "suffix"), [("boolq", "jsonl"), ("wic", "csv"), ("multirc", "parquet")])
def test_booleans_are_labels(name, suffix, tmp_path):
    recipe = load_recipe(FOLDER / f"{name}.yaml")
    features = {key: value for key, value in HUB[name][0].items() if key != "idx"}
    table = pd.DataFrame([features | {"label": label} for label in (False, True)])
    path = tmp_path / f"data.{suffix}"
    if suffix == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        getattr(table, f"to_{suffix}")(path, index=False)
    assert ingest(path, recipe).rows["label"].to_pylist() == ["False", "True"]


@pytest.mark.parametrize("name", REAL)
def test_real_data_is_read(name, real_data):
    recipe = load_recipe(FOLDER / f"{name}.yaml")
    path, columns = REAL[name]
    table = pd.read_parquet(real_data / path).rename(columns=columns)
    if "split" in table:
        table = table[table.split != "test"]  # some have no labels
    table = table.groupby(recipe.columns.label, group_keys=False).head(3)
    found = ingest(table, recipe)
    assert found.rows.num_rows == len(table) > 5
    if isinstance(recipe.labels, list):
        assert set(found.rows["label"].to_pylist()) == set(recipe.labels)


def made(**changes):
    fields = {"task": "text-classification", "base_model": "m", "columns": {"text": "t"}}
    return recipe_from(fields | changes)


def test_a_mapping_of_labels_is_kept_as_labels_and_names():
    recipe = made(labels={0: "negative", 1: "positive", -2: "negative"})
    assert recipe.labels == ["negative", "positive"]
    assert recipe.label_names == {"0": "negative", "1": "positive", "-2": "negative"}
    assert recipe_from(recipe.model_dump(mode="json")) == recipe


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"labels": ["a", "b"], "label_names": {"0": "c"}}, "['c'] are not among the labels"),
        ({"labels": ["a", "b"], "label_names": {"a": "b"}}, "['a'] are labels themselves"),
        ({"labels": "infer", "label_names": {"0": "a"}}, "declare the labels that it names"),
        ({"task": "text-regression", "label_names": {"0": "a"}}, "text-regression has no labels"),
    ],
)
def test_names_that_do_not_fit_the_labels_are_refused(fields, problem):
    with pytest.raises(RecipeError) as caught:
        made(**fields)
    assert any(problem in line for line in caught.value.problems), caught.value.problems


def test_groups_by_label_go_by_its_name():
    group = {"column": "label", "slices": {"no": [0], "yes": [1]}, "deletion": {"no": 0.5, "yes": 0.5}}
    recipe = made(labels={0: "no", 1: "yes"}, partition={"shards": 1, "slices": 2, "group": group})
    found = ingest(pd.DataFrame({"t": ["a", "b"], "label": [0, 1]}), recipe)
    assert found.among == [(0,), (1,)]
