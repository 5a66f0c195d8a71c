"""The lists of docs/models.md: architectures, tiny and with random weights, each through a whole run.

`python -m tests.slow.test_architectures` writes the lists anew; the test compares them architecture by architecture.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

import s3t
from testing import tiny
from testing.language import language_recipe, make_language_model, prompt_table
from tests.export.loaded import assert_equal_logits, load, quietly
from tests.export.test_language import assert_equal_likelihoods

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
TEXTS, WORDS, IMAGES = "causal-lm", "text-classification", "image-classification"
CLASSES = {
    TEXTS: "AutoModelForCausalLM",
    WORDS: "AutoModelForSequenceClassification",
    IMAGES: "AutoModelForImageClassification",
}

SIZES: dict[str, Any] = {
    **{"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2},
    **{"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 48, "initializer_range": 0.3},
    **{"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "ffn_dim": 32, "word_embed_proj_dim": 16},
    **{"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 48, "n_inner": 32, "d_model": 16, "n_heads": 2},
    **{"n_layers": 3, "dim": 16, "hidden_dim": 32, "embedding_size": 16, "sliding_window": 8, "rotary_dim": 4},
    **{"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "moe_num_experts": 4, "n_group": 1},
    **{"topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4},
    **{"qk_nope_head_dim": 4, "v_head_dim": 8, "num_heads": 4, "n_groups": 1, "chunk_size": 4, "state_size": 4},
    **{"lru_width": 16, "attention_hidden_size": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 2},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 8, "mamba_n_heads": 4, "mamba_d_head": 8},
    **{"mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 4, "mamba_d_ssm": 32, "mamba_expand": 2},
    **{"image_size": 4, "patch_size": 2, "num_channels": 1, "d_kv": 8, "d_ff": 32, "num_layers": 3, "max_seq_len": 48},
}
"""Of these fields a configuration gets those that it has."""
MODULES = {
    "falcon_h1 falcon_mamba mamba mamba2": ["in_proj"],
    "dots1 ernie4_5_moe glm4_moe hunyuan_v1_moe": ["q_proj", "v_proj"],
    "deepseek_v2 deepseek_v3": ["q_b_proj", "kv_b_proj"],
    "bamba": ["in_proj", "q_proj"],
    "nemotron_h": ["in_proj", "q_proj", "up_proj"],
    "qwen3_next": ["in_proj_qkvz", "q_proj"],
}
"""`adapter.target_modules` where `all-linear` does not do: PEFT refuses Mamba's other modules, and takes names of a
mixture's other modules for its experts."""
HYBRID = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
CONVOLUTIONS = {"layer_types": ["conv", "full_attention", "conv"]}
OTHER_SIZES: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "big_bird": {"attention_type": "original_full"},
    "codegen": {"hidden_size": 32, "num_attention_heads": 4, "rotary_dim": 8},
    "deepseek_v3": {"num_key_value_heads": 2, "head_dim": 4},
    "deit": {"architectures": ["DeiTForImageClassification"]},
    "dots1": {"n_shared_experts": 1},
    "gemma4_text": {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8},
    "gpt_neo": {"attention_types": [[["global", "local", "global"], 1]], "num_layers": 3, "num_heads": 2},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": CONVOLUTIONS,
    "lfm2_moe": CONVOLUTIONS | {"num_dense_layers": 1},
    "mobilebert": {"initializer_range": 0.02},  # it normalises nothing: larger weights give states of 1e11
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "mlp"], "mamba_num_heads": 4, "mamba_head_dim": 8}
    | {"ssm_state_size": 4, "n_groups": 1},
    "olmo_hybrid": HYBRID,
    "qwen3_5_moe_text": HYBRID,
    "qwen3_5_text": HYBRID,
    "qwen3_next": HYBRID,
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
}
SHAPE = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}, "training": {"epochs": 1}}


