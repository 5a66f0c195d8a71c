"""The checks of records, window by window; and the records that they make of a table's columns.

A window keeps nothing of its records but what later rows are compared with: ids and groups of owners as hashes, and
the label set of `labels: infer`.
"""

from __future__ import annotations

import functools
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
from s3t.records.features import read_features, values_of
from s3t.records.reading import Problems, Table, columns_in_words, converted
from s3t.records.requests import CellError, name_in, normal_form
from s3t.store.rows import Cells, DuplicateFinder, canonical_bytes
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
        for row, first in zip(rows[differ].tolist(), firsts[differ].tolist(), strict=True):
            problems.add(
                f"{self._owner_is} has another group here than in {problems.positions.named([first])}; such records "
                "lie in one slice, so give them one group",
                row,
            )


class CheckedRows(NamedTuple):
    rows: pa.Table
    among: list[tuple[int, ...]] | None
    """For each row, the slices of its shard that its group is spread over; None without groups. The group itself is not
    kept: the slice implies it."""


class Checks:
    """The checks of records, window by window. `fixed` is the label set of a run, which cannot change any more."""

    labels: tuple[str, ...] = ()
    """The label set, once all windows were looked at."""

    def __init__(self, recipe: Recipe, *, with_owners: bool = True, fixed: tuple[str, ...] | None = None) -> None:
        self._recipe, self._fixed = recipe, fixed
        self._columns = recipe.columns.model_copy(update={} if with_owners else {"id": None, "subject": None})
        self._group = group = recipe.partition.group if with_owners else None
        self._names: list[str] = []
        """Columns of the windows so far."""
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
        self._declared = tuple(recipe.labels) if fixed is None and isinstance(recipe.labels, list) else fixed
        """The label set of the run or the recipe; None if it is the data's."""

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
        labels = None if self._recipe.task.target.column is None else self._labels(table)
        if self._recipe.task.inputs.in_words and labels is not None:
            self._check_counts(table, features["text"], labels)
        # A column of nothing where there is none: then no record has a subject.
        given = table.cells(self._columns.subject, "name") or itertools.repeat(None, table.rows.num_rows)
        what = f"the subject (column {self._columns.subject!r})"
        owners = table.parsed(given, name_in, pa.string(), what=what)
        subjects = converted((owner and normal_form(owner) for owner in Cells(owners)), pa.string())
        ids = self._declared_ids(table)
        groups = None if self._group is None else self._groups(table, self._group, labels, subjects)
        if table.problems or self._missing():
            return None
        if ids is None:
            # Of the subject as it is given, not in its normal form, so that `s3t ids` gives the ids of older runs, too.
            columns = [owners, *([] if labels is None else [labels]), *(features[role] for role in sorted(features))]
            contents = zip(*map(Cells, columns), strict=True)
            ids = converted((hashlib.sha256(canonical_bytes(row)).hexdigest() for row in contents), pa.string())
            if groups is not None and self._groups_of_ids is not None:
                self._groups_of_ids.add(Cells(ids), groups)
        arrays = {"record": ids, "subject": subjects} | ({} if labels is None else {"label": labels})
        among = None if groups is None or self._group is None else among_of(groups, self._group)
        return CheckedRows(pa.table(arrays | features), among)

    def _finish(self, last: Table, rows: int) -> tuple[str, ...]:
        """The label set, if nothing is wrong with the rows together."""
        problems, target, named = last.problems, self._recipe.task.target, last.problems.positions.named
        check_columns(self._names, self._fields, problems, of_a_run=self._fixed is not None)
        for row, first in zip(*map(np.ndarray.tolist, self._ids.repeated()), strict=True):
            what = f"the id (column {self._columns.id!r}) is a duplicate of {named([first])}'s"
            problems.add(f"{what}; ids must be unique, correct one of them", row)
        if target.has_labels and self._declared is None and len(self._first_rows) < 2:
            problems.add(f"labels: infer found {len(self._first_rows)} labels; a classifier needs at least 2")
        for first_label, *others in alike(self._first_rows):
            like = f"{named([self._first_rows[first_label]])}'s"
            for other in others:
                what = f"the label (column {self._columns.label!r})"
                problems.add(f"{what} {_differs_unseen(like)}", self._first_rows[other])
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
        return tuple(sorted(self._first_rows)) if self._declared is None else self._declared

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
                row = table.problems.positions.named([table.first])
                table.problems.add(f"column {name!r} is missing before {row}; give every record one")
        self._names += new
        for name in self._fields:
            if name in self._names and name not in present:
                rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return replace(table, rows=rows)

    def _declared_ids(self, table: Table) -> pa.ChunkedArray | None:
        """The ids of a window's rows; the finder of duplicates takes in those that may be ids."""
        if (cells := table.cells(self._columns.id, "name")) is None:
            return None

        def record_id(cell: Any) -> str:
            if (name := name_in(cell)) is None:
                raise CellError("is empty; give every record one")
            return normal_form(name)

        ids = table.parsed(cells, record_id, pa.string(), what=f"the id (column {self._columns.id!r})")
        self._ids.add(Cells(ids))
        return ids

    def _labels(self, table: Table) -> pa.ChunkedArray:
        """The labels of a window's rows; those that are found are noted with their rows."""
        recipe, name, declared = self._recipe, self._columns.label, self._declared
        target, names, known = recipe.task.target, LabelNames(recipe), set(declared or ())
        keys = {comparison_key(value) for value in (*known, *(recipe.label_names or ()))}
        other, whose = "a declared one", "declared labels; declare it"
        if self._fixed is not None:
            other, whose = "the run's", "run's labels, fixed at init; drop the row"

        def label(cell: Any) -> Any:
            if target.column == "categories":
                cell = values_of(cell, recipe.columns.delimiter)
            label = target.parsed(cell, names.label_of)
            if label is None:
                raise CellError(f"does not hold {target.wanted}; correct or drop the row")
            if declared is not None and not known.issuperset(found := target.labels_in(label)):
                unseen = keys.issuperset(map(comparison_key, set(found) - known))
                raise CellError(_differs_unseen(other) if unseen else f"is outside the {whose} or correct the row")
            return label

        kind = target.column or "category"
        parse = functools.cache(label) if kind == "category" else label  # cells of a column have one type
        labels = table.parsed(table.cells(name, kind), parse, _LABELS[kind], what=f"the label (column {name!r})")
        if target.has_labels and declared is None:
            for row, given in enumerate(Cells(labels), start=table.first):
                for one in () if given is None else target.labels_in(given):
                    self._first_rows.setdefault(one, row)
        return labels

    def _check_counts(self, table: Table, texts: pa.ChunkedArray, labels: pa.ChunkedArray) -> None:
        for row, (words, tags) in enumerate(zip(Cells(texts), Cells(labels), strict=False)):
            if words is None or tags is None:
                continue
            if len(words) != len(tags):
                columns = f"columns {self._columns.text!r} and {self._columns.label!r}"
                table.wrong(row, f"{columns} hold lists of different lengths; give each word one tag")

    def _groups(
        self, table: Table, group: Group, labels: pa.ChunkedArray | None, subjects: pa.ChunkedArray
    ) -> list[str | None]:
        """The group of each row, None where it is a problem; if it is the label, by the label's name in the recipe."""
        by_label = labels is not None and group.column == self._columns.label
        keys = {comparison_key(name) for name in group.slices}

        def group_of(cell: Any) -> str | None:
            name = name_of(cell)
            if name in group.slices or (by_label and name is None):  # what is wrong with a label is told of it
                return name
            if name is None:
                raise CellError("is empty; give every record one")
            if comparison_key(name) in keys:
                raise CellError(_differs_unseen("a declared one"))
            raise CellError("is outside the declared groups; declare it in partition.group or correct the row")

        cells = Cells(labels) if by_label else table.cells(group.column, "category")
        what = f"the group (column {group.column!r})"
        groups: list[str | None] = table.parsed(cells, group_of, pa.string(), what=what).to_pylist()
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
