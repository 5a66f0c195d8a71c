"""The checks of records, window by window; and the records that they make of a table's columns.

A window keeps nothing of its records but what later rows are compared with: ids and groups of owners as hashes, and
the label set of `labels: infer`.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from s3t.errors import DataError
from s3t.recipe import Group, Recipe
from s3t.recipe.labels import LabelNames, alike, comparison_key, name_of
from s3t.records.canonical import canonical_bytes
from s3t.records.cells import Cells
from s3t.records.column_types import may_be_categories, may_be_lists, may_be_names, may_be_numbers
from s3t.records.columns import column_values, converted, converted_or_same, values_of
from s3t.records.features import read_features
from s3t.records.names import normal_form, space_problem, text_of
from s3t.records.problems import Problems
from s3t.records.reading import Table, columns_in_words
from s3t.records.repeats import Names
from s3t.tasks import Kind
from s3t.wording import did_you_mean


def groups_of(cells: Iterable[Any], group: Group, problems: Problems) -> list[str | None]:
    """The group of each row, from the cells of the group's column; None where it is a problem."""
    names = [name_of(cell) for cell in cells]
    keys = {comparison_key(name) for name in group.slices}
    for row, name in enumerate(names):
        if name is None:
            problems.add_row(row, f"the group (column {group.column!r}) is empty; give every record one")
        elif name not in group.slices and comparison_key(name) in keys:
            problems.add_row(
                row,
                f"the group (column {group.column!r}) differs from a declared one in blanks or Unicode form alone; "
                "write both alike",
            )
        elif name not in group.slices:
            problems.add_row(
                row,
                f"the group (column {group.column!r}) is outside the declared groups; declare it in "
                "partition.group or correct the row",
            )
    return [name if name in group.slices else None for name in names]


def among_of(groups: Iterable[str | None], group: Group) -> list[tuple[int, ...]]:
    """Slices of each row's group; KeyError if there was a problem."""
    spread: dict[str | None, tuple[int, ...]] = {name: group.among(name) for name in group.slices}
    return [spread[name] for name in groups]


class OneGroupEach:
    """Check that all rows of an owner have one group, since they lie in one slice. Takes 20 bytes of memory a row."""

    def __init__(self, owner_is: str, group: Group) -> None:
        self._owner_is, self._owners = owner_is, Names()
        self._numbers: dict[str | None, int] = {name: number for number, name in enumerate(group.slices)}
        self._groups = array("I")

    def add(self, owners: Iterable[str | None], groups: Sequence[str | None]) -> None:
        """Take in the next rows; an owner of None owns nothing."""
        each = list(zip(owners, groups, strict=False))  # where the column of groups is missing, there are none
        self._owners.add(None if group is None else owner for owner, group in each)
        self._groups.extend(self._numbers.get(group, 0) for _, group in each)

    def check(self, problems: Problems) -> None:
        """Add the rows whose owner has another group in an earlier row."""
        rows, firsts = self._owners.repeated()
        groups = np.frombuffer(self._groups, dtype=np.uintc)
        differ = groups[rows] != groups[firsts]
        problems.begin(0)
        for row, first in zip(rows[differ].tolist(), firsts[differ].tolist(), strict=True):
            problems.add_row(
                row,
                f"{self._owner_is} has another group here than in {problems.named(first)}; such records "
                "lie in one slice, so give them one group",
            )


class CheckedRows(NamedTuple):
    """A window of records without a problem."""

    rows: pa.Table
    among: list[tuple[int, ...]] | None
    """See `Records.among`."""


