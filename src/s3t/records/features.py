"""The features of records: texts, words or images, from their columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from s3t.recipe import Recipe
from s3t.recipe.template import filled, is_template, template_columns
from s3t.records.chats import chat_of, question_of
from s3t.records.column_types import is_text, may_be_chats, may_be_lists
from s3t.records.columns import column_values, converted, converted_or_same, values_of
from s3t.records.images import image_bytes
from s3t.records.problems import Problems
from s3t.records.reading import Table
from s3t.tasks import Kind


def read_features(table: Table, recipe: Recipe, problems: Problems) -> dict[str, pa.ChunkedArray]:
    """Feature columns by role, as stored in records; adds to `problems`."""
    inputs, columns = recipe.task.inputs, recipe.columns.model_dump()
    given = [role for role in inputs.roles if columns[role] is not None]
    return {role: _FEATURES[inputs.column_kind(role)](table, columns[role], recipe, problems) for role in given}


def read_prompts(table: Table, recipe: Recipe, problems: Problems, role: str) -> dict[str, pa.ChunkedArray]:
    """The column of prompts by its role; adds to `problems`. A chat ends before the assistant's turn."""
    reader = _questions if role == "messages" else _texts
    return {role: reader(table, getattr(recipe.columns, role), recipe, problems)}


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
            words = values_of(value, recipe.columns.delimiter)
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


def _texts(table: Table, text: str | list[str], _recipe: Recipe, problems: Problems) -> pa.ChunkedArray:
    if not isinstance(text, str):
        return converted(_first_filled(table, text, problems), pa.string())
    parts = {name: _parts(table, name, problems) for name in template_columns(text)}
    return converted_or_same(_filled(text, parts), pa.string(), table.rows, text)


def _first_filled(table: Table, texts: Sequence[str], problems: Problems) -> Iterator[str | None]:
    """Yields, for every row, the first template whose columns are filled; None where no template's are."""
    wanted = {text: template_columns(text) for text in texts}
    names = list(dict.fromkeys(name for columns in wanted.values() for name in columns))
    parts = [column_values(table, name, is_text, "a text is text", problems) or () for name in names]
    for row, cells in enumerate(zip(*parts, strict=False)):
        filled_in = {name: cell for name, cell in zip(names, cells, strict=True) if cell is not None and cell.strip()}
        fitting = next((text for text, columns in wanted.items() if filled_in.keys() >= set(columns)), None)
        if fitting is None:
            problems.add_row(row, "no template of columns.prompt has all its columns filled; fill or drop the row")
            yield None
        else:
            yield filled(fitting, filled_in) if is_template(fitting) else filled_in[fitting]


def _chats(table: Table, name: str, _recipe: Recipe, problems: Problems) -> pa.ChunkedArray:
    """Chats as JSON."""
    return _as_json(table, name, chat_of, problems)


def _questions(table: Table, name: str, _recipe: Recipe, problems: Problems) -> pa.ChunkedArray:
    """Chats that an assistant is to answer, as JSON."""
    return _as_json(table, name, question_of, problems)


def _as_json(
    table: Table, name: str, read: Callable[[Any], tuple[str | None, str]], problems: Problems
) -> pa.ChunkedArray:
    values = column_values(table, name, may_be_chats, "a chat is a list of messages, or such a list as JSON", problems)

    def chats() -> Iterator[str | None]:
        for row, value in enumerate(values or ()):
            chat, problem = read(value)
            if problem:
                problems.add_row(row, f"column {name!r} {problem}")
            yield chat

    return converted(chats(), pa.string())


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


_FEATURES: Mapping[Kind, Callable[[Table, Any, Recipe, Problems], pa.ChunkedArray]] = {
    "text": _texts,
    "words": _words,
    "image": _images,
    "messages": _chats,
}
"""Reader of a feature's columns, by kind."""
