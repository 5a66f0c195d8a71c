"""Ingestion of a table into records, checked against the recipe, with the columns `record` (id), `subject` (or null),
`label`, with `retention` the `date`, and the features by role: `text`, `text_pair`, `image` (encoded bytes), ...

Nothing is fitted on the data but the label set of `labels: infer`, which is why that one is a gap (docs/guarantees.md).
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import itertools
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from PIL import Image

from s3t.core import Secret
from s3t.errors import DataError
from s3t.recipe import Group, Recipe
from s3t.recipe.labels import alike, comparison_key, label_of, name_of
from s3t.recipe.schema import is_template
from s3t.records.features import read_features, read_prompts, values_of
from s3t.records.images import as_png
from s3t.records.reading import (
    Data,
    Problems,
    Table,
    columns_in_words,
    converted,
    format_named,
    is_of,
    read_data,
    read_windows,
)
from s3t.records.requests import CellError, is_unicode, name_in, normal_form, text_of
from s3t.records.splitting import Split
from s3t.store.rows import NO_DATE, Cells, DuplicateFinder, canonical_bytes
from s3t.store.tables import rows_at
from s3t.tasks import Kind
from s3t.wording import did_you_mean

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Inputs: TypeAlias = (
    "Data | Sequence[str] | Sequence[tuple[str, str]] | Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]] | "
    "Sequence[Image.Image] | Sequence[bytes] | pd.Series[Any] | NDArray[Any]"
)
"""Inputs of a prediction: data; texts, pairs, images or rows, in a list, a series or an array; a mapping of columns."""

_WHERE = "the inputs"
_LINE_END = re.compile(r"\r\n?|\n")
_LABELS: Mapping[Kind, pa.DataType] = {
    "category": pa.string(),
    "categories": pa.list_(pa.string()),
    "number": pa.float64(),
}
"""Type of the records' column `label`, by the kind of the label column."""


class Records(NamedTuple):
    """Checked records, or a window of them."""

    rows: pa.Table
    """Our columns (see the module)."""
    among: Sequence[tuple[int, ...]] | None
    """For each row, the slices of its shard that its group is spread over; None without groups."""
    problems: Problems
    """Problems of the data, reported all at once after the last window."""
    labels: tuple[str, ...] = ()
    """The label set, declared or inferred, once all windows are checked; empty for regression."""


def ingest(data: Data, recipe: Recipe) -> Records:
    return Checks(recipe).whole(data)


def ingest_into(split: Split | None, data: Data, recipe: Recipe) -> tuple[str, ...]:
    """Check the records to train on, and divide them into slices, if they are not only to be checked; the label set.
    Memory holds a window of records, and 16 bytes of each record's id where the data has ids.
    """
    checks = Checks(recipe)
    for records in checks.windows(data):
        if split is not None:
            split.add(records.rows, records.among)
    return checks.labels


def ingest_sample(
    data: Data, recipe: Recipe, count: int, *, secret: Secret, with_owners: bool = True
) -> tuple[Records, int]:
    """The `count` records whose ids have the least keyed hashes, each once; and how many there are in all. Memory holds
    these and a window."""
    checks, kept, total = Checks(recipe, with_owners=with_owners), None, 0
    for records in checks.windows(data):
        total += records.rows.num_rows
        rows = records.rows if kept is None else pa.concat_tables([kept.rows, records.rows])
        places = {secret.token("order", "record", id): place for place, id in enumerate(Cells(rows["record"]))}
        kept = Records(rows_at(rows, [places[token] for token in sorted(places)[:count]]), None, records.problems)
    if kept is None:
        raise ValueError("the checks refuse data without a window")
    return kept._replace(labels=checks.labels), total


def ingest_labelled(data: Data, recipe: Recipe, *, labels: tuple[str, ...] | None = None) -> Records:
    """Records to evaluate on, without ids, subjects and groups. `labels` are a run's."""
    return Checks(recipe, with_owners=False, fixed=labels).whole(data)


def record_ids(data: Data, recipe: Recipe) -> list[str]:
    """The id of every row, as `init` would give it: what `delete` needs where the data has no id column."""
    return list(ingest(data, recipe).rows["record"].to_pylist())


