"""Conversion of in-memory inputs to a table: texts, pairs, rows, columns, series, arrays and images."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from PIL import Image

from s3t.errors import DataError
from s3t.recipe import Recipe
from s3t.recipe.template import is_template
from s3t.records.images import as_png
from s3t.records.imported import is_of
from s3t.records.reading import FORMATS, Data
from s3t.tasks import Kind

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Inputs: TypeAlias = (
    "Data | Sequence[str] | Sequence[tuple[str, str]] | Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]] | "
    "Sequence[Image.Image] | Sequence[bytes] | pd.Series[Any] | NDArray[Any]"
)
"""Inputs of a prediction: data; texts, pairs or images, in a list, a series or an array; a list of rows; a mapping of
columns."""

_WHERE = "the inputs"


def inputs_as_data(inputs: Inputs, recipe: Recipe, *, roles: Collection[str] | None = None) -> Data:
    """Inputs as data: files and tables as they are, everything else as a table with the recipe's columns; or with those
    of some roles alone.
    """
    if isinstance(inputs, str):
        if Path(inputs).suffix.lower() not in FORMATS:
            problem = "are one string, which names no data file; pass a file, or the text in a list"
            raise DataError(_WHERE, problem)
        return inputs
    if isinstance(inputs, Image.Image | bytes):
        raise DataError(_WHERE, "are one image; pass it in a list")
    if isinstance(inputs, Mapping):
        columns = {str(name): _items(column) for name, column in inputs.items()}
        single = [name for name, column in columns.items() if not isinstance(column, list)]
        if single:
            names = ", ".join(map(repr, single))
            raise DataError(_WHERE, f"are a mapping whose {names} is no list; give a list a column, or a list of rows")
        return _table(columns)
    items = _items(inputs)
    if not isinstance(items, list):
        return inputs
    if not items:
        if recipe.task.inputs.has_tokens and not is_template(recipe.columns.text or ""):
            return _table({name: [] for name in _feature_columns(recipe)})
        raise DataError(_WHERE, "are an empty list; pass at least one row")
    if all(isinstance(item, Mapping) for item in items):
        present = dict.fromkeys(column for row in items for column in row)
        return _table({column: [row.get(column) for row in items] for column in present})
    if roles is not None:
        return _table(_prompts(items, recipe, roles))
    return _table(_FROM_ITEMS[recipe.task.inputs.kind](items, recipe))


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


def _images(items: list[Any], recipe: Recipe) -> dict[str, list[Any]]:
    (name,) = _feature_columns(recipe)
    encoded, problems = [], []
    for row, item in enumerate(items):
        try:
            encoded.append(_as_encoded(item))
        except DataError as error:
            problems.append(f"row {row}: the image {error.problems[0]}")
    if problems:
        raise DataError(_WHERE, problems)
    return {name: encoded}


def _texts(items: list[Any], recipe: Recipe) -> dict[str, list[Any]]:
    columns = recipe.columns
    texts = all(isinstance(item, str | None) for item in items)
    pairs = all(isinstance(item, tuple | list) and len(item) == 2 for item in items)
    needed = _feature_columns(recipe)
    if is_template(columns.text or "") or is_template(columns.text_pair or ""):
        names = ", ".join(needed)
        raise DataError(
            _WHERE, f"are no rows, and the recipe puts texts together from {names}; pass rows that have them"
        )
    if columns.text_pair is None and texts:
        return {needed[0]: items}
    if columns.text_pair is not None and pairs:
        return {name: [item[place] for item in items] for place, name in enumerate(needed)}
    noun = "texts" if columns.text_pair is None else "pairs of texts"
    raise DataError(_WHERE, f"are neither {noun} nor rows; the recipe's inputs have {', '.join(needed)}")


def _words(items: list[Any], recipe: Recipe) -> dict[str, list[Any]]:
    (name,) = _feature_columns(recipe)
    lists = [list(item) if isinstance(item, list | tuple | np.ndarray) else item for item in items]
    if all(isinstance(item, list) for item in lists) or recipe.columns.delimiter is not None:
        return {name: lists}
    raise DataError(_WHERE, f"are neither lists of words nor rows; the recipe's inputs have {name}")


def _language(items: list[Any], recipe: Recipe) -> dict[str, list[Any]]:
    return _prompts(items, recipe, recipe.task.inputs.roles)


def _prompts(items: list[Any], recipe: Recipe, roles: Collection[str]) -> dict[str, list[Any]]:
    named = recipe.columns.named()
    names = list(dict.fromkeys(name for role in roles for name in named.get(role, ())))
    if len(names) == 1 and all(isinstance(item, str | list | None) for item in items):
        return {names[0]: [json.dumps(item) if isinstance(item, list) else item for item in items]}
    raise DataError(_WHERE, f"are no rows; the recipe's inputs have {', '.join(names)}")


_FROM_ITEMS: Mapping[Kind, Callable[[list[Any], Recipe], dict[str, list[Any]]]] = {
    "text": _texts,
    "words": _words,
    "image": _images,
    "language": _language,
}
"""Reader of inputs without column names, by the task's kind of inputs."""


def _feature_columns(recipe: Recipe) -> list[str]:
    named = recipe.columns.named()
    return [name for role in recipe.task.inputs.roles for name in named.get(role, ())]


def _as_encoded(item: Any) -> Any:
    """An image in memory as a PNG file of its picture; bytes and paths as they are."""
    if isinstance(item, np.ndarray):
        channels = 1 if item.ndim == 2 else item.shape[-1]
        if item.dtype != np.uint8 or item.ndim not in (2, 3) or channels not in (1, 3, 4) or 0 in item.shape:
            problem = (
                f"is an array of {item.dtype} and shape {item.shape}; give uint8, height x width, or x 3 or 4 channels"
            )
            raise DataError("the image", problem)
        item = Image.fromarray(item[..., 0] if item.ndim == 3 and channels == 1 else item)
    return as_png(item) if isinstance(item, Image.Image) else item


def _table(columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    if len({len(column) for column in columns.values()}) > 1:
        raise DataError(_WHERE, "are columns of different lengths; give each as many rows")
    try:
        return pa.table({name: pa.array(column) for name, column in columns.items()})
    except UnicodeEncodeError:
        problem = "hold half a surrogate pair, which is no text; correct it"
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        problem = "are neither texts nor rows of one shape; give every row the same columns, each of one type"
    raise DataError(_WHERE, problem)
