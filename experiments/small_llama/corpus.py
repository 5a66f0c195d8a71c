"""What the small Llama reads: documents, their tokens, and an epoch's chunks.

A document is a record of Alpaca's public half, as a recipe's templates write it, or another text. Each stands between
two end-of-text tokens; the one before it is its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from experiments.alpaca import COLUMNS, divided, parts
from s3t.models.encoders import Encoded
from s3t.models.language import LanguageEncoder
from s3t.recipe import Language, recipe_from
from s3t.records.ingest import ingest

Tokens = NDArray[np.int32]
END, PADDING = "<|endoftext|>", "<|padding|>"
TEXTS = {
    "goemotions/goemotions.parquet": ["text"],
    "banking77/banking77.parquet": ["text"],
    "sst2_sentences/sst2_sentences.parquet": ["sentence"],
    "rte/rte.parquet": ["sentence1"],
    "stsb/stsb.parquet": ["sentence1", "sentence2"],
    "cola/cola.parquet": ["sentence"],
    "cb/cb.parquet": ["premise"],
}
"""Files of other texts, and their columns. Not TOFU, which experiments teach and delete."""
UNCUT = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Records and texts to train on, and records held out."""

    instructions: pd.DataFrame
    """Of Alpaca's public half."""
    texts: list[str]
    """Others, each once."""
    held_out: pd.DataFrame
    """Of the public half, not trained on."""


def corpus(data: Path, *, made_up: bool) -> Corpus:
    """What is in `S3T_DATA`, or a few made-up records.

    Raises:
        FileNotFoundError: a file is not there.
    """
    if made_up:
        found, texts = divided(made_up_records()), [f"A text on {number} things." for number in range(40)]
    else:
        found = parts(data)
        cells = [
            pd.read_parquet(data / file, columns=columns)[column].dropna()
            for file, columns in TEXTS.items()
            for column in columns
        ]
        texts = sorted({text.strip() for texts in cells for text in texts} - {""})
    return Corpus(instructions=found["public"], texts=texts, held_out=found["public_held_out"])


def made_up_records(count: int = 400) -> pd.DataFrame:
    """Sums, in Alpaca's columns; every third has an input."""
    rows = [
        {
            "instruction": f"Add {number} and {number % 7}." if number % 3 else f"Add the two numbers, case {number}.",
            "input": "" if number % 3 else f"{number} and {number % 7}",
            "output": f"The sum is {number + number % 7}.",
        }
        for number in range(count)
    ]
    return pd.DataFrame(rows)


def train_tokenizer(found: Corpus, *, vocabulary: int, output: Path) -> None:
    """Byte-pair encoding of what is trained on, as a folder that transformers loads. It puts an end of text before
    each text, and knows any byte.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    prompts, outputs = (_rows(found.instructions)[role].to_pylist() for role in ("prompt", "completion"))
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, PADDING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*prompts, *outputs, *found.texts], trainer)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A {END} $B", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=PADDING
    ).save_pretrained(output)


def encoded(records: pd.DataFrame, tokenizer: Path, *, length: int = UNCUT) -> list[Encoded]:
    """Records as s3t's task `causal-lm` encodes them: with the end of text before and after them."""
    return LanguageEncoder(tokenizer, Language(max_length=length)).encode(_rows(records))


def documents(found: Corpus, tokenizer: Path) -> tuple[list[Tokens], list[Tokens]]:
    """Tokens of records and of texts, each with the end of text after it."""
    encoder = LanguageEncoder(tokenizer, Language(max_length=UNCUT))
    records = [each["input_ids"].numpy()[1:].astype(np.int32) for each in encoded(found.instructions, tokenizer)]
    ids = encoder.tokenizer(found.texts, add_special_tokens=False)["input_ids"]
    return records, [np.array([*each, encoder.end], dtype=np.int32) for each in ids]


def chunks(texts: Sequence[Tokens], *, end: int, length: int, rng: np.random.Generator) -> Tokens:
    """Documents in random order, one after another, cut into chunks.

    Args:
        texts: documents, each with the end of text after it.
        end: end of text, which also begins the first.
        length: of a chunk, less one: each chunk's last token is the next one's first.
        rng: decides the order.

    Returns:
        Chunks x (length + 1); what is left over at the end is not in them.
    """
    stream = np.concatenate([np.array([end], dtype=np.int32), *(texts[place] for place in rng.permutation(len(texts)))])
    count = (len(stream) - 1) // length
    return np.stack([stream[number * length : (number + 1) * length + 1] for number in range(count)])


def _rows(records: pd.DataFrame) -> Any:
    """A table with the columns prompt and completion, by the templates of recipes."""
    fields = {"task": "causal-lm", "base_model": "none", "columns": COLUMNS}
    return ingest(records, recipe_from(fields)).rows
