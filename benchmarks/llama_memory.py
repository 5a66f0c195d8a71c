"""Memory and hours of fine-tuning Llamas of 1, 8 and 13 billion parameters: computed, and the arithmetic measured.

    OMP_NUM_THREADS=1 python -m benchmarks.llama_memory [--json] [--part measured] [--quick]

computed    Llama 3.2 1B, Llama 3 8B and Llama 2 13B, as the recipes of recipes/ train them: 4 slices, LoRA of rank 32
            on all linear modules with dropout, passes of 4 records of 512 tokens. Bytes of the deepest stage on the
            accelerator, whether they fit 24 and 80 GB, and hours. By `benchmarks/llama_sizes.py`; nothing is run.
measured    A Llama of 154 million parameters with random weights, on this processor, in a process for each case: bytes
            of the tensors of the loaded base, and growth of resident memory by the base and by a pass forward and
            backward, beside what is computed. A pass has 4 records of 256 tokens.

Assumed, not measured: 6 million tokens in Alpaca's 51,974 records with an output, 3 epochs, one order, and 40 % of the
card's rate at dense products in bfloat16 (RTX 4090: 165, H100: 989 TFLOP/s). Unpacking weights, answers, reading and
writing take more. A card counts as large enough if a tenth of it stays free, for kernels and fragments.

Each part is written to benchmarks/results/llama_memory.json when it is done. With --quick: a tiny model.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.llama_sizes import (
    BITS,
    Bits,
    Llama,
    Training,
    activation_bytes,
    base_bytes,
    frozen_bytes,
    logit_bytes,
    operations,
    trained_bytes,
    trunk_bytes,
    unpacked_bytes,
)

RESULTS = Path(__file__).parent / "results" / "llama_memory.json"
MODELS = {
    "1B": Llama(width=2048, inner=8192, layers=16, heads=32, keys=512, vocabulary=128_256, tied=True),
    "8B": Llama(width=4096, inner=14_336, layers=32, heads=32, keys=1024, vocabulary=128_256),
    "13B": Llama(width=5120, inner=13_824, layers=40, heads=40, keys=5120, vocabulary=32_000),
}
SLICES, RANK, EPOCHS, TOKENS = 4, 32, 3, 6_000_000
RECORDS, LENGTH = 4, 512
CARDS = {"24 GB": (24e9, 165e12), "80 GB": (80e9, 989e12)}
"""Bytes and dense operations a second of an RTX 4090 and an H100."""
SHARE, FREE = 0.4, 0.1
SMALL = Llama(width=1024, inner=2816, layers=12, heads=16, keys=1024, vocabulary=47)
QUICK = Llama(width=64, inner=128, layers=4, heads=4, keys=64, vocabulary=47)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--part", choices=PARTS, action="append", help="this one alone; may be repeated")
    parser.add_argument("--quick", action="store_true", help="a tiny model: that it works")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        folder, bits, checkpointing = options.case
        print(json.dumps(case(Path(folder), bits, checkpointing=checkpointing == "True")))
        return
    found = json.loads(options.results.read_text()) if options.results.is_file() else {}
    for name in options.part or PARTS:
        found[name] = PARTS[name](QUICK if options.quick else SMALL)
        options.results.write_text(json.dumps(found, indent=1) + "\n")
    if options.json:
        print(json.dumps(found))
        return
    for name, sizes in found.get("computed", {}).get("models", {}).items():
        for bits, each in sizes["bits"].items():
            totals = ", ".join(f"{value / 1e9:.1f} GB" for value in each["total"].values())
            print(f"{name} {bits:5} {totals}; fits {', '.join(each['fits']['with checkpoints']) or 'neither card'}")


def computed(_: Llama) -> dict[str, Any]:
    """Bytes and hours of each model."""
    models = {}
    for name, model in MODELS.items():
        recipes = {kind: recipe(model, checkpointing=given) for kind, given in KINDS.items()}
        fitted = recipes["with checkpoints"]
        models[name] = {
            "parameters": model.parameters,
            "loading": 4 * model.parameters,
            "trunk": trunk_bytes(model, fitted, tokens=TOKENS),
            "bits": {name: memory(model, recipes, bits, merged=merged) for name, (bits, merged) in BASES.items()},
            "hours": {
                card: {kind: round(hours(model, each, rate), 2) for kind, each in recipes.items()}
                for card, (_, rate) in CARDS.items()
            },
        }
    return {"models": models, "tokens": TOKENS, "epochs": EPOCHS, "share": SHARE, "free": FREE}


BASES: Mapping[str, tuple[Bits, bool]] = {
    "bfloat16": ("none", True),
    "8bit": ("8bit", False),
    "4bit": ("4bit", False),
}
"""Bits of the weights, and whether frozen blocks are merged into copies."""
KINDS = {"without checkpoints": False, "with checkpoints": True}


def recipe(model: Llama, *, checkpointing: bool) -> Training:
    """Training as the recipes of recipes/ have it."""
    return Training(
        slices=SLICES,
        block=model.layers // SLICES,
        rank=RANK,
        dropout=True,
        checkpointing=checkpointing,
        tokens=RECORDS * LENGTH,
        records=RECORDS,
    )


def memory(model: Llama, recipes: Mapping[str, Training], bits: Bits, *, merged: bool) -> dict[str, Any]:
    """Bytes on the accelerator, by what they are for; and the cards that they fit."""
    some = recipes["with checkpoints"]
    parts = {
        "base": base_bytes(model, bits),
        "frozen": frozen_bytes(model, some, merged=merged),
        "trained": trained_bytes(model, some),
        "unpacked": unpacked_bytes(model, bits),
        "logits": logit_bytes(model),
    }
    activations = {kind: activation_bytes(model, each) for kind, each in recipes.items()}
    # Logits are gone before the layers' backward pass begins, but what it needs is there already.
    total = {kind: sum(parts.values()) + value for kind, value in activations.items()}
    fits = {
        kind: [card for card, (size, _) in CARDS.items() if value <= (1 - FREE) * size] for kind, value in total.items()
    }
    return {**parts, "activations": activations, "total": total, "fits": fits}


def hours(model: Llama, training: Training, rate: float) -> float:
    """Hours of one order at the assumed share of a card's rate."""
    return operations(model, training, tokens=TOKENS, epochs=EPOCHS) / (SHARE * rate) / 3600


