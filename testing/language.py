"""Tiny language models of every decoder's kind, their tables and recipes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from s3t.models.encoders import TRIAL_TEXTS
from testing.tiny import SALT, WORDS

CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }} </s> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
"""Chat template of the tiny tokenizer."""

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"]
VOCABULARY = [*SPECIAL, *WORDS]

_TRIAL = TRIAL_TEXTS[-1].split()
"""Words of the texts that s3t tries a model with; to most tokenizers here they are unknown."""

_SIZES: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "max_position_embeddings": 48,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
_GROUPED = {"num_key_value_heads": 1, "head_dim": 4}

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", _GROUPED),
    "llama-tied": ("LlamaConfig", _GROUPED | {"tie_word_embeddings": True}),
    "mistral": ("MistralConfig", _GROUPED | {"sliding_window": 8}),
    "qwen2": ("Qwen2Config", {"num_key_value_heads": 1, "vocab_size": len(VOCABULARY) + len(_TRIAL)}),
    "qwen3": ("Qwen3Config", _GROUPED),
    "gemma2": ("Gemma2Config", _GROUPED | {"sliding_window": 8}),
    "gemma3": ("Gemma3TextConfig", _GROUPED | {"sliding_window": 8}),
    "gpt2": ("GPT2Config", {}),
    "gpt-neox": ("GPTNeoXConfig", {}),
    "phi": ("PhiConfig", {}),
    "phi3": ("Phi3Config", {}),
    "olmo": ("OlmoConfig", {}),
    "olmo2": ("Olmo2Config", {}),
    "falcon": ("FalconConfig", {}),
    "opt": ("OPTConfig", {"ffn_dim": 16, "word_embed_proj_dim": 8}),
    "openai-gpt": ("OpenAIGPTConfig", {}),
    "nanochat": ("NanoChatConfig", _GROUPED),
    "mixtral": ("MixtralConfig", _GROUPED | {"num_local_experts": 4}),
    "phimoe": ("PhimoeConfig", _GROUPED | {"num_local_experts": 4}),
}
"""Configuration class of each decoder, and what it needs besides the sizes."""
STATEFUL: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3.5": (
        "Qwen3_5TextConfig",
        _GROUPED
        | {
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
            **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 4),
        },
    ),
    "lfm2": ("Lfm2Config", {"num_key_value_heads": 1, "layer_types": ["conv", "full_attention", "conv"]}),
    "mamba": ("MambaConfig", {"state_size": 4}),
    "mamba2": (
        "Mamba2Config",
        {"state_size": 4, "num_heads": 4, "head_dim": 4, "expand": 2, "n_groups": 1, "chunk_size": 4},
    ),
    "rwkv": ("RwkvConfig", {"attention_hidden_size": 8}),
}
"""The same of models with layers that keep states instead of keys and values, or beside them."""


def make_language_model(folder: Path, *, kind: str = "llama", layers: int = 3, chat: bool = True, **sizes: int) -> Path:
    """A language model with random weights, and a tokenizer of words.

    Args:
        sizes: fields of the configuration that replace the kind's.
    """
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(VOCABULARY)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    if chat:
        wrapped.chat_template = CHAT
    if kind == "qwen2":  # transformers loads its own byte-level tokenizer, which knows no words but added ones
        wrapped.add_tokens([AddedToken(word, single_word=True) for word in (*WORDS, *_TRIAL)])
    transformers.utils.logging.disable_progress_bar()
    wrapped.save_pretrained(folder)
    name, more = (DECODERS | STATEFUL)[kind]
    config = getattr(transformers, name)(**{**_SIZES, "num_hidden_layers": layers, **more, **sizes})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def prompt_table(count: int = 24, *, seed: int = 0) -> pd.DataFrame:
    """Prompts of 1 to 5 words and completions of 1 to 6; the last has the longest completion, of words of its own."""
    rng = random.Random(seed)
    rows = [
        {
            "id": f"r{number}",
            "person": f"p{number // 3}",
            "prompt": " ".join(rng.choice(WORDS[:10]) for _ in range(rng.randint(1, 5))),
            "completion": " ".join(rng.choice(WORDS[10:30]) for _ in range(rng.randint(1, 6))),
        }
        for number in range(count)
    ]
    rows[-1]["completion"] = " ".join(WORDS[28:40])
    return pd.DataFrame(rows)


def chat_table(count: int = 24, *, seed: int = 0) -> pd.DataFrame:
    """The same as chats; every third has two questions."""
    table = prompt_table(count, seed=seed)
    chats: list[Any] = []
    for number, row in enumerate(table.itertuples()):
        chat = [{"role": "user", "content": row.prompt}, {"role": "assistant", "content": row.completion}]
        chats.append(chat * 2 if number % 3 == 0 else chat)
    return table[["id", "person"]].assign(messages=chats)


def language_recipe(model: Path | str, **changes: Any) -> dict[str, Any]:
    """A recipe of 2 shards, 3 slices, 3 orders; `changes` replace fields, mappings field by field."""
    content: dict[str, Any] = {
        "task": "causal-lm",
        "base_model": str(model),
        "columns": {"id": "id", "prompt": "prompt", "completion": "completion"},
        "partition": {"shards": 2, "slices": 3, "salt": SALT},
        "sequences": {"budget": 3, "selector": "cyclic"},
        "adapter": {"rank": 2, "alpha": 4},
        "language": {"max_length": 24},
        "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.02, "precision": "float32"},
    }
    for name, value in changes.items():
        old = content.get(name)
        content[name] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
    return content
