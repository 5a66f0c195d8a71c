"""The recipes of the paper's table of hyper-parameters load, say what it says, and fit models of the true depth."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, RobertaConfig, ViTConfig

from s3t.models.base import check_model
from s3t.models.layers import block_modules, find_layers
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
    "llama2-7b": (4, 8, 32, 64, 2e-5, 3),
    "llama2-13b": (4, 10, 32, 64, 2e-5, 3),
    "llama3-8b": (4, 8, 32, 64, 2e-5, 3),
}
LANGUAGE = {  # parameters of the true model
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama3-8b": 8_030_261_248,
}
NARROW = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
WIDE = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 4096}
WIDER = {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "max_position_embeddings": 4096}
MODELS = {
    "FacebookAI/roberta-large": RobertaConfig(
        num_hidden_layers=24, vocab_size=50, max_position_embeddings=514, **NARROW
    ),
    "google/vit-base-patch16-224-in21k": ViTConfig(num_hidden_layers=12, **NARROW),
    "google/vit-large-patch16-224-in21k": ViTConfig(num_hidden_layers=24, **NARROW),
    # Of the true size: only the configuration is written, and its model has no values.
    "meta-llama/Llama-2-7b-hf": LlamaConfig(intermediate_size=11008, **WIDE),
    "meta-llama/Llama-2-13b-hf": LlamaConfig(intermediate_size=13824, **WIDER),
    "meta-llama/Meta-Llama-3-8B": LlamaConfig(
        vocab_size=128256, intermediate_size=14336, num_key_value_heads=8, **WIDE | {"max_position_embeddings": 8192}
    ),
}


def test_there_is_a_recipe_for_every_row_and_no_other():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_a_recipe_is_the_papers_and_fits_a_model_of_that_depth(name, tmp_path):
    recipe = load_recipe(FOLDER / f"{name}.yaml")
    adapter, training = recipe.adapter, recipe.training
    told = (recipe.partition.slices, adapter.layers_per_slice, adapter.rank, adapter.alpha)
    assert (*told, training.learning_rate, training.epochs) == TABLE[name]
    # "full-precision training for all settings except instruction tuning where we use 8-bit training"
    assert training.precision == ("bfloat16" if name in LANGUAGE else "float32")
    MODELS[recipe.base_model].save_pretrained(tmp_path)
    check_model(tmp_path, recipe)


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_llama_of_the_true_size_has_all_its_layers_and_linear_modules_in_blocks(name):
    recipe = load_recipe(FOLDER / f"{name}.yaml")
    with torch.device("meta"):
        model = LlamaForCausalLM(MODELS[recipe.base_model])
    assert model.num_parameters() == LANGUAGE[name]
    adapter = recipe.adapter
    layers = find_layers(model, model.config.num_hidden_layers)
    adapted = [name for block in range(1, 5) for name in block_modules(model, layers, adapter, block)]
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    assert sorted(adapted) == sorted(set(linear) - {"lm_head"})
    assert adapter.use_rslora  # the published code's choice


def test_all_classes_are_declared():
    counts = {name: len(load_recipe(FOLDER / f"{name}.yaml").labels) for name in ("cifar10", "cifar100")}
    assert counts == {"cifar10": 10, "cifar100": 100}
