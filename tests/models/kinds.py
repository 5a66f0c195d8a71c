"""Architectures, tiny and with random weights."""

import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModel

from s3t.errors import RecipeError
from s3t.models.assembly import assemble, check_assembly
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from testing import tiny

SMALL = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
TEXT = {
    "roberta": SMALL | {"max_position_embeddings": 26, "pad_token_id": 0},
    "distilbert": {"dim": 8, "n_layers": 3, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 24},
    "electra": SMALL | {"embedding_size": 8, "max_position_embeddings": 24},
    "deberta-v2": SMALL | {"max_position_embeddings": 24, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
}
LLAMA = SMALL | {"num_key_value_heads": 2, "max_position_embeddings": 24}
MODERN = SMALL | {"max_position_embeddings": 24, "pad_token_id": 0}
KINDS = TEXT | {
    "bert": None,
    "llama": LLAMA,
    "modernbert": MODERN,
    "electra, projecting": TEXT["electra"] | {"embedding_size": 4},
    "deberta-v2, convolution": TEXT["deberta-v2"] | {"conv_kernel_size": 3},
    "vit": None,
}
"""Fields of a configuration; the tiny models of all tests are bert and vit."""


def model_of_kind(kind, text_model, folder, auto=AutoModel, **settings):
    """A checkpoint with the tokenizer of the tiny text model."""
    shutil.copytree(text_model, folder)
    (folder / "model.safetensors").unlink()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        auto.from_config(AutoConfig.for_model(kind, vocab_size=44, **settings)).save_pretrained(folder)
    return folder


def recipe_of(folder, **changes):
    return recipe_from(tiny.recipe(folder, **changes))


def assembled(folder, *, kind="text", **changes):
    """A model with a drawn head, its encoder, and encoded records of several lengths."""
    recipe = recipe_of(folder, kind=kind, **changes)
    model, encoder = assemble(folder, recipe, labels=3)
    model.reset_head(seed=0)
    table = tiny.text_table() if kind == "text" else tiny.image_table()
    return model, encoder, encoder.encode(ingest(table, recipe).rows)


def problems_of(folder, recipe=None, **changes):
    """What is wrong with a recipe of that model, or with this one."""
    with pytest.raises(RecipeError) as caught:
        check_assembly(folder, recipe_of(folder, **changes) if recipe is None else recipe_from(recipe))
    return " | ".join(caught.value.problems)
