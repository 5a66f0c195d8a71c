"""Ingestion of a table into records: checked against the recipe, in our columns and plain types.

Records have the columns `record` (id), `subject` (or null), `label`, and the features: `text` (and `text_pair`), or
`image` (encoded bytes). Messages name a record by its line or row (`positions.py`). Nothing is fitted on the data but
the label set of `labels: infer`, which is why that one is a gap (docs/guarantees.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from s3t.errors import DataError
from s3t.recipe import Recipe
from s3t.records.canonical import canonical_bytes, count_distinct
from s3t.records.cells import Cells
from s3t.records.column_types import may_be_categories, may_be_lists, may_be_names, may_be_numbers
from s3t.records.columns import column_values, converted, converted_or_same, listed
from s3t.records.features import read_features
from s3t.records.groups import RowGroups
from s3t.records.inputs import Inputs, inputs_as_data
from s3t.records.names import normal_form, space_problem, text_of
from s3t.records.problems import Problems
from s3t.records.reading import Data, Table, columns_in_words, read_data, rows_as_table
from s3t.records.streaming import format_of, named, windows
from s3t.records.values import LabelNames
from s3t.tasks import Kind
from s3t.wording import did_you_mean


@dataclass(frozen=True, kw_only=True)
class Records:
    """Checked records.

    Attributes:
        rows: our columns (see the module).
        labels: the label set, declared or inferred; empty for regression.
        among: for each row, the slices of its shard that its group is spread over; None without groups. The group
            itself is not kept: the slice implies it.
    """

    rows: pa.Table
    labels: tuple[str, ...]
    among: Sequence[tuple[int, ...]] | None


def ingest(data: Data, recipe: Recipe) -> Records:
    """Records to train on.

    Raises:
        DataError: every problem found: columns that are missing, ids that are missing or repeated, labels that are
            missing, outside the declared set or not numbers, texts and images that cannot be read, groups that are
            missing, outside those declared or not one for all records of a subject.
    """
    return _checked(_read(data, recipe), recipe, with_owners=True)


def ingest_labelled(data: Data, recipe: Recipe, *, labels: tuple[str, ...] | None = None) -> Records:
    """Records to evaluate on: features and labels; ids, subjects and groups are not looked at.

    Args:
        data: with the recipe's columns.
        recipe: the run's recipe.
        labels: the label set of the run, which cannot change any more; None: the recipe's.

    Raises:
        DataError: as `ingest`.
    """
    return _checked(_read(data, recipe), recipe, with_owners=False, fixed=labels)


def _checked(table: Table, recipe: Recipe, *, with_owners: bool, fixed: tuple[str, ...] | None = None) -> Records:
    problems = Problems(table.positions)
    kind = recipe.task.target.column
    column = None if kind is None else _LABEL_COLUMNS[kind]
    unread = {*(() if with_owners else ("id", "subject")), *(() if column is not None else ("label",))}
    roles = {role: names for role, names in recipe.columns.named().items() if role not in unread}
    group = recipe.partition.group if with_owners else None
    fields = {name: f"columns.{role}" for role, names in roles.items() for name in names}
    if group is not None:
        fields.setdefault(group.column, "partition.group.column")
    _check_columns(table, fields, problems, of_a_run=fixed is not None)
    features = read_features(table, recipe, problems)
    labels = None if column is None else _labels(table, recipe, column, problems)
    _check_counts(features, labels, recipe, problems)
    given = _subjects(table, recipe.columns.subject if with_owners else None, problems)
    normal = (None if subject is None else normal_form(subject) for subject in Cells(given))
    subjects = converted_or_same(normal, pa.string(), pa.table({"given": given}), "given")
    ids = _declared_ids(table, recipe.columns.id if with_owners else None, problems)
    names = _label_set(_cells(labels), fixed, recipe, problems)
    groups = None
    if group is not None:
        groups = RowGroups(group, _group_cells(table, labels, recipe, problems), problems)
        groups.check_one_each("the subject", Cells(subjects))
    if table.rows.num_rows == 0:
        problems.add("holds no records")
    if problems.sentences():
        raise DataError(table.where, problems.sentences())
    if ids is None:
        # Of the subject as it is given, not in its normal form, so that `s3t ids` gives the ids of older runs, too.
        ids = _content_ids(given, labels, features)
        if groups is not None:
            groups.check_one_each("the same record", Cells(ids))
    if problems.sentences():
        raise DataError(table.where, problems.sentences())
    arrays = {"record": ids, "subject": subjects}
    if labels is not None:
        arrays["label"] = labels
    among = None if groups is None else groups.among()
    return Records(rows=pa.table(arrays | features), labels=names, among=among)


class IngestedInputs(NamedTuple):
    """Inputs to predict."""

    features: pa.Table
    ids: list[str] | None
    """Ids, if the data has the id column."""
    places: Sequence[int]
    """Line of each input in a CSV or JSON lines file, else its row from 0."""


def ingest_inputs(inputs: Inputs, recipe: Recipe) -> IngestedInputs:
    """Inputs to predict, checked.

    Raises:
        DataError: as `ingest`, for the feature columns alone.
    """
    return _checked_inputs(_read(inputs_as_data(inputs, recipe), recipe), recipe)


def ingest_windows(
    source: str | Path | BinaryIO, form: str | None, recipe: Recipe, *, size: int
) -> Iterator[IngestedInputs]:
    """Inputs from a file, or an open pipe of CSV or JSON lines, `size` at a time; each window is checked when it is
    asked for. The format is csv, jsonl or parquet; None: as the file's suffix says.

    Raises:
        InputError: no such format.
        DataError: as `ingest_inputs`, after the windows before the fault.
    """
    source = Path(source) if isinstance(source, str) else source
    where, folder = named(source), source.parent if isinstance(source, Path) else Path()
    for rows, positions in windows(source, format_of(source, form), size=size):
        if isinstance(rows, pa.Table):
            table = _read(rows, recipe).rows
        else:
            found, problems = rows_as_table(rows, _kinds(recipe), positions)
            if found is None:
                raise DataError(where, problems)
            table = found
        yield _checked_inputs(Table(rows=table, where=where, folder=folder, positions=positions), recipe)


def _checked_inputs(table: Table, recipe: Recipe) -> IngestedInputs:
    columns = recipe.columns
    problems = Problems(table.positions)
    needed = {
        name: f"columns.{role}"
        for role, names in columns.named().items()
        if role in recipe.task.inputs.roles
        for name in names
    }
    _check_columns(table, needed, problems, of_a_run=True)
    features = read_features(table, recipe, problems)
    ids = column_values(table, columns.id, may_be_names, _NAME_IS, problems)
    if problems.sentences():
        raise DataError(table.where, problems.sentences())
    told_back = None if ids is None else [text_of(value) or "" for value in ids]
    return IngestedInputs(pa.table(features), told_back, table.positions.numbers[: table.rows.num_rows])


def record_ids(data: Data, recipe: Recipe) -> list[str]:
    """The id of every row, as `init` would give it: what `delete` needs where the data has no id column.

    Raises:
        DataError: as `ingest`.
    """
    ids: list[str] = ingest(data, recipe).rows["record"].to_pylist()
    return ids


def _read(data: Data, recipe: Recipe) -> Table:
    return read_data(data, columns=_kinds(recipe))


def _kinds(recipe: Recipe) -> dict[str, Kind]:
    """Kind of each column that is read."""
    kinds: dict[str, Kind | None] = {"id": "name", "subject": "name", "label": recipe.task.target.column}
    kinds |= dict.fromkeys(recipe.task.inputs.roles, recipe.task.inputs.kind)
    named = recipe.columns.named().items()
    columns = {name: kind for role, names in named if (kind := kinds[role]) is not None for name in names}
    if recipe.partition.group is not None:
        columns.setdefault(recipe.partition.group.column, "category")
    return columns


def _like(name: str, present: Sequence[str], expected: Mapping[str, str]) -> str:
    """Suggested column; empty where the header may be a record (see `columns_in_words`)."""
    return did_you_mean(name, present) if set(present) & set(expected) else ""


def _check_columns(table: Table, fields: dict[str, str], problems: Problems, *, of_a_run: bool) -> None:
    """Check that every column is there once; `fields` maps columns to the recipe's fields that name them."""
    present = table.rows.column_names
    remedy = "correct the data's column names" + ("" if of_a_run else ", or the recipe's columns")
    for name, field in fields.items():
        count = present.count(name)
        if count == 0:
            problems.add(
                f"column {name!r} is missing ({field}); {columns_in_words(present, fields)}"
                f"{_like(name, present, fields)}: {remedy}"
            )
        elif count > 1:
            problems.add(f"column {name!r} occurs {count} times; name each column once")


