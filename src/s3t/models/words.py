"""Texts that are given as words, each of which is answered at its first sub-word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor

from s3t.errors import RecipeError
from s3t.models.encode import TRIAL_TEXTS, Encoded, TextEncoder
from s3t.models.passes import ANSWERED
from s3t.tasks.token_classification import WORDS


class WordEncoder:
    """Tokenises words. Sub-words past the recipe's length are cut, with the words that begin there."""

    def __init__(self, folder: Path, *, max_length: int) -> None:
        self._texts = TextEncoder(folder, max_length=max_length, add_prefix_space=True)
        self._max_length = max_length
        problem = None
        if not self._texts.tokenizer.is_fast:
            problem = "base_model: its tokenizer does not say of which word a token is; name a model with a fast one"
        elif not self.encode(pa.table({"text": [["one"]]}))[0][WORDS]:
            problem = f"text.max_length: {max_length} leaves no room for a word beside the special tokens; raise it"
        if problem is not None:
            raise RecipeError("the recipe", problem)

    @property
    def pad_token_id(self) -> int:
        """Id of the padding token."""
        return self._texts.pad_token_id

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Token ids; which tokens are the first of a word, and of which."""
        if rows.num_rows == 0:
            return []
        columns = self._texts.tokenizer(
            rows["text"].to_pylist(), is_split_into_words=True, truncation=True, max_length=self._max_length
        )
        records: list[Encoded] = []
        for row, tokens in enumerate(self._texts.tensors(columns, rows.num_rows)):
            words = columns.word_ids(row) or [None]  # an empty text is one token of padding
            first = [word is not None and word not in words[:place] for place, word in enumerate(words)]
            answered = [word for word, is_first in zip(words, first, strict=True) if is_first]
            records.append({**tokens, ANSWERED: torch.tensor(first), WORDS: answered})
        return records

    def encode_later(self, rows: pa.Table) -> list[Encoded]:
        """Token ids take no more memory than words."""
        return self.encode(rows)

    def answers(self, rows: pa.Table) -> list[int]:
        """Number of words of each row."""
        return [len(words) for words in rows["text"].to_pylist()]

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        """Integer tensors and the mask of first sub-words, batch x longest."""
        return self._texts.collate([{name: record[name] for name in record if name != WORDS} for record in records])

    def stand_in(self, like: Encoded, count: int) -> None:
        """Masks are made from the tokens."""
        return

    def count_cut(self, rows: pa.Table) -> int:
        """Records with more tokens than the recipe's length."""
        found = 0
        for part in rows.select(["text"]).to_batches(max_chunksize=1000):
            columns = self._texts.tokenizer(part["text"].to_pylist(), is_split_into_words=True, verbose=False)
            found += sum(len(ids) > self._max_length for ids in columns["input_ids"])
        return found

    def trial(self, roles: Sequence[str]) -> pa.Table:
        """Texts of one to ten words."""
        return pa.table({role: [text.split() for text in TRIAL_TEXTS] for role in roles})
