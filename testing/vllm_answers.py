"""Tokens that vLLM writes with adapters, for a comparison: a program for a Python that has vLLM and not s3t.

    PYTHON_WITH_VLLM testing/vllm_answers.py ASKED.json WRITTEN.json

ASKED has `base_model` (a folder), `adapters` (folders), `prompts` (lists of token ids), and `max_lora_rank`,
`max_model_len` and `max_tokens`. WRITTEN gets the likeliest tokens after each prompt, by adapter; under the
empty text those of the base model alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(asked: Path, written: Path) -> None:
    """Load each adapter as a server does, by its folder, and write greedily."""
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    content: dict[str, Any] = json.loads(asked.read_text())
    engine = LLM(
        content["base_model"],
        dtype="float32",
        enable_lora=True,
        max_lora_rank=content["max_lora_rank"],
        max_model_len=content["max_model_len"],
        max_num_seqs=8,
        enforce_eager=True,  # compiling takes a minute and is not looked at
        skip_tokenizer_init=True,
    )
    settings = SamplingParams(temperature=0.0, max_tokens=content["max_tokens"], detokenize=False)
    prompts = [{"prompt_token_ids": tokens} for tokens in content["prompts"]]
    found = {}
    for number, folder in enumerate(["", *content["adapters"]]):
        adapter = LoRARequest(Path(folder).name, number, folder) if folder else None
        answers = engine.generate(prompts, settings, lora_request=adapter, use_tqdm=False)
        found[folder] = [list(answer.outputs[0].token_ids) for answer in answers]
    written.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