def make_model(kind: str, task: str, folder: Path) -> Path:
    """A checkpoint with random weights, and a tokenizer of words."""
    if task == TEXTS:
        # transformers reads Qwen's tokenizers as byte-level ones, which know no words but added ones.
        make_language_model(folder, chat=False, kind="qwen2" if kind.startswith(("qwen2", "qwen3_5")) else "llama")
    elif task == WORDS:
        tiny.make_text_model(folder)
    (folder / "model.safetensors").unlink(missing_ok=True)
    usual = AutoConfig.for_model(kind)
    fields = {*usual.to_dict(), *getattr(usual, "attribute_map", {})}
    sizes = {name: value for name, value in SIZES.items() if name in fields} | OTHER_SIZES.get(kind, {})
    with quietly(), torch.random.fork_rng():
        torch.manual_seed(0)
        auto = getattr(transformers, CLASSES[task])
        auto.from_config(AutoConfig.for_model(kind, **sizes)).save_pretrained(folder)
    return folder


def modules_of(kind: str) -> list[str]:
    return next((modules for kinds, modules in MODULES.items() if kind in kinds.split()), [])


def recipe_and_table(kind: str, task: str, model: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    modules = {"adapter": {"target_modules": modules_of(kind) or "all-linear"}}
    if task == TEXTS:
        return language_recipe(model, **SHAPE, **modules), prompt_table(12)
    image = task == IMAGES
    table = tiny.image_table(12) if image else tiny.text_table(12)
    return tiny.recipe(model, kind="image" if image else "text", **SHAPE, **modules), table


def assert_writes_what_whole_passes_give(export: Path, run: s3t.Run) -> None:
    """The likeliest texts of the run are the export's, token after token, each of a pass of the whole text."""
    tokenizer, model = AutoTokenizer.from_pretrained(run.recipe.base_model), load(export)
    prompts = ["w1 w2 w3 w4 w5", "w6", "w7 w8"]
    for prompt, text in zip(prompts, run.generate(prompts, max_new_tokens=8).texts, strict=True):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        begun = ids.shape[1]
        while ids.shape[1] < begun + 8 and (ids.shape[1] == begun or ids[0, -1] != tokenizer.eos_token_id):
            with torch.no_grad():
                following = model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, following], dim=1)
        assert tokenizer.decode(ids[0, begun:], skip_special_tokens=True) == text


def outcome(kind: str, task: str, folder: Path) -> str:
    """What a run of the architecture does, or why `init` refuses it."""
    model = make_model(kind, task, folder / "model")
    recipe, table = recipe_and_table(kind, task, model)
    modules = f", with {', '.join(modules_of(kind))}" if modules_of(kind) else ""
    try:
        run = s3t.Run.create(folder / "run", recipe=recipe, data=table)
    except s3t.InputError as error:
        reason = error.problems[0].removeprefix("base_model: ").partition(";")[0]
        return f"refused: {reason}".replace(str(model), "its folder")
    with run:
        run.train()
        (export,) = run.export(folder / "out").exports
        if task != TEXTS:
            assert_equal_logits(export.path, run, table)
            return f"passes{modules}"
        assert_equal_likelihoods(export.path, run)
        assert_writes_what_whole_passes_give(export.path, run)
        return f"passes, writes {run.recipe.prediction.writing}{modules}"


def told(task: str) -> dict[str, str]:
    """The outcome of each architecture, as the page has it."""
    section = PAGE.read_text().partition(f"\n## {task}\n")[2].partition("\n## ")[0]
    lists = re.findall(r"(?m)^- \*(.*)\*: (.*)$", section)
    return {kind: outcome for outcome, kinds in lists for kind in kinds.split(", ")}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of transformers' and PEFT's own code
@pytest.mark.parametrize(("kind", "task"), [(kind, task) for task in CLASSES for kind in sorted(told(task))])
def test_an_architecture_does_what_the_page_says(kind, task, tmp_path):
    assert outcome(kind, task, tmp_path) == told(task)[kind]


def write_lists() -> None:
    """Write the lists below what the page says of them. One whose architecture is new is first put into any of them."""
    page = PAGE.read_text().partition("\n## ")[0]
    for task, kinds in {task: sorted(told(task)) for task in CLASSES}.items():
        found: dict[str, list[str]] = {}
        for kind in kinds:
            with tempfile.TemporaryDirectory() as folder:
                found.setdefault(outcome(kind, task, Path(folder)), []).append(kind)
            print(task, kind, flush=True)
        page += f"\n## {task}\n\n" + "".join(f"- *{what}*: {', '.join(found[what])}\n" for what in sorted(found))
    PAGE.write_text(page)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_lists()