class Checks:
    """The checks of records, window by window.

    Args:
        table: the first window.
        fixed: the label set of a run, which cannot change any more; None: the recipe's.
    """

    def __init__(
        self, recipe: Recipe, table: Table, *, with_owners: bool, fixed: tuple[str, ...] | None = None
    ) -> None:
        self._recipe, self._where, self._fixed = recipe, table.where, fixed
        kind = recipe.task.target.column
        self._label_column = None if kind is None else _LABEL_COLUMNS[kind]
        self._columns = recipe.columns.model_copy(update={} if with_owners else {"id": None, "subject": None})
        self._group = recipe.partition.group if with_owners else None
        self._problems, self._column_problems = Problems(table.positions), Problems(table.positions)
        self._names: list[str] = list(table.rows.column_names)
        self._rows, self._refused = 0, False
        self._ids = Names()
        self._first_rows: dict[str, int] = {}
        """First row of each label, for `labels: infer`."""
        group = self._group
        self._groups_of_subjects = None if group is None else OneGroupEach("the subject", group)
        self._groups_of_ids = None if group is None else OneGroupEach("the same record", group)
        self._fields = self._wanted()

    def _wanted(self) -> dict[str, str]:
        """Columns that have to be there, and the recipe's fields that name them."""
        roles = self._columns.named()
        if self._label_column is None:
            roles = {role: names for role, names in roles.items() if role != "label"}
        fields = {name: f"columns.{role}" for role, names in roles.items() for name in names}
        if self._group is not None:
            fields.setdefault(self._group.column, "partition.group.column")
        return fields

    def window(self, table: Table) -> CheckedRows | None:
        """The records of the next window; None if there are problems in it, or were in an earlier one."""
        recipe, problems = self._recipe, self._problems
        problems.begin(table.first)
        table = self._with_known_columns(table)
        self._rows += table.rows.num_rows
        features = read_features(table, recipe, problems)
        labels = None if self._label_column is None else _labels(table, recipe, self._label_column, problems)
        missing = self._missing()
        if not missing:
            _check_counts(features, labels, recipe, problems)
        given = _subjects(table, self._columns.subject, problems)
        normal = (None if subject is None else normal_form(subject) for subject in Cells(given))
        subjects = converted_or_same(normal, pa.string(), pa.table({"given": given}), "given")
        ids = _declared_ids(table, self._columns.id, self._ids, problems)
        self._check_labels(_cells(labels), table.first)
        groups = self._groups(table, labels, subjects)
        if problems or missing:
            self._refused = True
            return None
        if self._columns.id is None or ids is None:
            # Of the subject as it is given, not in its normal form, so that `s3t ids` gives the ids of older runs, too.
            ids = _content_ids(given, labels, features)
            if groups is not None and self._groups_of_ids is not None:
                self._groups_of_ids.add(Cells(ids), groups)
        arrays = {"record": ids, "subject": subjects} | ({} if labels is None else {"label": labels})
        among = None if groups is None or self._group is None else among_of(groups, self._group)
        return CheckedRows(pa.table(arrays | features), among)

    def finish(self) -> tuple[str, ...]:
        """The label set, once all windows were looked at."""
        problems, target = self._problems, self._recipe.task.target
        problems.begin(0)
        check_columns(self._names, self._fields, self._column_problems, of_a_run=self._fixed is not None)
        for row, first in zip(*map(np.ndarray.tolist, self._ids.repeated()), strict=True):
            problems.add_row(
                row,
                f"the id (column {self._columns.id!r}) is a duplicate of {problems.named(first)}'s; ids must be "
                "unique, correct one of them",
            )
        if target.has_labels and self._declared() is None and len(self._first_rows) < 2:
            problems.add(f"labels: infer found {len(self._first_rows)} labels; a classifier needs at least 2")
        for first, *others in alike(self._first_rows):
            for other in others:
                like = f"{problems.named(self._first_rows[first])}'s"
                problems.add_row(self._first_rows[other], self._differs_unseen(like))
        if self._groups_of_subjects is not None:
            self._groups_of_subjects.check(problems)
        if self._rows == 0:
            problems.add("holds no records")
        if self._groups_of_ids is not None and not problems:
            self._groups_of_ids.check(problems)
        if found := self._column_problems.sentences() + problems.sentences():
            raise DataError(self._where, found)
        if self._refused:
            raise AssertionError("records without a problem were refused")
        if not target.has_labels:
            return ()
        declared = self._declared()
        return tuple(sorted(self._first_rows)) if declared is None else declared

    def _missing(self) -> bool:
        """True if a column that every record needs has not been there, or not once. A subject may still come."""
        needed = [name for name in self._fields if self._needs(name) or name in self._names]
        return any(self._names.count(name) != 1 for name in needed)

    def _needs(self, name: str) -> bool:
        """True if every record needs a value in a wanted column: in all but the subject's, unless it has the groups."""
        return name != self._columns.subject or (self._group is not None and name == self._group.column)

    def _with_known_columns(self, table: Table) -> Table:
        """The window with every wanted column that earlier ones had: JSON lines may leave out what is empty."""
        present = table.rows.column_names
        for name in present:
            if name not in self._names:
                self._names.append(name)
                if name in self._fields and self._needs(name):
                    row = self._problems.named(0)
                    self._problems.add(f"column {name!r} is missing before {row}; give every record one")
        rows = table.rows
        for name in self._fields:
            if name in self._names and name not in present:
                rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return replace(table, rows=rows)

    def _groups(
        self, table: Table, labels: pa.ChunkedArray | None, subjects: pa.ChunkedArray
    ) -> list[str | None] | None:
        if self._group is None:
            return None
        groups = groups_of(_group_cells(table, labels, self._recipe, self._problems), self._group, self._problems)
        if self._groups_of_subjects is not None:
            self._groups_of_subjects.add(Cells(subjects), groups)
        return groups

    def _declared(self) -> tuple[str, ...] | None:
        """The label set of the run or the recipe; None if it is the data's."""
        labels = self._recipe.labels
        return tuple(labels) if self._fixed is None and isinstance(labels, list) else self._fixed

    def _check_labels(self, labels: Iterable[Any], first: int) -> None:
        target, declared = self._recipe.task.target, self._declared()
        if not target.has_labels:
            return
        if declared is None:
            for row, label in enumerate(labels, start=first):
                for found in () if label is None else target.labels_in(label):
                    self._first_rows.setdefault(found, row)
            return
        known, name = set(declared), self._recipe.columns.label
        keys = {comparison_key(value) for value in (*declared, *(self._recipe.label_names or ()))}
        whose = "the declared labels; declare it"
        whose = whose if self._fixed is None else "the run's labels, fixed at init; drop the row"
        for row, label in enumerate(labels):
            stray = set() if label is None else set(target.labels_in(label)) - known
            if stray and keys.issuperset(map(comparison_key, stray)):
                self._problems.add_row(
                    row, self._differs_unseen("a declared one" if self._fixed is None else "the run's")
                )
            elif stray:
                self._problems.add_row(row, f"the label (column {name!r}) is outside {whose} or correct the row")

    def _differs_unseen(self, other: str) -> str:
        """The problem of a label that looks like another one."""
        name = self._recipe.columns.label
        return f"the label (column {name!r}) differs from {other} in blanks or Unicode form alone; write both alike"


