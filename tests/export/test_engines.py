"""What vLLM and SGLang read of an adapter, by rules that were read in their sources, on adapters that are really made.

The engines themselves do not run here; `tests/slow/test_vllm.py` runs vLLM. `vllm_loads` says again, in the order of
vLLM 0.33's code, what it does with a folder; the package's own rules (`export/engines.py`) must agree with it.
"""

import json
import math

import pytest
from safetensors import safe_open

import s3t
from s3t.export.engines import VLLM_RANKS, engine_options, engine_problems
from s3t.export.peft import with_plain_scale
from testing import tiny
from testing.language import language_recipe, make_language_model, prompt_table
from tests.export.loaded import SMALL, assert_equal_logits
from tests.models.kinds import LLAMA, TEXT, model_of_kind
from tests.run.worlds import trained_run

TEXTS = ["w1 w2 w3", "w4", "w30 w31 w5 w6 w7"]


def parts_of(folder):
    with safe_open(folder / "adapter_model.safetensors", framework="numpy") as file:
        return json.loads((folder / "adapter_config.json").read_text()), list(file.keys())


def vllm_loads(folder, *, max_lora_rank=16):
    """The scale that vLLM would apply, and the module of each tensor.

    Raises:
        ValueError: it would refuse the folder.
    """
    config, names = parts_of(folder)
    rank, alpha, _ = config["r"], config["lora_alpha"], config["target_modules"]  # KeyError: required
    heads = config.get("modules_to_save") or []
    checks = {
        "rank": 0 < rank <= max_lora_rank and max_lora_rank in VLLM_RANKS,
        "heads": {*heads} <= {"score", "classifier"},
        "dora": not config.get("use_dora", False),
        "lora_bias": not config.get("lora_bias", False),
        "init": config.get("init_lora_weights", True) is True,
        "bias": config.get("bias", "none") == "none",
        "others": not any(config.get(name) for name in ("alora_invocation_tokens", "layer_replication", "use_qalora")),
    }
    if wrong := [name for name, passed in checks.items() if not passed]:
        raise ValueError(f"refused: {wrong}")
    modules = {}
    for name in names:
        *path, kind, leaf = name.removeprefix("base_model.model.").split(".")
        if leaf == "weight" and kind in ("lora_A", "lora_B"):
            modules[name] = ".".join(path)
        elif leaf in ("weight", "bias") and kind in ("score", "classifier"):
            modules[name] = kind
        else:
            raise ValueError(f"{name} is unsupported")
    if len({module for module in modules.values() if module in heads}) > 1:
        raise ValueError("one head alone")
    return alpha / (math.sqrt(rank) if config["use_rslora"] else rank), modules


def llama(text_model, folder, **adapter):
    model = model_of_kind("llama", text_model, folder / "model", **LLAMA)
    return trained_run(folder / "run", tiny.recipe(model, adapter=adapter, **SMALL), tiny.text_table())


@pytest.mark.integration
@pytest.mark.parametrize("adapter", [{}, {"use_rslora": True, "rank": 4}, {"rank": 20, "alpha": 5.5}])
def test_vllm_loads_a_decoder_with_a_score_head(text_model, tmp_path, adapter):
    with llama(text_model, tmp_path, **adapter) as run:
        report = run.export(tmp_path / "out", engine="vllm")
        folder = report.exports[0].path
        needed = 32 if run.recipe.adapter.rank > 16 else 16
        assert report.notices == (f"start vllm with --enable-lora{' --max-lora-rank 32' if needed == 32 else ''}",)
        scale, modules = vllm_loads(folder, max_lora_rank=needed)
        chosen, rank = run.recipe.adapter, run.recipe.adapter.rank
        assert scale == chosen.alpha / (math.sqrt(rank) if chosen.use_rslora else rank)
        config, _ = parts_of(folder)
        assert {*modules.values()} == {*config["target_modules"], "score"}
        assert_equal_logits(folder, run, TEXTS)
        if needed == 32:
            with pytest.raises(ValueError, match="rank"):
                vllm_loads(folder)


GATED = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
PLAIN = {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}
DECODERS = {"qwen2": ({"use_rslora": True, "rank": 4}, GATED), "gpt-neox": ({"rank": 20}, PLAIN)}
"""An adapter, and the last names of the modules that vLLM's own model of this kind has."""


@pytest.mark.parametrize("kind", DECODERS)
def test_vllm_loads_a_language_model_which_has_no_head(kind, tmp_path):
    adapter, names = DECODERS[kind]
    model = make_language_model(tmp_path / "model", kind=kind, layers=2)
    with trained_run(tmp_path / "run", language_recipe(model, adapter=adapter, **SMALL), prompt_table()) as run:
        (export,) = run.export(tmp_path / "out", engine="vllm").exports
        chosen, rank = run.recipe.adapter, run.recipe.adapter.rank
    scale, modules = vllm_loads(export.path, max_lora_rank=32)
    assert scale == chosen.alpha / (math.sqrt(rank) if chosen.use_rslora else rank)
    config, _ = parts_of(export.path)
    assert {*modules.values()} == {*config["target_modules"]}
    assert {name.rpartition(".")[2] for name in modules.values()} == names
    assert not config.get("modules_to_save")
    assert (config["task_type"], config["base_model_name_or_path"]) == ("CAUSAL_LM", str(model))


