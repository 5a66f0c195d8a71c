"""The features of records: texts, words or images, from their columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from s3t.recipe import Recipe
from s3t.recipe.template import filled, is_template, template_columns
from s3t.records.column_types import is_text, may_be_lists
from s3t.records.columns import column_values, converted, converted_or_same, listed
from s3t.records.images import image_bytes
from s3t.records.problems import Problems
from s3t.records.reading import Table
from s3t.tasks import Kind


def read_features(table: Table, recipe: Recipe, problems: Problems) -> dict[str, pa.ChunkedArray]:
    """Feature columns by role, as stored in records; adds to `problems`."""
    reader, columns = _FEATURES[recipe.task.inputs.kind], recipe.columns.model_dump()
    roles = [role for role in recipe.task.inputs.roles if columns[role] is not None]
    return {role: reader(table, columns[role], recipe, problems) for role in roles}


def _images(table: Table, name: str, recipe: Recipe, problems: Problems) -> pa.ChunkedArray:
    cells = column_values(table, name, lambda _: True, "", problems) or ()
    return image_bytes(cells, name, table.folder, problems)


def _words(table: Table, name: str, recipe: Recipe, problems: Problems) -> pa.ChunkedArray:
    """Lists of words."""
    values = (
        column_values(table, name, may_be_lists, "words are lists of text, or text with a delimiter", problems) or ()
    )

    def lists() -> Iterator[list[Any] | None]:
        for row, value in enumerate(values):
            words = listed(value, recipe.columns.delimiter)
            if words and all(isinstance(word, str) and word.strip() for word in words):
                yield words
                continue
            problems.add_row(
                row,
                f"column {name!r} is no list of words, nor text that columns.delimiter cuts into words; fill or drop "
                "the row",
            )
            yield None

    return converted(lists(), pa.list_(pa.string()))


def _texts(table: Table, text: str, recipe: Recipe, problems: Problems) -> pa.ChunkedArray:
    parts = {name: _parts(table, name, problems) for name in template_columns(text)}
    return converted_or_same(_filled(text, parts), pa.string(), table.rows, text)


def _filled(text: str, parts: Mapping[str, Collection[str | None]]) -> Iterable[str | None]:
    """A template for every row; None where a part is missing."""
    if not is_template(text):
        return parts[text]
    # A column that is missing, which is a problem by now, has no rows.
    rows = (dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=False))
    return (None if None in row.values() else filled(text, row) for row in rows)


def _parts(table: Table, name: str, problems: Problems) -> Collection[str | None]:
    values = column_values(table, name, is_text, "a text is text", problems) or ()
    for row, value in enumerate(values):
        if value is None or not value.strip():
            problems.add_row(row, f"column {name!r} is empty or blank; every record needs text: fill or drop the row")
    return values


_FEATURES: Mapping[Kind, Callable[[Table, str, Recipe, Problems], pa.ChunkedArray]] = {
    "text": _texts,
    "words": _words,
    "image": _images,
}
"""Reader of a feature's columns, by kind."""