def among_of(groups: Iterable[str | None], group: Group) -> list[tuple[int, ...]]:
    """Slices of each row's group; KeyError if there was a problem."""
    spread: dict[str | None, tuple[int, ...]] = {name: group.among(name) for name in group.slices}
    return [spread[name] for name in groups]


class OneGroupEach:
    """Check that all rows of an owner have one group, since they lie in one slice. Takes 20 bytes of memory a row."""

    def __init__(self, owner_is: str) -> None:
        self._owner_is, self._owners = owner_is, DuplicateFinder()
        self._numbers: dict[str | None, int] = {}
        self._groups = array("I")

    def add(self, owners: Iterable[str | None], groups: Sequence[str | None]) -> None:
        """Take in the next rows; an owner of None owns nothing."""
        each = list(zip(owners, groups, strict=False))  # where the column of groups is missing, there are none
        self._owners.add(None if group is None else owner for owner, group in each)
        self._groups.extend(self._numbers.setdefault(group, len(self._numbers)) for _, group in each)

    def check(self, problems: Problems) -> None:
        """Add the rows whose owner has another group in an earlier row."""
        rows, firsts = self._owners.repeated()
        groups = np.frombuffer(self._groups, dtype=np.uintc)
        differ = groups[rows] != groups[firsts]
        for row, first in zip(rows[differ].tolist(), firsts[differ].tolist(), strict=True):
            where = problems.positions.named([first])
            remedy = "such records lie in one slice, so give them one group"
            problems.add(f"{self._owner_is} has another group here than in {where}; {remedy}", row)


