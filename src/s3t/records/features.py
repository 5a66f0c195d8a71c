"""The features of records: texts, words, images or chats, from their columns."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from s3t.json_text import JsonError, read_json
from s3t.recipe import Recipe
from s3t.recipe.schema import filled, is_template, template_columns, templates
from s3t.records.images import image_bytes
from s3t.records.reading import Table, converted
from s3t.records.requests import CellError, is_unicode
from s3t.tasks import Kind

ASSISTANT = "assistant"
"""The role whose turns a language model learns to write."""


def read_features(table: Table, recipe: Recipe) -> dict[str, pa.ChunkedArray]:
    """Feature columns by role, as stored in records."""
    inputs, columns = recipe.task.inputs, recipe.columns.model_dump()
    given = [role for role in inputs.roles if columns[role] is not None]
    return {role: _feature(table, columns[role], inputs.column_kind(role), recipe) for role in given}


def read_prompts(table: Table, recipe: Recipe, role: str) -> dict[str, pa.ChunkedArray]:
    """The column of prompts by its role."""
    name = getattr(recipe.columns, role)
    if role == "messages":  # of several columns, the first one is asked after
        return {role: table.column(templates(name)[0], "messages", partial(chat_of, is_question=True))}
    return {role: _texts(table, name)}


def _feature(table: Table, name: Any, kind: Kind, recipe: Recipe) -> pa.ChunkedArray:
    if kind == "image":
        return image_bytes(table, name)
    if kind == "messages":
        names = templates(name)
        cells = zip(*(table.cells(each, kind) or () for each in names), strict=False)
        return table.column(", ".join(names), kind, lambda parts: chat_of(_joined(parts)), cells=cells)
    if kind == "text":
        return _texts(table, name)

    def words(cell: Any) -> list[str]:
        words = values_of(cell, recipe.columns.delimiter)
        if not words or not all(isinstance(word, str) and word.strip() for word in words):
            problem = "is no list of words, nor text that columns.delimiter cuts into words"
            raise CellError(f"{problem}; fill or drop the row")
        return words

    return table.column(name, kind, words, pa.list_(pa.string()))


def values_of(cell: Any, delimiter: str | None) -> list[Any] | None:
    """The values that a cell holds; None where it is missing, or text without a declared delimiter."""
    if isinstance(cell, str) and delimiter is not None:
        return [part.strip() for part in cell.split(delimiter)] if cell.strip() else []
    return cell if isinstance(cell, list) else None


def _texts(table: Table, text: str | list[str]) -> pa.ChunkedArray:
    """The text of each row: a column's, a template's, or the first of several templates whose columns are filled."""
    if isinstance(text, str) and not is_template(text):
        return table.column(text, "text", _text)
    wanted = {template: template_columns(template) for template in templates(text)}
    names = list(dict.fromkeys(name for columns in wanted.values() for name in columns))
    parts = [table.cells(name, "text") for name in names]
    if isinstance(text, str):  # every part is needed
        for name in names:
            table.column(name, "text", _text)

    def filled_in(row: int, cells: Sequence[str | None]) -> str | None:
        given = {name: cell for name, cell in zip(names, cells, strict=True) if cell is not None and cell.strip()}
        fitting = next((template for template, columns in wanted.items() if given.keys() >= set(columns)), None)
        if fitting is not None:
            return filled(fitting, given) if is_template(fitting) else given[fitting]
        if not isinstance(text, str):
            problem = "no template of columns.prompt has all its columns filled; fill or drop the row"
            table.problems.add(problem, table.first + row)
        return None

    # A column that is missing, which is a problem by now, has no rows.
    rows = enumerate(zip(*(cells or () for cells in parts), strict=False))
    return converted(itertools.starmap(filled_in, rows))


def _text(cell: str | None) -> str:
    if cell is None or not cell.strip():
        raise CellError("is empty or blank; every record needs text: fill or drop the row")
    return cell


def chat_of(cell: Any, *, is_question: bool = False) -> str:
    """A chat, kept as JSON in one form; a question ends before the assistant's turn.

    >>> chat_of([{"role": "user", "content": "Hi", "name": None}, {"role": "assistant", "content": "Hello"}])
    '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]'
    """
    messages = [_message(place, message) for place, message in enumerate(_listed(cell), start=1)]
    if is_question and messages[-1]["role"] == ASSISTANT:
        raise CellError("ends with the assistant's turn; end with the one that it is to answer")
    if not is_question and not any(message["role"] == ASSISTANT for message in messages):
        raise CellError("has no turn of an assistant, so there is nothing to learn; drop the row")
    return json.dumps(messages, ensure_ascii=False)


def _joined(cells: Iterable[Any]) -> list[Any]:
    return list(itertools.chain.from_iterable(map(_listed, cells)))


def _listed(cell: Any) -> list[Any]:
    if isinstance(cell, str):
        try:
            cell = read_json(cell, remedy="write a list of messages")
        except JsonError as error:
            raise CellError(str(error)) from None
    if not isinstance(cell, list) or not cell:
        raise CellError("is no list of messages; fill or drop the row")
    return cell


_ROLES = {"human": "user", "gpt": ASSISTANT}
"""Roles as ShareGPT names them."""


def _message(place: int, message: Any) -> dict[str, str]:
    if not isinstance(message, dict):
        raise CellError(f"message {place}: is no mapping; give each message role and content")
    if "from" in message and "role" not in message:  # as ShareGPT has it
        message = {"role": message["from"], "content": message.get("value")} | {
            name: value for name, value in message.items() if name not in ("from", "value")
        }
    known: dict[str, Any] = {name: message.get(name) for name in ("role", "content")}
    if isinstance(known["role"], str):
        known["role"] = _ROLES.get(known["role"], known["role"])
    for name, value in known.items():
        if not isinstance(value, str) or not value.strip():
            raise CellError(f"message {place}: has no {name}, or one that is no text; fill it, or drop the message")
        if not is_unicode(value):
            raise CellError(f"message {place}: has a {name} with half a surrogate pair, which is no text; correct it")
    if more := [name for name, value in message.items() if name not in known and value is not None]:
        problem = f"has {len(more)} more fields than role and content, which s3t does not learn; take them out"
        raise CellError(f"message {place}: {problem}")
    return known
