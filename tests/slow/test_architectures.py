"""Every architecture of the table in docs/models.md, tiny and with random weights, through a whole run.

`python -m tests.slow.test_architectures` writes the table anew; the test compares.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification
from transformers import AutoModelForSequenceClassification as AutoModelForTexts

import s3t
from testing import tiny
from testing.language import language_recipe, make_language_model, prompt_table
from tests.export.loaded import assert_equal_logits, load
from tests.export.test_language import assert_equal_likelihoods

TABLE = Path(__file__).parents[2] / "docs" / "models.md"
HEAD = """# Models

Each architecture was made tiny, with random weights, and taken through a run by
`python -m tests.slow.test_architectures`, which wrote this table. `make test-slow` compares.

*Passes*: it trains; the export under PEFT gives the run's numbers; a language model writes what passes of a whole text
give. *Writes* is [`prediction.writing`](recipe.md#prediction). Else `init` refuses it, with the reason given.

| architecture | task | outcome | writes |
|---|---|---|---|
"""

SIZES: dict[str, Any] = {
    **{"vocab_size": 47, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2},
    **{"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 48, "initializer_range": 0.3},
    **{"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "ffn_dim": 32, "word_embed_proj_dim": 16},
    **{"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 48, "n_inner": 32, "d_model": 16, "n_heads": 2},
    **{"n_layers": 3, "dim": 16, "hidden_dim": 32, "embedding_size": 16, "sliding_window": 8, "rotary_dim": 4},
    **{"num_experts": 2, "num_local_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8},
    **{"state_size": 4, "num_heads": 4, "n_groups": 1, "chunk_size": 4, "lru_width": 16, "attention_hidden_size": 16},
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8},
    **{"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 4},
    **{"mamba_d_ssm": 32, "mamba_expand": 2, "image_size": 4, "patch_size": 2, "num_channels": 1},
}
"""Of every configuration, those of these fields that it has."""


def _plain(names: str) -> dict[str, dict[str, Any]]:
    """Architectures that need no other field."""
    return {name: {} for name in names.split()}


HYBRID = ["linear_attention", "full_attention", "linear_attention"]
TASKS: dict[str, dict[str, dict[str, Any]]] = {
    "causal-lm": _plain(
        """apertus arcee biogpt bitnet bloom cohere cohere2 exaone4 falcon falcon_mamba falcon_h1 gemma gemma2
        gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neox gpt_neox_japanese granite helium hunyuan_v1_dense
        jais2 llama mamba mamba2 ministral mistral mixtral mpt nemotron olmo olmo2 olmo3 olmoe opt persimmon
        phi phi3 phimoe qwen2 qwen3 qwen3_moe recurrent_gemma rwkv seed_oss smollm3 stablelm starcoder2
        vaultgemma xglm"""
    )
    | {
        "bamba": {"attn_layer_indices": [1], "layer_types": ["mamba", "attention", "mamba"]},
        "codegen": {"n_head": 4, "n_embd": 32},
        "gpt_neo": {"attention_types": [[["global", "local", "global"], 1]], "num_layers": 3, "num_heads": 2},
        "gptj": {},
        "lfm2": {"layer_types": ["conv", "full_attention", "conv"]},
        "olmo_hybrid": {"layer_types": HYBRID},
        "qwen3_5_text": {"layer_types": HYBRID},
        "qwen3_next": {"layer_types": HYBRID},
    },
    "text-classification": _plain(
        """albert bert big_bird camembert convbert deberta deberta-v2 distilbert electra ernie fnet funnel gpt2
        layoutlm llama mobilebert modernbert mpnet nystromformer opt qwen2 rembert roberta roformer
        squeezebert xlm-roberta xlnet yoso"""
    ),
    "image-classification": _plain("""beit deit dinov2 ijepa vit vit_msn"""),
}
AUTO = {
    "causal-lm": AutoModelForCausalLM,
    "text-classification": AutoModelForTexts,
    "image-classification": AutoModelForImageClassification,
}
SHAPE = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}, "training": {"epochs": 1}}


def base(kind: str, task: str, folder: Path) -> Path:
    """A checkpoint with random weights, and a tokenizer of words."""
    if task == "causal-lm":
        make_language_model(folder, chat=False)
    elif task == "text-classification":
        tiny.make_text_model(folder)
    own = AutoConfig.for_model(kind)
    known = {*own.to_dict(), *getattr(own, "attribute_map", {})}
    given = {name: value for name, value in SIZES.items() if name in known} | TASKS[task][kind]
    (folder / "model.safetensors").unlink(missing_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AUTO[task].from_config(AutoConfig.for_model(kind, **given)).save_pretrained(folder)
    return folder


def outcome(kind: str, task: str, room: Path) -> tuple[str, str]:
    """(Passes, or the reason of a refusal; how it writes)."""
    model = base(kind, task, room / "model")
    if task == "causal-lm":
        table, recipe = prompt_table(12), language_recipe(model, **SHAPE)
    elif task == "text-classification":
        table, recipe = tiny.text_table(12), tiny.recipe(model, **SHAPE)
    else:
        table, recipe = tiny.image_table(12), tiny.recipe(model, kind="image", **SHAPE)
    if "mamba" in kind:  # PEFT refuses their other modules
        recipe["adapter"] = recipe["adapter"] | {"target_modules": ["in_proj"]}
    try:
        run = s3t.Run.create(room / "run", recipe=recipe, data=table)
    except s3t.InputError as error:
        return error.problems[0].replace(str(model), "its folder"), ""
    with run:
        run.train()
        (export,) = run.export(room / "out").exports
        if task != "causal-lm":
            assert_equal_logits(export.path, run, table)
            return "passes", ""
        assert_equal_likelihoods(export.path, run)
        prompts = ["w1 w2 w3 w4 w5", "w6", "w7 w8"]
        written = run.generate(prompts, max_new_tokens=8)
        assert_texts_of_whole_passes(load(export.path, "AutoModelForCausalLM"), run, prompts, written.texts)
        return "passes", run.recipe.prediction.writing


def assert_texts_of_whole_passes(model: Any, run: s3t.Run, prompts: list[str], texts: tuple[str, ...]) -> None:
    """The likeliest texts after prompts are those that passes of whole texts give, without a cache."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.recipe.base_model)
    for prompt, text in zip(prompts, texts, strict=True):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        begun = ids.shape[1]
        with torch.no_grad():
            while ids.shape[1] < begun + 8 and (ids.shape[1] == begun or ids[0, -1] != tokenizer.eos_token_id):
                following = model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)
                ids = torch.cat([ids, following], dim=1)
        assert tokenizer.decode(ids[0, begun:], skip_special_tokens=True) == text


def row(kind: str, task: str) -> str:
    with tempfile.TemporaryDirectory() as room:
        found, writes = outcome(kind, task, Path(room))
    return f"| {kind} | {task} | {found.replace('|', '/')} | {writes} |"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("kind", "task"), [(kind, task) for task, kinds in TASKS.items() for kind in kinds])
def test_an_architecture_is_as_the_table_says(kind, task):
    assert row(kind, task) in TABLE.read_text().splitlines()


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    rows = []
    for task, kinds in TASKS.items():
        for kind in sorted(kinds):
            try:
                rows.append(row(kind, task))
            except Exception as error:  # to be mended or refused
                rows.append(
                    f"| {kind} | {task} | FAILS {type(error).__name__}: {' '.join(str(error).split())[:200]} | |"
                )
            print(rows[-1], flush=True)
    TABLE.write_text(HEAD + "\n".join(rows) + "\n")
