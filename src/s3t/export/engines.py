"""Rules of engines for an adapter's configuration, with all reasons at once. Pure.

Read in the sources of vLLM 0.33.0 (`lora/peft_helper.py`, `lora/utils.py`, `config/lora.py`) and of SGLang
(`srt/lora/lora_config.py`, `lora.py`; on rsLoRA its issue 40835). Whether an engine has the base model's architecture
is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

Engine: TypeAlias = Literal["peft", "vllm", "sglang"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's `--max-lora-rank`."""
VLLM_DEFAULT_RANK = 16
VLLM_HEADS = ("score", "classifier")
_KEPT_INITS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")
_A_LAYER = re.compile(r"\blayers\.\d+\.")


def engine_problems(engine: Engine, config: Mapping[str, Any], tensors: Collection[str]) -> list[str]:
    """Reasons for which an engine would refuse an adapter, or load a part of it, by its configuration and the names of
    its tensors.
    """
    if engine == "peft":
        return []
    return list(_of_vllm(config, tensors) if engine == "vllm" else _of_sglang(config, tensors))


def engine_options(engine: Engine, config: Mapping[str, Any]) -> list[str]:
    """Options that the engine must be started with, for this adapter."""
    rank = config.get("r", 0)
    if engine == "vllm":
        largest = next((largest for largest in VLLM_RANKS if largest >= rank), VLLM_RANKS[-1])
        return ["--enable-lora"] + ([f"--max-lora-rank {largest}"] if rank > VLLM_DEFAULT_RANK else [])
    if engine == "sglang":
        modules = " ".join(leaves(config["target_modules"]))
        return ["--enable-lora", f"--max-lora-rank {rank}", f"--lora-target-modules {modules}"]
    return []


def _of_lora_engines(name: str, config: Mapping[str, Any]) -> Iterator[str]:
    if config.get("peft_type") != "LORA":
        yield f"{name} loads LoRA adapters alone, and this is {config.get('peft_type')}"
    elif missing := [field for field in ("r", "lora_alpha", "target_modules") if not config.get(field)]:
        yield f"{name} needs {', '.join(missing)} in adapter_config.json"
    if config.get("use_dora"):
        yield f"{name} has no DoRA (adapter.use_dora)"
    if config.get("bias", "none") != "none" or config.get("lora_bias"):
        yield f"{name} loads no trained biases"


def _of_vllm(config: Mapping[str, Any], tensors: Collection[str]) -> Iterator[str]:
    yield from _of_lora_engines("vLLM", config)
    if config.get("r", 0) > VLLM_RANKS[-1]:
        yield f"rank {config['r']} is above vLLM's largest, {VLLM_RANKS[-1]}"
    init = config.get("init_lora_weights", True)
    if isinstance(init, str) and init.lower() not in _KEPT_INITS:
        yield f"vLLM refuses init_lora_weights {init!r}: such an init changes the base model"
    saved = config.get("modules_to_save") or []
    if others := [name for name in saved if name not in VLLM_HEADS]:
        yield f"vLLM loads a trained head named {' or '.join(VLLM_HEADS)} alone, and this one has {', '.join(others)}"
    elif len(saved) > 1:
        yield f"vLLM loads one trained head an adapter, and this one has {', '.join(saved)}"
    deeper = [name for name in tensors if not _is_vllm_name(name)]
    if deeper and config.get("peft_type") == "LORA" and not config.get("use_dora") and not others:
        yield f"vLLM has no name for {len(deeper)} tensors of the head, such as {sorted(deeper)[0]}"


def _is_vllm_name(name: str) -> bool:
    """True if vLLM reads a tensor of that name: a LoRA matrix, or a head that is one linear module."""
    *_, module, leaf = ["", "", *name.split(".")]
    return (module in ("lora_A", "lora_B") and leaf == "weight") or (
        module in VLLM_HEADS and leaf in ("weight", "bias")
    )


def _of_sglang(config: Mapping[str, Any], tensors: Collection[str]) -> Iterator[str]:
    yield from _of_lora_engines("SGLang", config)
    if saved := config.get("modules_to_save"):
        yield f"SGLang leaves a trained head out without a word, and this adapter has {', '.join(saved)}"
    if config.get("use_rslora"):
        yield "SGLang scales by alpha/r whatever use_rslora says"
    if elsewhere := sorted(name for name in tensors if "lora_" in name and not _A_LAYER.search(name)):
        yield f"SGLang finds layers by `layers.N`, and {len(elsewhere)} tensors have none, such as {elsewhere[0]}"


def leaves(names: Sequence[str]) -> list[str]:
    """Last parts of full names, each once.

    >>> leaves(["model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj", "model.layers.0.self_attn.q_proj"])
    ['q_proj', 'up_proj']
    """
    return sorted({name.rpartition(".")[2] for name in names})
