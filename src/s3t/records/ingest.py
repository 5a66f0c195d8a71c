"""Ingestion of a table into records: checked against the recipe, in our columns and plain types.

Records have the columns `record` (id), `subject` (or null), `label`, and the features: `text` (and `text_pair`), or
`image` (encoded bytes). Messages name a record by its line or row. Nothing is fitted on the data but
the label set of `labels: infer`, which is why that one is a gap (docs/guarantees.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from s3t.errors import DataError
from s3t.recipe import Recipe
from s3t.records.checks import Checks, check_columns
from s3t.records.columns import column_values
from s3t.records.features import read_features, read_prompts
from s3t.records.inputs import Inputs, inputs_as_data
from s3t.records.reading import Data, Positions, Problems, Table, read_data, read_windows
from s3t.records.requests import text_of
from s3t.records.splitting import Split
from s3t.tasks import Kind


@dataclass(frozen=True, kw_only=True)
class Records:
    """Checked records."""

    rows: pa.Table
    """Our columns (see the module)."""
    labels: tuple[str, ...]
    """The label set, declared or inferred; empty for regression."""
    among: Sequence[tuple[int, ...]] | None
    """For each row, the slices of its shard that its group is spread over; None without groups. The group itself is not
    kept: the slice implies it."""
    positions: Positions
    """Position of each row in the data, for messages."""


def ingest(data: Data, recipe: Recipe) -> Records:
    """Records to train on, all in memory."""
    return _checked(_read(data, recipe), recipe, with_owners=True)


def ingest_into(split: Split | None, data: Data, recipe: Recipe) -> tuple[str, ...]:
    """Check the records to train on, window by window, and divide them into slices; the label set.

    Memory holds a window of records, and 16 bytes of each record's id where the data has ids.

    Args:
        split: takes the records in; None: they are only checked.
    """
    checks = None
    for table in read_windows(data, columns=_kinds(recipe), size=recipe.task.inputs.window_rows):
        checks = checks or Checks(recipe, table, with_owners=True)
        records = checks.window(table)
        if records is not None and split is not None:
            split.add(*records)
    if checks is None:
        raise DataError("the data", "holds no records")
    return checks.finish()


def ingest_labelled(data: Data, recipe: Recipe, *, labels: tuple[str, ...] | None = None) -> Records:
    """Records to evaluate on: features and labels; ids, subjects and groups are not looked at.

    Args:
        labels: the label set of the run, which cannot change any more; None: the recipe's.
    """
    return _checked(_read(data, recipe), recipe, with_owners=False, fixed=labels)


def _checked(table: Table, recipe: Recipe, *, with_owners: bool, fixed: tuple[str, ...] | None = None) -> Records:
    checks = Checks(recipe, table, with_owners=with_owners, fixed=fixed)
    records = checks.window(table)
    labels = checks.finish()
    if records is None:
        raise AssertionError("a window without problems was refused")
    return Records(rows=records.rows, labels=labels, among=records.among, positions=table.positions)


class IngestedInputs(NamedTuple):
    """Inputs to predict."""

    features: pa.Table
    ids: list[str] | None
    """Ids, if the data has the id column."""
    places: Sequence[int]
    """Line of each input in a CSV or JSON lines file, else its row from 0."""


def ingest_inputs(inputs: Inputs, recipe: Recipe) -> IngestedInputs:
    """Inputs to predict, checked."""
    return _checked_inputs(_read(inputs_as_data(inputs, recipe), recipe), recipe)


def ingest_prompts(inputs: Inputs, recipe: Recipe) -> IngestedInputs:
    """Prompts of a language model: the recipe's column of prompts, of chats up to the assistant's turn, or of texts."""
    role = recipe.task.inputs.prompt_role({role for role, value in recipe.columns.model_dump().items() if value})
    return _checked_inputs(_read(inputs_as_data(inputs, recipe, roles=(role,)), recipe), recipe, roles=(role,))


def ingest_windows(
    source: str | Path | BinaryIO, form: str | None, recipe: Recipe, *, size: int
) -> Iterator[IngestedInputs]:
    """Inputs from a file, or an open pipe of CSV or JSON lines, `size` at a time; each window is checked when it is
    asked for. The format is csv, jsonl or parquet; None: as the file's suffix says.
    """
    for table in read_windows(source, columns=_kinds(recipe), size=size, form=form):
        yield _checked_inputs(table, recipe)


def _checked_inputs(table: Table, recipe: Recipe, *, roles: Collection[str] | None = None) -> IngestedInputs:
    """Inputs of all roles that the task has; or prompts, of one."""
    columns, problems = recipe.columns, Problems(table.positions)
    problems.begin(table.first)
    wanted = roles or recipe.task.inputs.roles
    named = columns.named().items()
    needed = {name: f"columns.{role}" for role, names in named if role in wanted for name in names}
    check_columns(table.rows.column_names, needed, problems, of_a_run=True)
    features = (
        read_features(table, recipe, problems) if roles is None else read_prompts(table, recipe, problems, *roles)
    )
    ids = column_values(table, columns.id, "name", problems)
    if problems:
        raise DataError(table.where, problems.sentences())
    given = None if ids is None else [text_of(value) or "" for value in ids]
    places = table.positions.numbers(range(table.first, table.first + table.rows.num_rows))
    return IngestedInputs(pa.table(features), given, places)


def record_ids(data: Data, recipe: Recipe) -> list[str]:
    """The id of every row, as `init` would give it: what `delete` needs where the data has no id column."""
    ids: list[str] = ingest(data, recipe).rows["record"].to_pylist()
    return ids


def _read(data: Data, recipe: Recipe) -> Table:
    return read_data(data, columns=_kinds(recipe))


def _kinds(recipe: Recipe) -> dict[str, Kind]:
    """Kind of each column that is read."""
    kinds: dict[str, Kind | None] = {"id": "name", "subject": "name", "label": recipe.task.target.column}
    kinds |= {role: recipe.task.inputs.column_kind(role) for role in recipe.task.inputs.roles}
    named = recipe.columns.named().items()
    columns = {name: kind for role, names in named if (kind := kinds[role]) is not None for name in names}
    if recipe.partition.group is not None:
        columns.setdefault(recipe.partition.group.column, "category")
    return columns
