"""Architectures, tiny and with random weights."""

import shutil

import torch
from transformers import AutoConfig, AutoModel

SMALL = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
TEXT = {
    "roberta": SMALL | {"max_position_embeddings": 26, "pad_token_id": 0},
    "distilbert": {"dim": 8, "n_layers": 3, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 24},
    "electra": SMALL | {"embedding_size": 8, "max_position_embeddings": 24},
    "deberta-v2": SMALL | {"max_position_embeddings": 24, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
}
LLAMA = SMALL | {"num_key_value_heads": 2, "max_position_embeddings": 24}


def model_of_kind(kind, text_model, folder, auto=AutoModel, **settings):
    """A checkpoint with the tokenizer of the tiny text model."""
    shutil.copytree(text_model, folder)
    (folder / "model.safetensors").unlink()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        auto.from_config(AutoConfig.for_model(kind, vocab_size=44, **settings)).save_pretrained(folder)
    return folder
