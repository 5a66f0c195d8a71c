"""From a table as read to records: checked against the recipe, in our columns and plain types.

Records have the columns `record` (id), `subject` (or null), `label`, and the features: `text` (and `text_pair`), or
`image` (encoded bytes). Rows are counted from 0 in messages. Nothing is fitted on the data but the label set of
`labels: infer`, which is why that one is a gap (docs/guarantees.md).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image

from s3t.errors import DataError
from s3t.recipe import Recipe
from s3t.recipe.template import filled, is_template, template_columns
from s3t.records.canonical import canonical_bytes
from s3t.records.groups import RowGroups
from s3t.records.problems import Problems
from s3t.records.reading import Data, Inputs, Table, inputs_as_data, read_data
from s3t.records.values import name_of, number_of


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


def ingest_labelled(data: Data, recipe: Recipe) -> Records:
    """Records to evaluate on: features and labels; ids, subjects and groups are not looked at.

    Raises:
        DataError: as `ingest`.
    """
    return _checked(_read(data, recipe), recipe, with_owners=False)


def _checked(table: Table, recipe: Recipe, *, with_owners: bool) -> Records:
    problems = Problems()
    roles = {
        role: names for role, names in recipe.columns.named().items() if with_owners or role not in ("id", "subject")
    }
    group = recipe.partition.group if with_owners else None
    fields = {name: f"columns.{role}" for role, names in roles.items() for name in names}
    if group is not None:
        fields.setdefault(group.column, "partition.group.column")
    _check_columns(table, fields, problems)
    features = _features(table, recipe, problems)
    labels = _labels(table, recipe, problems)
    subjects = _subjects(table, recipe.columns.subject if with_owners else None)
    ids = _declared_ids(table, recipe.columns.id if with_owners else None, problems)
    declared = recipe.labels if isinstance(recipe.labels, list) else None
    names = _label_set(labels, declared, recipe, problems)
    groups = None if group is None else RowGroups(group, _column(table, group.column) or [], problems)
    if groups is not None:
        groups.check_one_each("subject {!r}", subjects)
    if table.rows.num_rows == 0:
        problems.add("holds no records")
    if problems.sentences():
        raise DataError(table.where, problems.sentences())
    if ids is None:
        ids = _content_ids(subjects, labels, features)
        if groups is not None:
            groups.check_one_each("the same record", ids)
    if problems.sentences():
        raise DataError(table.where, problems.sentences())
    label_type = pa.float64() if recipe.task.is_regression else pa.string()
    arrays = {"record": pa.array(ids, pa.string()), "subject": pa.array(subjects, pa.string())}
    arrays["label"] = pa.array(labels, label_type)
    among = None if groups is None else groups.among()
    return Records(rows=pa.table(arrays | features), labels=names, among=among)


def ingest_inputs(inputs: Inputs, recipe: Recipe) -> tuple[pa.Table, list[str] | None]:
    """Inputs to predict: the feature columns, and the ids where the data has the id column (else None).

    Raises:
        DataError: as `ingest`, for the feature columns alone.
    """
    columns = recipe.columns
    one_column = None if is_template(columns.text or "") else columns.text
    if one_column is None and recipe.task.is_text and _are_texts(inputs):
        raise DataError(
            "the inputs", [f"are texts, but columns.text is {columns.text!r}; pass rows that have its columns"]
        )
    table = _read(inputs_as_data(inputs, text_column=one_column), recipe)
    problems = Problems()
    features_of = ("text", "text_pair", "image")
    named = columns.named().items()
    needed = {name: f"columns.{role}" for role, names in named if role in features_of for name in names}
    _check_columns(table, needed, problems)
    features = _features(table, recipe, problems)
    if problems.sentences():
        raise DataError(table.where, problems.sentences())
    ids = _column(table, columns.id)
    return pa.table(features), None if ids is None else [name_of(value) or "" for value in ids]


def _are_texts(inputs: Inputs) -> bool:
    return isinstance(inputs, list | tuple) and bool(inputs) and all(isinstance(item, str) for item in inputs)


def record_ids(data: Data, recipe: Recipe) -> list[str]:
    """The id of every row, as `init` would give it: what `delete` needs where the data has no id column.

    Raises:
        DataError: as `ingest`.
    """
    ids: list[str] = ingest(data, recipe).rows["record"].to_pylist()
    return ids


def _read(data: Data, recipe: Recipe) -> Table:
    names = recipe.columns.named()
    numeric = {"label"} if recipe.task.is_regression else set()
    text_columns = [name for role, columns in names.items() if role not in numeric for name in columns]
    if recipe.partition.group is not None:
        text_columns.append(recipe.partition.group.column)
    return read_data(data, text_columns=tuple(text_columns))


def _check_columns(table: Table, fields: dict[str, str], problems: Problems) -> None:
    """That every column is there, once; `fields` says which of the recipe's fields names it."""
    present = table.rows.column_names
    for name, field in fields.items():
        count = present.count(name)
        if count == 0:
            problems.add(
                f"column {name!r} is missing ({field}); the data has {', '.join(map(repr, present))}: correct the "
                "recipe's columns or the file's header"
            )
        elif count > 1:
            problems.add(f"column {name!r} occurs {count} times; name each column once")


