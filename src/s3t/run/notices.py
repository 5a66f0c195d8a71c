"""Notices of odd records and slow settings, which are no errors: printed once, when a run is made, and stored nowhere.

The counts follow from private records, so a file that held them would go on telling of a record that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from s3t.errors import DataError, listed
from s3t.models.source import layer_count
from s3t.recipe import Recipe
from s3t.records.public import features_of
from s3t.records.reading import is_of
from s3t.store.rows import contents, count_distinct, short_digest
from s3t.wording import counted

_SHOWN = 10


class Notices:
    """Counts of rows that repeat or contradict another, and of texts that are cut; and whether the precision is slow.

    Takes 16 bytes of memory a record. The recipe has nothing left to resolve; `model` is the base model's folder, which
    has the tokenizer.
    """

    def __init__(self, recipe: Recipe, *, model: Path) -> None:
        # Here: they import torch, which opening a run does not need.
        from s3t.models.encoders import encoder_for
        from s3t.training.numerics import resolve_device, slow_precision

        self._untrained = _untrained(recipe, model)
        self._slow = slow_precision(resolve_device(recipe.training.device), recipe.training)
        self._encoder, self._section = encoder_for(model, recipe), recipe.task.inputs.section
        self._most = recipe.max_length or 0
        self._refuses = self._section == "language" and recipe.language.longer == "refuse"
        self._rows = self._cut = self._unlearned = 0
        self._refused: list[str] = []
        self._records, self._features = bytearray(), bytearray()

    def add(self, rows: pa.Table) -> None:
        names = features_of(rows)
        features = [name for name in names if name != "label"]  # all of them, if the task reads no labels
        self._rows += rows.num_rows
        try:
            cut = self._encoder.cut(rows)
        except DataError:
            if not (refused := [*self._refusals(rows)]):
                raise
            self._refused += refused
            return
        self._cut += sum(cut.longer)
        self._unlearned += cut.unlearned
        for content in contents(rows, names):
            self._records += short_digest(content)
        for content in contents(rows, features):
            self._features += short_digest(content)

    def _refusals(self, rows: pa.Table) -> Iterator[str]:
        """Each record that the encoder refuses, by its id, with the reason."""
        for number, record in enumerate(rows["record"].to_pylist()):
            try:
                self._encoder.cut(rows.slice(number, 1))
            except DataError as error:
                yield from (f"record {record}: {problem}" for problem in error.problems)

    def check(self) -> None:
        """See that the encoder takes every record, that none is longer than the recipe allows, and that something is
        learned, once all are taken in."""
        if self._refused:
            more = len(self._refused) - _SHOWN
            raise DataError(
                "the data", [*self._refused[:_SHOWN], *([f"and {more:,} more records"] if more > 0 else [])]
            )
        if self._unlearned and self._unlearned == self._rows:
            raise DataError(
                "the data",
                f"within {self._most:,} tokens no record has one that is learned; raise {self._section}.max_length, or "
                "name a model whose tokenizer knows these texts",
            )
        if self._cut and self._refuses:
            raise DataError(
                "the data",
                f"{self._cut:,} of {counted(self._rows, 'record')} have more than {self._most:,} tokens, which "
                f"{self._section}.longer refuses; raise {self._section}.max_length, shorten or drop them, or set cut",
            )

    def sentences(self) -> Iterator[str]:
        yield from self.of_records()
        if getattr(self._encoder, "endless", False):
            yield (
                "the base model's chat template ends a turn of the assistant with no token of its own, so a text ends "
                "at its greatest length, or at a stop text that you give"
            )
        if self._untrained:
            yield self._untrained
        if self._slow:
            yield self._slow

    def of_records(self) -> Iterator[str]:
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
                f"there; raise {self._section}.max_length, as far as the model goes, if what is cut matters"
            )
        if self._unlearned:
            yield (
                f"{self._unlearned:,} of {counted(self._rows, 'record')} have no token that is learned within "
                f"{self._most:,}, so nothing is learned of them; raise {self._section}.max_length, or drop them"
            )


def _untrained(recipe: Recipe, model: Path) -> str | None:
    """A notice of layers that no slice trains, the lowest ones."""
    width = getattr(recipe.adapter, recipe.method.width) if recipe.method.trains else "all"
    if not isinstance(width, int) or (left := (layers := layer_count(model)) - recipe.blocks * width) <= 0:
        return None
    most = layers // recipe.blocks
    remedy = f"; adapter.{recipe.method.width} {most} in a new run trains more" if most > width else ""
    return (
        f"{counted(recipe.blocks, 'block')} of {counted(width, 'layer')} leave the lowest {left} of the base model's "
        f"{layers} layers as they are{remedy}"
    )


def copies_elsewhere(data: object) -> Iterator[str]:
    """A notice of the files from which a `datasets.Dataset` was read: they are the user's, as a CSV file is."""
    if is_of(data, "datasets", "DatasetDict"):
        for each in data.values():  # type: ignore[attr-defined]
            yield from copies_elsewhere(each)
    if is_of(data, "datasets", "Dataset") and (files := data.cache_files):  # type: ignore[attr-defined]
        folders = sorted({str(Path(each["filename"]).parent) for each in files})
        yield (
            f"the data set's own files, in {listed(folders, most=3)}, hold all records, and no deletion reaches them; "
            "remove them when you need them no more"
        )
