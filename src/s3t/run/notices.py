"""Notices of odd records and slow settings, which are no errors: printed once, when a run is made, and stored nowhere.

The counts follow from private records, so a file that held them would go on telling of a record that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from s3t.recipe import Recipe
from s3t.records.canonical import contents
from s3t.records.public import features_of
from s3t.records.repeats import count_distinct, short_digest
from s3t.wording import counted


class Notices:
    """Counts of rows that repeat or contradict another, and of texts that are cut; and whether the precision is slow.

    Takes 16 bytes of memory a record.

    Args:
        recipe: the run's recipe, with nothing left to resolve.
        model: the base model's folder, which has the tokenizer.
    """

    def __init__(self, recipe: Recipe, *, model: Path) -> None:
        # Here: they import torch, which opening a run does not need.
        from s3t.models.encode import encoder_for
        from s3t.training import resolve_device, slow_precision

        self._slow = slow_precision(resolve_device(recipe.training.device), recipe.training)
        self._most, self._encoder = recipe.text.max_length, encoder_for(model, recipe)
        self._rows = self._cut = 0
        self._records, self._features = bytearray(), bytearray()

    def add(self, rows: pa.Table) -> None:
        """Take in some records, as ingested."""
        names = features_of(rows)
        features = [name for name in names if name != "label"]  # all of them, if the task reads no labels
        self._rows += rows.num_rows
        self._cut += self._encoder.count_cut(rows)
        for content in contents(rows, names):
            self._records += short_digest(content)
        for content in contents(rows, features):
            self._features += short_digest(content)

    def sentences(self) -> Iterator[str]:
        """Yields a sentence for each kind that there is."""
        different = count_distinct(self._records)
        if repeated := self._rows - different:
            yield (
                f"{repeated:,} of {counted(self._rows, 'record')} repeat the features and the label of another; a "
                "request for one of them does not delete the others, unless they share its id or its subject"
            )
        if clashing := different - count_distinct(self._features):
            yield f"{clashing:,} times the same features occur with different labels; look at how they were labelled"
        if self._cut:
            yield (
                f"{self._cut:,} of {counted(self._rows, 'record')} have more than {self._most:,} tokens and are cut "
                "there; raise text.max_length, as far as the model goes, if what is cut matters"
            )
        if self._slow:
            yield self._slow