def _column(table: Table, name: str | None) -> list[Any] | None:
    if name is None or table.rows.column_names.count(name) != 1:
        return None
    values: list[Any] = table.rows[name].to_pylist()
    return values


def _declared_ids(table: Table, name: str | None, problems: Problems) -> list[str] | None:
    values = _column(table, name)
    if values is None:
        return None
    ids = [name_of(value) for value in values]
    first: dict[str, int] = {}
    for row, record in enumerate(ids):
        if record is None:
            problems.add_row(row, f"the id (column {name!r}) is empty; give every record one")
        elif record in first:
            problems.add_row(
                row,
                f"id {record!r} is a duplicate of row {first[record]}; ids must be unique, correct one of them",
            )
        else:
            first[record] = row
    return [record or "" for record in ids]


def _subjects(table: Table, name: str | None) -> list[str | None]:
    values = _column(table, name)
    return [None] * table.rows.num_rows if values is None else [name_of(value) for value in values]


def _labels(table: Table, recipe: Recipe, problems: Problems) -> list[Any]:
    name = recipe.columns.label
    values = _column(table, name) or []
    parse: Callable[[Any], Any] = number_of if recipe.task.is_regression else name_of
    kind = "a finite number" if recipe.task.is_regression else "a label"
    labels = [parse(value) for value in values]
    for row, label in enumerate(labels):
        if label is None:
            problems.add_row(row, f"column {name!r} holds {values[row]!r}, not {kind}; correct or drop the row")
    return labels


def _label_set(labels: list[Any], declared: list[str] | None, recipe: Recipe, problems: Problems) -> tuple[str, ...]:
    if recipe.task.is_regression:
        return ()
    if declared is None:
        found = tuple(sorted({label for label in labels if label is not None}))
        if len(found) < 2:
            problems.add(f"labels: infer found {len(found)} labels; a classifier needs at least 2")
        return found
    known = set(declared)
    for row, label in enumerate(labels):
        if label is not None and label not in known:
            problems.add_row(row, f"label {label!r} is outside the declared labels; declare it or correct the row")
    return tuple(declared)


def _features(table: Table, recipe: Recipe, problems: Problems) -> dict[str, pa.Array]:
    columns = recipe.columns
    if not recipe.task.is_text:
        values = _column(table, columns.image) or []
        images = [_image_bytes(value, table.folder, row, problems) for row, value in enumerate(values)]
        return {"image": pa.array(images, pa.binary())}
    features = {}
    for role, text in (("text", columns.text), ("text_pair", columns.text_pair)):
        if text is not None:
            parts = {name: _texts(_column(table, name) or [], name, problems) for name in template_columns(text)}
            features[role] = pa.array(_filled(text, parts), pa.string())
    return features


def _filled(text: str, parts: Mapping[str, list[str | None]]) -> list[str | None]:
    """A template for every row; None where a part is missing."""
    if not is_template(text):
        return parts[text]
    # A column that is missing, which is a problem by now, has no rows.
    rows = (dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=False))
    return [None if None in row.values() else filled(text, row) for row in rows]


def _texts(values: list[Any], name: str, problems: Problems) -> list[str | None]:
    for row, value in enumerate(values):
        if not isinstance(value, str):
            found = "is empty" if value is None else f"holds a {type(value).__name__}"
            problems.add_row(row, f"column {name!r} {found}; every record needs text")
    return [value if isinstance(value, str) else None for value in values]


def _image_bytes(value: Any, folder: Path, row: int, problems: Problems) -> bytes | None:
    """The encoded image of a cell, once it has been seen to decode."""
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        path = folder / value
        try:
            value = path.read_bytes()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error  # a path with a null byte is a ValueError
            problems.add_row(row, f"image {str(path)!r} cannot be read: {reason}; correct the path")
            return None
    if not isinstance(value, bytes):
        problems.add_row(row, "the image cell holds neither bytes nor a path; see docs/recipe.md, columns.image")
        return None
    try:
        with Image.open(io.BytesIO(value)) as image:
            image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = str(error).partition(" <")[0]  # Pillow ends with the buffer's address, another one each time
        problems.add_row(row, f"the image cannot be decoded ({reason}); replace or drop the row")
        return None
    return value


def _content_ids(subjects: list[str | None], labels: list[Any], features: dict[str, pa.Array]) -> list[str]:
    """The hash of content and subject: identical rows share it."""
    columns = [subjects, labels, *(features[name].to_pylist() for name in sorted(features))]
    return [hashlib.sha256(canonical_bytes(row)).hexdigest() for row in zip(*columns, strict=True)]
