"""Notices of odd records and slow settings, which are no errors: printed once, when a run is made, and stored nowhere.

The counts follow from private records, so a file that held them would go on telling of a record that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from s3t.recipe import Recipe
from s3t.records.canonical import contents, count_distinct
from s3t.records.public import features_of
from s3t.wording import counted


def notices_of(rows: pa.Table, recipe: Recipe, *, model: Path) -> tuple[str, ...]:
    """Sentences about rows that repeat or contradict another, about texts that are cut, and about a slow precision.

    Args:
        rows: the records, as ingested.
        recipe: the run's recipe, with nothing left to resolve.
        model: the base model's folder, which has the tokenizer.
    """
    return (*_repeated(rows), *_cut(rows, recipe, model), *_slow(recipe))


def _repeated(rows: pa.Table) -> Iterator[str]:
    names = features_of(rows)
    features = [name for name in names if name != "label"]  # all of them, if the task reads no labels
    different = count_distinct(contents(rows, names))
    if repeated := rows.num_rows - different:
        yield (
            f"{repeated:,} of {counted(rows.num_rows, 'record')} repeat the features and the label of another; a "
            "request for one of them does not delete the others, unless they share its id or its subject"
        )
    if clashing := different - count_distinct(contents(rows, features)):
        yield f"{clashing:,} times the same features occur with different labels; look at how they were labelled"


def _cut(rows: pa.Table, recipe: Recipe, model: Path) -> Iterator[str]:
    from s3t.models.encode import encoder_for  # here: it imports torch, which opening a run does not need

    most = recipe.text.max_length
    if cut := encoder_for(model, recipe).count_cut(rows):
        yield (
            f"{cut:,} of {counted(rows.num_rows, 'record')} have more than {most:,} tokens and are cut there; raise "
            "text.max_length, as far as the model goes, if what is cut matters"
        )


def _slow(recipe: Recipe) -> Iterator[str]:
    from s3t.training import resolve_device, slow_precision  # here, as above

    if slow := slow_precision(resolve_device(recipe.training.device), recipe.training):
        yield slow