class Checks:
    """The checks of records, window by window. `fixed` is the label set of a run; `old`: records that are older than
    `retention` allows are no problem.

    Of a window's records it keeps what later rows are compared with: ids and groups of owners as hashes, and the label
    set of `labels: infer`.
    """

    labels: tuple[str, ...] = ()
    """The label set, once all windows were looked at."""

    def __init__(
        self, recipe: Recipe, *, with_owners: bool = True, fixed: tuple[str, ...] | None = None, old: bool = False
    ) -> None:
        self._recipe, self._fixed = recipe, fixed
        self._retention = retention = recipe.retention if with_owners else None
        self._oldest = "" if retention is None or old else retention.oldest()
        tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)  # clocks differ
        self._newest = tomorrow.date().isoformat()
        self._columns = recipe.columns.model_copy(update={} if with_owners else {"id": None, "subject": None})
        self._group = group = recipe.partition.group if with_owners else None
        self._names: list[str] = []
        """Columns of the windows so far."""
        self._ids = DuplicateFinder()
        self._first_rows: dict[str, int] = {}
        """First row of each label, for `labels: infer`."""
        self._groups_of_subjects, self._groups_of_ids = OneGroupEach("the subject"), OneGroupEach("the same record")
        named = self._columns.named().items()
        self._fields = {name: f"columns.{role}" for role, names in named for name in names}
        """Columns that have to be there, and the recipe's fields that name them."""
        if recipe.task.target.column is None:
            self._fields.pop(self._columns.label, None)
        if group is not None:
            self._fields.setdefault(group.column, "partition.group.column")
        if retention is not None:
            self._fields.setdefault(retention.column, "retention.column")
        self._declared = tuple(recipe.labels) if fixed is None and isinstance(recipe.labels, list) else fixed
        """The label set of the run or the recipe; None if it is the data's."""

    def whole(self, data: Data) -> Records:
        (records,) = self._checked([read_data(data, columns=_kinds(self._recipe))])
        return records._replace(labels=self.labels)

    def windows(self, data: Data) -> Iterator[Records]:
        size = self._recipe.task.inputs.window_rows
        return self._checked(read_windows(data, columns=_kinds(self._recipe), size=size))

    def _checked(self, tables: Iterable[Table]) -> Iterator[Records]:
        """The records of each window, while there is no problem; those of all windows are told at their end."""
        rows = 0
        for table in tables:  # at least one
            rows += table.rows.num_rows
            if (records := self._window(table)) is not None:
                yield records
        self.labels = self._finish(table, rows)

    def _window(self, table: Table) -> Records | None:
        """The records of the next window; None if there are problems in it, or were in an earlier one."""
        table = self._with_known_columns(table)
        self._check_quotes(table)
        features = read_features(table, self._recipe)
        labels = None if self._recipe.task.target.column is None else self._labels(table)
        if self._recipe.task.inputs.kind == "words" and labels is not None:
            for row, (words, tags) in enumerate(zip(Cells(features["text"]), Cells(labels), strict=False), table.first):
                if words is not None and tags is not None and len(words) != len(tags):
                    names = f"columns {self._columns.text!r} and {self._columns.label!r}"
                    table.problems.add(f"{names} hold lists of different lengths; give each word one tag", row)
        # A column of nothing where there is none: then no record has a subject.
        subject, nobody = self._columns.subject, itertools.repeat(None, table.rows.num_rows)
        given = table.cells(subject, "name") or nobody
        owners = table.column(subject, "name", name_in, what="the subject", cells=given)
        subjects = converted(owner and normal_form(owner) for owner in Cells(owners))
        ids = self._declared_ids(table)
        groups = None if self._group is None else self._groups(table, self._group, labels, subjects)
        kept = self._retention
        dates = {} if kept is None else {"date": table.column(kept.column, "date", self._date, what="the date")}
        if table.problems or self._missing():
            return None
        if ids is None:
            # Of the subject as it is given, not in its normal form, so that `s3t ids` gives the ids of older runs, too.
            columns = [owners, *([] if labels is None else [labels]), *(features[role] for role in sorted(features))]
            contents = zip(*map(Cells, columns), strict=True)
            ids = converted(hashlib.sha256(canonical_bytes(row)).hexdigest() for row in contents)
            if groups is not None:
                self._groups_of_ids.add(Cells(ids), groups)
        arrays = {"record": ids, "subject": subjects} | dates | ({} if labels is None else {"label": labels})
        among = None if groups is None or self._group is None else among_of(groups, self._group)
        return Records(pa.table(arrays | features), among, table.problems)

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
        self._groups_of_subjects.check(problems)
        if rows == 0:
            problems.add("holds no records")
        if not problems:
            self._groups_of_ids.check(problems)
        problems.refuse()
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

    def _check_quotes(self, table: Table) -> None:
        """Look for rows of other people within a cell, where a stray quote and a later one put them. Then each line of
        the cell is a row, the first and the last one with the row's own cells, and none has the id of another row.
        One has a known label; or its id, subject and number look like others', with a digit or a known subject."""
        rows, delimiter, columns = table.rows, table.problems.positions.delimiter, self._columns
        names, of_numbers = rows.column_names, self._recipe.task.target.column == "number"
        wanted = (columns.id, columns.subject, columns.label)
        id, subject, label = (names.index(name) if name in names else -1 for name in wanted)
        telling = {id, subject, label} - {-1}
        if delimiter is None or not telling:
            return

        def values(at: int, cell: str) -> set[str]:
            return {*cell.split((at == label and columns.delimiter) or "\0")} - {""}

        @functools.cache
        def known(at: int) -> set[str]:
            declared = (self._declared or ()) if at == label else ()
            return {*declared, *(value for cell in Cells(rows.column(at)) for value in values(at, cell))}

        @functools.cache
        def looks(at: int) -> set[str]:
            return {*map(_look, known(at))}

        @functools.cache
        def lengths() -> set[int]:
            return {len(name) + more for name in known(id) for more in (-1, 0, 1)}

        def fits(cells: list[str]) -> bool:
            if len(cells) != len(names) or id < 0 or not cells[id]:
                return len(cells) == len(names)
            return cells[id] not in known(id) and len(cells[id]) in lengths()

        def is_told(cells: list[str]) -> bool:
            if label >= 0 and not of_numbers and cells[label] and values(label, cells[label]) <= known(label):
                return True
            found = {
                at: _look(cells[at])
                for at in telling - (set() if of_numbers else {label})
                if cells[at] and not (at > 0 and cells[at].isdigit() and cells[at - 1][-1:].isdigit())  # as in 1,000
            }
            is_known = subject in found and cells[subject] in known(subject)
            return (
                not any(cell.startswith(" ") for cell in cells[1:])  # people write a blank after a comma
                and all(look in looks(at) for at, look in found.items())
                and (is_known or any({"0", "@"} & {*look} for look in found.values()))
            )

        for place, name in enumerate(names):
            for row, cell in enumerate(Cells(rows.column(place)), table.first):
                if not cell or not ("\n" in cell or "\r" in cell):
                    continue
                *lines, last = _LINE_END.split(delimiter * place + cell + delimiter * (len(names) - 1 - place))
                within = [line.split(delimiter) for line in (*filter(None, lines), last)]
                if all(map(fits, within)) and any(map(is_told, within)):
                    what = f"column {name!r} holds other rows, between a stray quote and the next one"
                    remedy = 'take the quotes away, or double them (""), or, if the text is so, give JSON lines'
                    table.problems.add(f"{what}; {remedy}", row)

    def _declared_ids(self, table: Table) -> pa.ChunkedArray | None:
        """The ids of a window's rows; the finder of duplicates takes in those that may be ids."""
        if table.cells(self._columns.id, "name") is None:
            return None

        def record_id(cell: Any) -> str:
            if (name := name_in(cell)) is None:
                raise CellError("is empty; give every record one")
            return normal_form(name)

        ids = table.column(self._columns.id, "name", record_id, what="the id")
        self._ids.add(Cells(ids))
        return ids

    def _labels(self, table: Table) -> pa.ChunkedArray:
        """The labels of a window's rows; those that are found are noted with their rows."""
        recipe, name, declared = self._recipe, self._columns.label, self._declared
        target, known = recipe.task.target, set(declared or ())
        by_value = {label: label for label in known} | (recipe.label_names or {})
        named, keys = functools.partial(label_of, labels=by_value), set(map(comparison_key, by_value))
        other, whose = "a declared one", "declared labels; declare it"
        if self._fixed is not None:
            more = "to which `s3t add --new-labels` adds" if recipe.takes_new_labels else "fixed at init"
            other, whose = "the run's", f"run's labels, {more}; drop the row"

        def label(cell: Any) -> Any:
            if target.column == "categories":
                cell = values_of(cell, recipe.columns.delimiter)
            label = target.parsed(cell, named)
            if label is None:
                raise CellError(f"does not hold {target.wanted}; correct or drop the row")
            if declared is not None and not known.issuperset(found := target.labels_in(label)):
                unseen = keys.issuperset(map(comparison_key, set(found) - known))
                raise CellError(_differs_unseen(other) if unseen else f"is outside the {whose} or correct the row")
            return label

        kind = target.column or "category"
        parse = functools.cache(label) if kind == "category" else label  # cells of a column have one type
        labels = table.column(name, kind, parse, _LABELS[kind], what="the label")
        if target.has_labels and declared is None:
            for row, given in enumerate(Cells(labels), start=table.first):
                for one in () if given is None else target.labels_in(given):
                    self._first_rows.setdefault(one, row)
        return labels

    def _date(self, cell: Any) -> str:
        """The date of a cell, of a time the date in UTC."""
        if cell is None or cell == "":
            raise CellError("is empty; give every record one")
        if isinstance(cell, str):
            try:
                cell = datetime.datetime.fromisoformat(cell)
            except ValueError:
                raise CellError("is none by ISO 8601; write 2026-11-30, or 2026-11-30T08:15:00Z") from None
        if isinstance(cell, datetime.datetime) and cell.tzinfo is not None:
            try:
                cell = cell.astimezone(datetime.UTC)
            except OverflowError:  # of the first or the last year
                raise CellError("has no date in UTC; correct it") from None
        if cell is NO_DATE:
            raise CellError("is beyond the year 9999, or before the first; correct it")
        if not isinstance(cell, datetime.date):
            raise CellError("is a time without a date; give the date, too")
        date = datetime.date(cell.year, cell.month, cell.day).isoformat()
        if date < self._oldest:
            raise CellError("is older than retention.days allows; drop the row")
        if date > self._newest:
            raise CellError("lies in the future; correct it")
        return date

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

        cells = Cells(labels) if labels is not None and by_label else None
        column = table.column(group.column, "category", group_of, what="the group", cells=cells)
        groups: list[str | None] = column.to_pylist()
        self._groups_of_subjects.add(Cells(subjects), groups)
        return groups


