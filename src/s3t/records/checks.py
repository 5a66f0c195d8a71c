"""The checks of records, window by window; and the records that they make of a table's columns.

A window keeps nothing of its records but what later rows are compared with: ids and groups of owners as hashes, and
the label set of `labels: infer`.
"""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from s3t.errors import DataError
from s3t.recipe import Group, Recipe
from s3t.recipe.labels import LabelNames, alike, comparison_key, name_of
from s3t.records.columns import column_values, converted, parsed, values_of
from s3t.records.features import read_features
from s3t.records.reading import Problems, Table, columns_in_words
from s3t.records.requests import CellError, name_in, normal_form
from s3t.records.rows import Cells, DuplicateFinder, canonical_bytes
from s3t.tasks import Kind
from s3t.wording import did_you_mean

_LABELS: Mapping[Kind, pa.DataType] = {
    "category": pa.string(),
    "categories": pa.list_(pa.string()),
    "number": pa.float64(),
}
"""Type of the records' column `label`, by the kind of the label column."""


def among_of(groups: Iterable[str | None], group: Group) -> list[tuple[int, ...]]:
    """Slices of each row's group; KeyError if there was a problem."""
    spread: dict[str | None, tuple[int, ...]] = {name: group.among(name) for name in group.slices}
    return [spread[name] for name in groups]


class OneGroupEach:
    """Check that all rows of an owner have one group, since they lie in one slice. Takes 20 bytes of memory a row."""

    def __init__(self, owner_is: str, group: Group) -> None:
        self._owner_is, self._owners = owner_is, DuplicateFinder()
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
    rows: pa.Table
    among: list[tuple[int, ...]] | None
    """See `Records.among`."""


