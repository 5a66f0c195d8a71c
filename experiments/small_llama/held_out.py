"""How well the small Llama foretells held-out records, each by itself, as s3t evaluates a language model."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from experiments.small_llama.corpus import encoded
from s3t.models.language import LanguageEncoder
from s3t.recipe import Language
from s3t.tasks.task import ANSWERED

BATCH = 16


class HeldOut:
    """Held-out records, encoded.

    Args:
        records: with the columns of Alpaca.
        tokenizer: its folder.
        length: tokens; longer records are cut.
    """

    def __init__(self, records: pd.DataFrame, tokenizer: Path, *, length: int) -> None:
        encoder = LanguageEncoder(tokenizer, Language(max_length=length))
        found = sorted(encoded(records, tokenizer, length=length), key=lambda each: len(each["input_ids"]))
        self._batches = [encoder.collate(found[start : start + BATCH]) for start in range(0, len(found), BATCH)]
        ids = [each["input_ids"].tolist() for each in found]
        self._bytes = sum(len(encoder.tokenizer.decode(own, skip_special_tokens=True).encode()) for own in ids)

    def perplexity(self, model: LlamaForCausalLM) -> dict[str, float]:
        """Perplexity a token of the outputs, and of prompts and outputs; and bits a byte of these."""
        sums = torch.zeros(2, dtype=torch.float64)
        counts = torch.zeros(2, dtype=torch.float64)
        for batch in self._batches:
            ids, mask = batch["input_ids"], batch["attention_mask"]
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
            each = cross_entropy(logits.float().transpose(1, 2), ids[:, 1:], reduction="none").double()
            for place, counted in enumerate((batch[ANSWERED][:, :-1], mask[:, 1:].bool())):
                sums[place] += each[counted].sum()
                counts[place] += counted.sum()
        outputs, whole = (sums / counts).tolist()
        return {
            "perplexity": math.exp(outputs),
            "perplexity_with_prompts": math.exp(whole),
            "bits_a_byte": float(sums[1]) / math.log(2) / self._bytes,
        }