def _look(name: str) -> str:
    """What a name looks like: 0 for each word with a digit, else a; and # if it has no letter.

    >>> _look("c-7 b"), _look("ann.lee@x.org"), _look("1.5")
    ('0 a', 'a@a', '0#')
    """
    words = re.sub(r"[\w.+-]+", lambda word: "0" if re.search(r"\d", word[0]) else "a", name)
    return words if name.upper() != name.lower() else f"{words}#"


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


# Inputs of predictions.


class IngestedInputs(NamedTuple):
    """Inputs to predict."""

    features: pa.Table
    ids: list[str] | None
    """Ids, if the data has the id column."""
    places: Sequence[int]
    """Line of each input in a CSV or JSON lines file, else its row from 0."""


def ingest_inputs(inputs: Inputs, recipe: Recipe) -> IngestedInputs:
    return _checked_inputs(read_data(_as_data(inputs, recipe), columns=_kinds(recipe)), recipe)


def ingest_prompts(inputs: Inputs, recipe: Recipe) -> IngestedInputs:
    """Prompts of a language model: the recipe's column of prompts, of chats up to the assistant's turn, or of texts."""
    given = recipe.columns.named().keys()
    role = next(form[0] for form in recipe.task.inputs.forms if given >= set(form))
    return _checked_inputs(read_data(_as_data(inputs, recipe, role=role), columns=_kinds(recipe)), recipe, role=role)