IA3 = {"kind": "ia3", "target_modules": ["q_proj", "down_proj"], "feedforward_modules": ["down_proj"]}
REFUSED = {
    "dora": ({"use_dora": True}, "vLLM has no DoRA (adapter.use_dora)"),
    "ia3": (IA3, "vLLM loads LoRA adapters alone, and this is IA3"),
    "rank": ({"rank": 513}, "rank 513 is above vLLM's largest, 512"),
}


@pytest.mark.integration
@pytest.mark.parametrize(("adapter", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_vllm_refuses_is_refused_with_the_reason(text_model, tmp_path, adapter, reason):
    with llama(text_model, tmp_path, **adapter) as run:
        with pytest.raises(s3t.InputError) as refused:
            run.export(tmp_path / "out", engine="vllm")
        assert list(refused.value.problems) == [reason, "export it merged (--merge), or for PEFT"]
        (export,) = run.export(tmp_path / "out").exports
        with pytest.raises((ValueError, KeyError)):
            vllm_loads(export.path, max_lora_rank=512)


@pytest.mark.integration
def test_a_head_of_two_modules_has_no_name_in_vllm(text_model, tmp_path):
    model = model_of_kind("roberta", text_model, tmp_path / "model", **TEXT["roberta"])
    with trained_run(tmp_path / "run", tiny.recipe(model, **SMALL), tiny.text_table()) as run:
        with pytest.raises(s3t.InputError, match=r"no name for 4 tensors of the head, such as .*classifier\.dense"):
            run.export(tmp_path / "out", engine="vllm")
        with pytest.raises(ValueError, match="is unsupported"):
            vllm_loads(run.export(tmp_path / "out").exports[0].path)


BARE = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["model.layers.0.mlp.up_proj"]}
BARE_NAMES = [f"base_model.model.model.layers.0.mlp.up_proj.lora_{side}.weight" for side in "AB"]


def test_an_adapter_without_a_head_is_taken_by_all():
    """As a language model's is: nothing beside the adapter is trained."""
    assert [engine_problems(engine, BARE, BARE_NAMES) for engine in ("peft", "vllm", "sglang")] == [[]] * 3
    assert engine_options("sglang", BARE) == ["--enable-lora", "--max-lora-rank 8", "--lora-target-modules up_proj"]
    assert engine_options("peft", BARE) == []


@pytest.mark.parametrize("rank", [1, 16, 17, 320, 321, 512])
def test_the_least_rank_that_vllm_must_be_started_with(rank):
    said = dict(option.split() for option in engine_options("vllm", BARE | {"r": rank})[1:])
    largest = int(said.get("--max-lora-rank", 16))
    assert largest in VLLM_RANKS
    assert rank <= largest
    assert not any(rank <= other < largest for other in VLLM_RANKS if other >= 16)


WRONG = {
    "trained biases": {"bias": "all"},
    "refuses init_lora_weights 'pissa'": {"init_lora_weights": "pissa"},
    "one trained head an adapter": {"modules_to_save": ["score", "classifier"]},
    "needs target_modules": {"target_modules": None},
    "needs r, lora_alpha": {"r": 0, "lora_alpha": None},
    "vLLM has no DoRA": {"use_dora": True},
    "rank 1000 is above": {"r": 1000},
}


@pytest.mark.parametrize("reason", WRONG)
def test_other_fields_that_vllm_refuses(reason):
    (problem,) = engine_problems("vllm", BARE | WRONG[reason], BARE_NAMES)
    assert reason in problem


def test_all_reasons_are_told_at_once():
    config = BARE | {"use_dora": True, "r": 1000, "modules_to_save": ["bert.pooler"], "bias": "all"}
    assert len(engine_problems("vllm", config, BARE_NAMES)) == 4


def test_sglang_gets_the_same_scale_without_rslora(text_model, tmp_path):
    """It divides alpha by the rank, whatever the field says; a head it leaves out, so that is refused."""
    with llama(text_model, tmp_path, use_rslora=True, rank=4, alpha=3) as run:
        with pytest.raises(s3t.InputError, match="SGLang leaves a trained head out") as refused:
            run.export(tmp_path / "out", engine="sglang")
        assert not any("rslora" in problem for problem in refused.value.problems)
        config, _ = parts_of(run.export(tmp_path / "out").exports[0].path)
    plain = with_plain_scale(config)
    assert (plain["use_rslora"], plain["lora_alpha"] / plain["r"]) == (False, 3 / 2)
    assert engine_problems("sglang", config | {"modules_to_save": None}, BARE_NAMES) == [
        "SGLang scales by alpha/r whatever use_rslora says"
    ]


def test_sglang_finds_layers_by_one_name_alone():
    names = ["base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"]
    (problem,) = engine_problems("sglang", BARE, names)
    assert "have none, such as base_model.model.transformer.h.0" in problem