_NAME_IS = "an id or a subject is text or a whole number"


def _declared_ids(table: Table, name: str | None, problems: Problems) -> pa.ChunkedArray | None:
    values = column_values(table, name, may_be_names, _NAME_IS, problems)
    if name is None or values is None:
        return None
    texts = (text_of(value) for value in values)
    records = ("" if text is None else normal_form(text) for text in texts)
    ids = converted_or_same(records, pa.string(), table.rows, name)
    # Unique hashes are unique ids. Only for a message is every id looked at by itself.
    if count_distinct(record.encode() for record in Cells(ids)) < len(ids) or any(
        text is None or space_problem(text) for text in map(text_of, values)
    ):
        _name_problems(values, name, problems)
    return ids


def _name_problems(values: Iterable[Any], name: str | None, problems: Problems) -> None:
    """Tell of every id that is missing, odd or repeated."""
    first: dict[str, int] = {}
    for row, value in enumerate(values):
        text = text_of(value)
        record = "" if text is None else normal_form(text)
        problem = "is empty; give every record one" if text is None else space_problem(text)
        if problem is not None:
            problems.add_row(row, f"the id (column {name!r}) {problem}")
        elif record in first:
            problems.add_row(
                row,
                f"the id (column {name!r}) is a duplicate of {problems.named(first[record])}'s; ids must be "
                "unique, correct one of them",
            )
        else:
            first[record] = row