def ingest_windows(
    source: str | Path | BinaryIO, form: str | None, recipe: Recipe, *, size: int
) -> Iterator[IngestedInputs]:
    """Inputs from a file, or an open pipe of CSV or JSON lines, `size` at a time; a window is read when asked for."""
    for table in read_windows(source, columns=_kinds(recipe), size=size, form=form):
        yield _checked_inputs(table, recipe)


def _checked_inputs(table: Table, recipe: Recipe, *, role: str | None = None) -> IngestedInputs:
    """Inputs of all roles that the task has; or prompts, of one."""
    wanted = recipe.task.inputs.roles if role is None else (role,)
    named = recipe.columns.named().items()
    needed = {name: f"columns.{role}" for role, names in named if role in wanted for name in names}
    check_columns(table.rows.column_names, needed, table.problems, of_a_run=True)
    features = read_features(table, recipe) if role is None else read_prompts(table, recipe, role)
    ids = table.cells(recipe.columns.id, "name")
    table.problems.refuse()
    given = None if ids is None else [text_of(value) or "" for value in ids]
    places = table.problems.positions.numbers(range(table.first, table.first + table.rows.num_rows))
    return IngestedInputs(pa.table(features), given, places)


def _kinds(recipe: Recipe) -> dict[str, Kind]:
    kinds: dict[str, Kind | None] = {"id": "name", "subject": "name", "label": recipe.task.target.column}
    kinds |= {role: recipe.task.inputs.column_kind(role) for role in recipe.task.inputs.roles}
    named = recipe.columns.named().items()
    columns = {name: kind for role, names in named if (kind := kinds[role]) is not None for name in names}
    if recipe.partition.group is not None:
        columns.setdefault(recipe.partition.group.column, "category")
    if recipe.retention is not None:
        columns.setdefault(recipe.retention.column, "date")
    return columns