def measured(model: Llama) -> dict[str, Any]:
    """Each case in a process of its own."""
    from benchmarks.machine import describe

    cases = []
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), model)
        for bits in BITS:
            for checkpointing in (False, True):
                command = [sys.executable, "-m", "benchmarks.llama_memory", "--case", folder, bits, str(checkpointing)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
                training = small_training(model, checkpointing=checkpointing)
                expected = {"base": base_bytes(model, bits), "pass": pass_bytes(model, training, bits)}
                cases.append({"bits": bits, "checkpointing": checkpointing, "measured": found, "computed": expected})
    return {"parameters": model.parameters, "cases": cases, "machine": describe()}


def small_training(model: Llama, *, checkpointing: bool) -> Training:
    """The deepest of two stages, of half of the layers each."""
    length = 256 if model.width > 100 else 32
    return Training(
        slices=2,
        block=model.layers // 2,
        rank=8,
        dropout=False,
        checkpointing=checkpointing,
        tokens=4 * length,
        records=4,
        mask_bytes=2,
    )


def pass_bytes(model: Llama, training: Training, bits: Bits) -> int:
    """A pass and the gradients that it leaves."""
    return activation_bytes(model, training) + trained_bytes(model, training) // 4 + unpacked_bytes(model, bits)


def make(folder: Path, model: Llama) -> None:
    """A model with random weights, and a tokenizer of words."""
    import transformers

    from testing.language import make_language_model

    make_language_model(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    config.update(
        {
            "hidden_size": model.width,
            "intermediate_size": model.inner,
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.keys * model.heads // model.width,
            "head_dim": model.width // model.heads,
            "max_position_embeddings": 512,
            "initializer_range": 0.02,
        }
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def case(folder: Path, bits: str, *, checkpointing: bool) -> dict[str, int]:
    """Bytes of the base's tensors; and growth of resident memory by the base, and at most by a pass."""
    import torch
    import transformers

    from s3t.models.assembly import assemble
    from s3t.recipe import recipe_from
    from testing.language import language_recipe

    config = transformers.AutoConfig.from_pretrained(folder)
    sizes = SMALL if config.hidden_size == SMALL.width else QUICK
    training = small_training(sizes, checkpointing=checkpointing)
    content = language_recipe(
        folder,
        partition={"shards": 1, "slices": training.slices},
        sequences={"budget": 1},
        adapter={"rank": training.rank, "layers_per_slice": training.block},
        training={"quantization": bits, "precision": "bfloat16", "attention": "sdpa", "threads": 1},
    )
    before = resident()
    model, _ = assemble(folder, recipe_from(content), labels=1)
    base = resident() - before
    tensors = [*model.base.model.parameters(), *model.base.model.buffers()]
    rows = (training.records, training.tokens // training.records)
    batch = {
        "input_ids": torch.randint(5, 40, rows),
        "attention_mask": torch.ones(rows, dtype=torch.int64),
        "answered": torch.ones(rows, dtype=torch.bool),
    }
    with model.mounted({}) as mount, torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        mount.add_block(1)
        frozen = {1: mount.own_tensors()}
    with model.mounted(frozen) as mount, torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        mount.add_block(2)
        mount.thaw()
        growth = []
        for _ in range(2):  # the first makes code for its products
            for parameter in model.base.model.parameters():
                parameter.grad = None
            start = resident()
            Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
            model.passes.reached(batch, checkpointing=checkpointing).float().sum().backward()  # type: ignore[no-untyped-call]
            growth.append(peak() - start)
    rotary = sum(buffer.nbytes for name, buffer in model.base.model.named_buffers() if "rotary" in name)
    return {"tensors": sum(tensor.nbytes for tensor in tensors) - rotary, "base": base, "pass": growth[-1]}


def resident() -> int:
    """Resident memory of this process in bytes, after what is free was given back."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return _of_status("VmRSS")


def peak() -> int:
    """Largest resident memory since it was last reset, in bytes."""
    return _of_status("VmHWM")


def _of_status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


PARTS: Mapping[str, Callable[[Llama], dict[str, Any]]] = {"computed": computed, "measured": measured}


if __name__ == "__main__":
    main()