class Checks:
    """The checks of records, window by window.

    Args:
        fixed: the label set of a run, which cannot change any more; None: the recipe's.
    """

    labels: tuple[str, ...] = ()
    """The label set, once all windows were looked at."""

    def __init__(self, recipe: Recipe, *, with_owners: bool = True, fixed: tuple[str, ...] | None = None) -> None:
        self._recipe, self._fixed = recipe, fixed
        self._columns = recipe.columns.model_copy(update={} if with_owners else {"id": None, "subject": None})
        self._group = group = recipe.partition.group if with_owners else None
        self._names: list[str] = []
        self._ids = DuplicateFinder()
        self._first_rows: dict[str, int] = {}
        """First row of each label, for `labels: infer`."""
        self._groups_of_subjects = None if group is None else OneGroupEach("the subject", group)
        self._groups_of_ids = None if group is None else OneGroupEach("the same record", group)
        named = self._columns.named().items()
        self._fields = {name: f"columns.{role}" for role, names in named for name in names}
        """Columns that have to be there, and the recipe's fields that name them."""
        if recipe.task.target.column is None:
            self._fields.pop(self._columns.label, None)
        if group is not None:
            self._fields.setdefault(group.column, "partition.group.column")

    def checked(self, tables: Iterable[Table]) -> Iterator[CheckedRows]:
        """The records of each window, while there is no problem; those of all windows are told at their end."""
        table, rows = None, 0
        for table in tables:
            rows += table.rows.num_rows
            if (records := self._window(table)) is not None:
                yield records
        if table is not None:
            self.labels = self._finish(table, rows)

    def _window(self, table: Table) -> CheckedRows | None:
        """The records of the next window; None if there are problems in it, or were in an earlier one."""
        table = self._with_known_columns(table)
        features = read_features(table, self._recipe)
        labels = self._labels(table)
        if self._recipe.task.inputs.in_words and labels is not None:
            self._check_counts(table, features["text"], labels)
        given = self._subjects(table)
        subjects = converted((subject and normal_form(subject) for subject in Cells(given)), pa.string())
        ids = self._declared_ids(table)
        groups = self._groups(table, labels, subjects)
        if table.problems or self._missing():
            return None
        if ids is None:
            # Of the subject as it is given, not in its normal form, so that `s3t ids` gives the ids of older runs, too.
            columns = [given, *([] if labels is None else [labels]), *(features[role] for role in sorted(features))]
            contents = zip(*map(Cells, columns), strict=True)
            ids = converted((hashlib.sha256(canonical_bytes(row)).hexdigest() for row in contents), pa.string())
            if groups is not None and self._groups_of_ids is not None:
                self._groups_of_ids.add(Cells(ids), groups)
        arrays = {"record": ids, "subject": subjects} | ({} if labels is None else {"label": labels})
        among = None if groups is None or self._group is None else among_of(groups, self._group)
        return CheckedRows(pa.table(arrays | features), among)

    def _finish(self, last: Table, rows: int) -> tuple[str, ...]:
        """The label set, if nothing is wrong with the rows together."""
        problems, target = last.problems, self._recipe.task.target
        problems.begin(0)
        check_columns(self._names, self._fields, problems, of_a_run=self._fixed is not None)
        for row, first in zip(*map(np.ndarray.tolist, self._ids.repeated()), strict=True):
            problems.add_row(
                row,
                f"the id (column {self._columns.id!r}) is a duplicate of {problems.named(first)}'s; ids must be "
                "unique, correct one of them",
            )
        declared = self._declared()
        if target.has_labels and declared is None and len(self._first_rows) < 2:
            problems.add(f"labels: infer found {len(self._first_rows)} labels; a classifier needs at least 2")
        for first, *others in alike(self._first_rows):
            for other in others:
                like = f"{problems.named(self._first_rows[first])}'s"
                what = f"the label (column {self._recipe.columns.label!r})"
                problems.add_row(self._first_rows[other], f"{what} {_differs_unseen(like)}")
        if self._groups_of_subjects is not None:
            self._groups_of_subjects.check(problems)
        if rows == 0:
            problems.add("holds no records")
        if self._groups_of_ids is not None and not problems:
            self._groups_of_ids.check(problems)
        if problems:
            raise DataError(last.where, problems.sentences())
        if not target.has_labels:
            return ()
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
        rows, present = table.rows, table.rows.column_names
        new = [name for name in present if name not in self._names]
        for name in new if table.first else ():
            if name in self._fields and self._needs(name):
                row = table.problems.named(0)
                table.problems.add(f"column {name!r} is missing before {row}; give every record one")
        self._names += new
        for name in self._fields:
            if name in self._names and name not in present:
                rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return replace(table, rows=rows)

    def _declared_ids(self, table: Table) -> pa.ChunkedArray | None:
        """The ids of a window's rows; the finder of duplicates takes in those that may be ids."""
        values = column_values(table, self._columns.id, "name")
        if values is None:
            return None

        def record_id(cell: Any) -> str:
            name = name_in(cell)
            if name is None:
                raise CellError("is empty; give every record one")
            return normal_form(name)

        ids = parsed(table, values, record_id, pa.string(), what=f"the id (column {self._columns.id!r})")
        self._ids.add(Cells(ids))
        return ids

    def _subjects(self, table: Table) -> pa.ChunkedArray:
        """Subjects as they are given; null where there is none."""
        name = self._columns.subject
        values: Iterable[Any] | None = column_values(table, name, "name")
        if values is None:
            values = itertools.repeat(None, table.rows.num_rows)
        return parsed(table, values, name_in, pa.string(), what=f"the subject (column {name!r})")

    def _declared(self) -> tuple[str, ...] | None:
        """The label set of the run or the recipe; None if it is the data's."""
        labels = self._recipe.labels
        return tuple(labels) if self._fixed is None and isinstance(labels, list) else self._fixed

    def _labels(self, table: Table) -> pa.ChunkedArray | None:
        """The labels of a window's rows; None if the task reads none."""
        recipe = self._recipe
        target, name, declared = recipe.task.target, recipe.columns.label, self._declared()
        if target.column is None:
            return None
        names = LabelNames(recipe)

        def label(cell: Any) -> Any:
            if target.column == "categories":
                cell = values_of(cell, recipe.columns.delimiter)
            label = target.parsed(cell, names.label_of)
            if label is None:
                raise CellError(f"does not hold {target.wanted}; correct or drop the row")
            return label

        values = column_values(table, name, target.column)
        labels = parsed(table, values, label, _LABELS[target.column], what=f"column {name!r}")
        if not target.has_labels:
            return labels
        known = set(declared or ())
        keys = {comparison_key(value) for value in (*known, *(recipe.label_names or ()))}
        other, whose = "a declared one", "declared labels; declare it"
        if self._fixed is not None:
            other, whose = "the run's", "run's labels, fixed at init; drop the row"
        for row, given in enumerate(Cells(labels)):
            found = () if given is None else target.labels_in(given)
            if declared is None:
                for one in found:
                    self._first_rows.setdefault(one, table.first + row)
            elif stray := set(found) - known:
                problem = f"is outside the {whose} or correct the row"
                if keys.issuperset(map(comparison_key, stray)):
                    problem = _differs_unseen(other)
                table.problems.add_row(row, f"the label (column {name!r}) {problem}")
        return labels

    def _check_counts(self, table: Table, texts: pa.ChunkedArray, labels: pa.ChunkedArray) -> None:
        for row, (words, tags) in enumerate(zip(Cells(texts), Cells(labels), strict=False)):
            if words is None or tags is None:
                continue
            if len(words) != len(tags):
                columns = f"columns {self._columns.text!r} and {self._columns.label!r}"
                table.problems.add_row(row, f"{columns} hold lists of different lengths; give each word one tag")

    def _groups(
        self, table: Table, labels: pa.ChunkedArray | None, subjects: pa.ChunkedArray
    ) -> list[str | None] | None:
        """The group of each row, None where it is a problem; if it is the label, by the label's name in the recipe."""
        group = self._group
        if group is None:
            return None
        if labels is not None and group.column == self._columns.label:
            cells: Cells | None = Cells(labels)
        else:
            cells = column_values(table, group.column, "category")
        names = list(map(name_of, cells or ()))
        keys = {comparison_key(name) for name in group.slices}
        for row, name in enumerate(names):
            if name in group.slices:
                continue
            problem = "is outside the declared groups; declare it in partition.group or correct the row"
            if name is None:
                problem = "is empty; give every record one"
            elif comparison_key(name) in keys:
                problem = _differs_unseen("a declared one")
            table.problems.add_row(row, f"the group (column {group.column!r}) {problem}")
        groups = [name if name in group.slices else None for name in names]
        if self._groups_of_subjects is not None:
            self._groups_of_subjects.add(Cells(subjects), groups)
        return groups


def _differs_unseen(other: str) -> str:
    return f"differs from {other} in blanks or Unicode form alone; write both alike"


def check_columns(present: Sequence[str], fields: dict[str, str], problems: Problems, *, of_a_run: bool) -> None:
    """Check that every column is there once; `fields` maps columns to the recipe's fields that name them."""
    remedy = "correct the data's column names" + ("" if of_a_run else ", or the recipe's columns")
    is_header = bool(set(present) & set(fields))  # else it may be a record (see `columns_in_words`)
    for name, field in fields.items():
        count = present.count(name)
        if count == 0:
            problems.add(
                f"column {name!r} is missing ({field}); {columns_in_words(present, fields)}"
                f"{did_you_mean(name, present) if is_header else ''}: {remedy}"
            )
        elif count > 1:
            problems.add(f"column {name!r} occurs {count} times; name each column once")