def _as_data(inputs: Inputs, recipe: Recipe, *, role: str | None = None) -> Data:
    """Inputs as data: files and tables as they are, all else as rows with the recipe's columns, or those of a role."""
    if isinstance(inputs, str):
        if format_named(Path(inputs)) is None:
            raise DataError(_WHERE, "are one string, which names no data file; pass a file, or the text in a list")
        return inputs
    if isinstance(inputs, Image.Image | bytes):
        raise DataError(_WHERE, "are one image; pass it in a list")
    if isinstance(inputs, Mapping):
        given = {str(name): _items(column) for name, column in inputs.items()}
        if single := [name for name, column in given.items() if not isinstance(column, list)]:
            listed = ", ".join(map(repr, single))
            raise DataError(_WHERE, f"are a mapping whose {listed} is no list; give a list a column, or a list of rows")
        if len({len(column) for column in given.values()}) > 1:
            raise DataError(_WHERE, "are columns of different lengths; give each as many rows")
        if not all(map(is_unicode, given)):
            raise DataError(_WHERE, "have a name that holds half a surrogate pair, which is no text; correct it")
        rows = [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]
        return rows or pa.table({name: [] for name in given})
    items = _items(inputs)
    if not isinstance(items, list):
        return inputs
    columns, taken, named = recipe.columns, recipe.task.inputs, recipe.columns.named()
    names = list(dict.fromkeys(name for one in ([role] if role else taken.roles) for name in named.get(one, ())))
    if not items:
        if taken.has_tokens and not is_template(columns.text or ""):
            return pa.table({name: [] for name in names})
        raise DataError(_WHERE, "are an empty list; pass at least one row")
    if all(isinstance(item, Mapping) for item in items):
        return items
    has = f"the recipe's inputs have {', '.join(names)}"
    if taken.kind == "image":
        items = _encoded(items)
    elif taken.kind == "words":
        items = [list(item) if isinstance(item, list | tuple | np.ndarray) else item for item in items]
        if columns.delimiter is None and not all(isinstance(item, list) for item in items):
            raise DataError(_WHERE, f"are neither lists of words nor rows; {has}")
    elif taken.kind == "text" and (is_template(columns.text or "") or is_template(columns.text_pair or "")):
        problem = f"are no rows, and the recipe puts texts together from {', '.join(names)}; pass rows that have them"
        raise DataError(_WHERE, problem)
    elif taken.kind == "text" and columns.text_pair is not None:
        if not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
            raise DataError(_WHERE, f"are neither pairs of texts nor rows; {has}")
        return [dict(zip(names, item, strict=True)) for item in items]
    elif taken.kind == "text" and not all(isinstance(item, str | None) for item in items):
        raise DataError(_WHERE, f"are neither texts nor rows; {has}")
    elif len(names) > 1 or not all(isinstance(item, str | list | None) for item in items):
        raise DataError(_WHERE, f"are no rows; {has}")
    return [{names[0]: item} for item in items]


def _items(inputs: Any) -> Any:
    """A series, an array or a tuple as a list, missing values as None; anything else is returned unchanged."""
    if is_of(inputs, "pandas", "Series", "Index"):
        inputs = inputs.tolist()
    if isinstance(inputs, np.ndarray):
        # An array of numbers is images, the first axis counting them; of text or objects, texts or rows.
        inputs = list(inputs) if inputs.dtype.kind in "uif" and inputs.ndim > 1 else inputs.tolist()
    if isinstance(inputs, list | tuple):
        return [None if isinstance(item, float) and math.isnan(item) else item for item in inputs]
    return inputs


def _encoded(items: list[Any]) -> list[Any]:
    """Images in memory as PNG files of their pictures; bytes and paths as they are."""
    encoded, problems = [], []
    for row, item in enumerate(items):
        try:
            if isinstance(item, np.ndarray):
                item = _image(item)
            encoded.append(as_png(item) if isinstance(item, Image.Image) else item)
        except DataError as error:
            problems.append(f"row {row}: the image {error.problems[0]}")
    if problems:
        raise DataError(_WHERE, problems)
    return encoded


def _image(pixels: NDArray[Any]) -> Image.Image:
    channels = 1 if pixels.ndim == 2 else pixels.shape[-1]
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or channels not in (1, 3, 4) or 0 in pixels.shape:
        what = f"is an array of {pixels.dtype} and shape {pixels.shape}"
        raise DataError("the image", f"{what}; give uint8, height x width, or x 3 or 4 channels")
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and channels == 1 else pixels)
