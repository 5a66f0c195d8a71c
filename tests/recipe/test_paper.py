"""The recipes of the paper's table of hyper-parameters load, say what it says, and fit models of the true depth."""

from pathlib import Path

import pyarrow as pa
import pytest
from transformers import RobertaConfig, ViTConfig

from s3t.models.base import check_model
from s3t.recipe import load_recipe

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
# Slices, layers a slice, rank, alpha, learning rate, epochs: the table, but for the slices of RTE, which it has 8 of.
TABLE = {
    "sst2": (7, 3, 16, 32, 1e-5, 10),
    "cola": (7, 2, 8, 16, 4e-4, 30),
    "stsb": (7, 3, 16, 32, 1e-4, 30),
    "qnli": (7, 3, 8, 16, 5e-5, 30),
    "qqp": (7, 3, 16, 32, 5e-5, 30),
    "mrpc": (7, 3, 16, 32, 5e-5, 30),
    "mnli": (7, 3, 16, 32, 1e-4, 30),
    "rte": (6, 4, 16, 32, 1e-5, 30),
    "wic": (12, 2, 16, 32, 1e-4, 30),
    "cb": (12, 2, 16, 32, 1e-4, 30),
    "copa": (12, 2, 32, 64, 1e-5, 30),
    "boolq": (7, 3, 16, 32, 1e-4, 30),
    "multirc": (7, 3, 16, 32, 1e-4, 30),
    "cifar10": (6, 2, 16, 32, 2e-3, 15),
    "cifar100": (6, 2, 16, 32, 2e-3, 15),
    "tiny-imagenet": (6, 4, 16, 32, 2e-3, 15),
}
NARROW = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
MODELS = {
    "FacebookAI/roberta-large": RobertaConfig(
        num_hidden_layers=24, vocab_size=50, max_position_embeddings=514, **NARROW
    ),
    "google/vit-base-patch16-224-in21k": ViTConfig(num_hidden_layers=12, **NARROW),
    "google/vit-large-patch16-224-in21k": ViTConfig(num_hidden_layers=24, **NARROW),
}


def test_there_is_a_recipe_for_every_row_and_no_other():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_a_recipe_is_the_papers_and_fits_a_model_of_that_depth(name, tmp_path):
    recipe = load_recipe(FOLDER / f"{name}.yaml")
    adapter, training = recipe.adapter, recipe.training
    told = (recipe.partition.slices, adapter.layers_per_slice, adapter.rank, adapter.alpha)
    assert (*told, training.learning_rate, training.epochs) == TABLE[name]
    assert training.precision == "float32"  # "full-precision training"
    MODELS[recipe.base_model].save_pretrained(tmp_path)
    check_model(tmp_path, recipe)


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_all_classes_are_declared(name, classes):
    assert len(load_recipe(FOLDER / f"{name}.yaml").labels) == classes


def test_columns_are_those_of_the_data_sets():
    row = {
        "wic": {"word": "w", "sentence1": "a", "sentence2": "b", "label": "True"},
        "copa": {"premise": "p", "question": "cause", "choice1": "a", "choice2": "b", "label": "choice1"},
        "multirc": {"paragraph": "p", "question": "q", "answer": "a", "label": "False"},
    }
    from s3t.records.ingest import ingest

    made = {
        name: ingest(pa.Table.from_pylist([columns]), load_recipe(FOLDER / f"{name}.yaml")).rows.to_pylist()[0]
        for name, columns in row.items()
    }
    texts = {name: (found["text"], found["text_pair"]) for name, found in made.items()}
    assert texts == {
        "wic": ("w: a", "b"),
        "copa": ("p What was the cause?", "a or b"),
        "multirc": ("p", "q a"),
    }