def _like(name: str, present: Sequence[str], expected: Mapping[str, str]) -> str:
    """Suggested column; empty where the header may be a record (see `columns_in_words`)."""
    return did_you_mean(name, present) if set(present) & set(expected) else ""


def check_columns(present: Sequence[str], fields: dict[str, str], problems: Problems, *, of_a_run: bool) -> None:
    """Check that every column is there once; `fields` maps columns to the recipe's fields that name them."""
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


NAME_IS = "an id or a subject is text or a whole number"


def _declared_ids(table: Table, name: str | None, ids: Names, problems: Problems) -> pa.ChunkedArray | None:
    """The ids of a window's rows; `ids` takes in those that may be ids."""
    values = column_values(table, name, may_be_names, NAME_IS, problems)
    if name is None or values is None:
        return None
    records: list[str | None] = []
    for row, value in enumerate(values):
        text = text_of(value)
        problem = "is empty; give every record one" if text is None else space_problem(text)
        if problem is not None:
            problems.add_row(row, f"the id (column {name!r}) {problem}")
        records.append(None if text is None or problem is not None else normal_form(text))
    ids.add(records)
    return converted_or_same((record or "" for record in records), pa.string(), table.rows, name)


def _subjects(table: Table, name: str | None, problems: Problems) -> pa.ChunkedArray:
    values = column_values(table, name, may_be_names, NAME_IS, problems)
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
            cell = values_of(value, recipe.columns.delimiter) if target.column == "categories" else value
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
    if not recipe.task.inputs.in_words or labels is None or problems.sentences():
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