def _subjects(table: Table, name: str | None, problems: Problems) -> pa.ChunkedArray:
    values = column_values(table, name, may_be_names, _NAME_IS, problems)
    if name is None or values is None:
        return pa.chunked_array([pa.nulls(table.rows.num_rows, pa.string())])
    subjects = converted_or_same(map(text_of, values), pa.string(), table.rows, name)
    for row, subject in enumerate(Cells(subjects)):
        problem = None if subject is None else space_problem(subject)
        if problem is not None:
            problems.add_row(row, f"the subject (column {name!r}) {problem}")
    return subjects


def _labels(table: Table, recipe: Recipe, column: _LabelColumn, problems: Problems) -> pa.ChunkedArray:
    name, target, names = recipe.columns.label, recipe.task.target, LabelNames(recipe)
    values = column_values(table, name, column.fits, column.expected, problems)

    def labels() -> Iterator[Any]:
        for row, value in enumerate(values or ()):
            cell = listed(value, recipe.columns.delimiter) if target.column == "categories" else value
            label = target.parsed(cell, names.label_of)
            if label is None:
                problems.add_row(row, f"column {name!r} does not hold {target.wanted}; correct or drop the row")
            yield label

    return converted(labels(), column.kept)


def _cells(column: pa.ChunkedArray | None) -> Collection[Any]:
    return () if column is None else Cells(column)


def _check_counts(
    features: Mapping[str, pa.ChunkedArray], labels: pa.ChunkedArray | None, recipe: Recipe, problems: Problems
) -> None:
    """Check that every row has as many tags as words."""
    if recipe.task.inputs.kind != "words" or labels is None or problems.sentences():
        return
    for row, (words, tags) in enumerate(zip(Cells(features["text"]), Cells(labels), strict=True)):
        if len(words) != len(tags):
            columns = f"columns {recipe.columns.text!r} and {recipe.columns.label!r}"
            problems.add_row(row, f"{columns} hold lists of different lengths; give each word one tag")


def _group_cells(table: Table, labels: pa.ChunkedArray | None, recipe: Recipe, problems: Problems) -> Collection[Any]:
    """The group of every row; where the label is the group, by the name that the recipe gives it."""
    group = recipe.partition.group
    if group is None or (labels is not None and group.column == recipe.columns.label):
        return _cells(labels)
    cells = column_values(table, group.column, may_be_categories, "a group is text, a number, true or false", problems)
    return cells or ()


def _label_set(
    labels: Iterable[Any], fixed: tuple[str, ...] | None, recipe: Recipe, problems: Problems
) -> tuple[str, ...]:
    """The label set: the run's, which is fixed; else the recipe's; else the labels in the data."""
    target = recipe.task.target
    if not target.has_labels:
        return ()
    declared = tuple(recipe.labels) if fixed is None and isinstance(recipe.labels, list) else fixed
    if declared is None:
        labels_found = tuple(
            sorted({name for label in labels if label is not None for name in target.labels_in(label)})
        )
        if len(labels_found) < 2:
            problems.add(f"labels: infer found {len(labels_found)} labels; a classifier needs at least 2")
        return labels_found
    known = set(declared)
    whose = "the declared labels; declare it" if fixed is None else "the run's labels, fixed at init; drop the row"
    for row, label in enumerate(labels):
        if label is not None and not known.issuperset(target.labels_in(label)):
            problems.add_row(row, f"the label (column {recipe.columns.label!r}) is outside {whose} or correct the row")
    return declared


class _LabelColumn(NamedTuple):
    """Reader of a label column."""

    fits: Callable[[pa.DataType], bool]
    """True if a column of that type may hold labels."""
    expected: str
    """Expected content, for messages."""
    kept: pa.DataType
    """Type of the records' column `label`."""


_LABEL_COLUMNS: Mapping[Kind, _LabelColumn] = {
    "category": _LabelColumn(may_be_categories, "a label is text, a number, true or false", pa.string()),
    "categories": _LabelColumn(may_be_lists, "labels are lists, or text with a delimiter", pa.list_(pa.string())),
    "number": _LabelColumn(may_be_numbers, "a regression's label is a number", pa.float64()),
}


def _content_ids(
    subjects: pa.ChunkedArray, labels: pa.ChunkedArray | None, features: Mapping[str, pa.ChunkedArray]
) -> pa.ChunkedArray:
    """The hash of content and subject: identical rows share it."""
    columns = [subjects, *([] if labels is None else [labels]), *(features[name] for name in sorted(features))]
    rows = zip(*map(Cells, columns), strict=True)
    return converted((hashlib.sha256(canonical_bytes(row)).hexdigest() for row in rows), pa.string())
