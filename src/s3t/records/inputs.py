"""Conversion of in-memory inputs to a table: texts, pairs, rows, columns, series, arrays and images."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from PIL import Image

from s3t.errors import DataError
from s3t.recipe import Recipe
from s3t.recipe.template import is_template
from s3t.records.images import as_png
from s3t.records.reading import FORMATS, Data, is_of

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
            raise DataError(_WHERE, "are one string, which names no data file; pass a file, or the text in a list")
        return inputs
    if isinstance(inputs, Image.Image | bytes):
        raise DataError(_WHERE, "are one image; pass it in a list")
    if isinstance(inputs, Mapping):
        columns = {str(name): _items(column) for name, column in inputs.items()}
        if single := [name for name, column in columns.items() if not isinstance(column, list)]:
            names = ", ".join(map(repr, single))
            raise DataError(_WHERE, f"are a mapping whose {names} is no list; give a list a column, or a list of rows")
        return _table(columns)
    items = _items(inputs)
    if not isinstance(items, list):
        return inputs
    named, kind = recipe.columns.named(), "language" if roles is not None else recipe.task.inputs.kind
    needed = list(dict.fromkeys(name for role in roles or recipe.task.inputs.roles for name in named.get(role, ())))
    if not items:
        if recipe.task.inputs.has_tokens and not is_template(recipe.columns.text or ""):
            return _table({name: [] for name in needed})
        raise DataError(_WHERE, "are an empty list; pass at least one row")
    if all(isinstance(item, Mapping) for item in items):
        present = dict.fromkeys(column for row in items for column in row)
        return _table({column: [row.get(column) for row in items] for column in present})
    if kind == "image":
        return _table({needed[0]: _encoded(items)})
    if kind == "text":
        return _table(_texts(items, recipe, needed))
    if kind == "words":
        items = [list(item) if isinstance(item, list | tuple | np.ndarray) else item for item in items]
        fits = recipe.columns.delimiter is not None or all(isinstance(item, list) for item in items)
    else:
        fits = len(needed) == 1 and all(isinstance(item, str | list | None) for item in items)
    if not fits:
        what = "neither lists of words nor rows" if kind == "words" else "no rows"
        raise DataError(_WHERE, f"are {what}; the recipe's inputs have {', '.join(needed)}")
    if kind == "language":
        items = [json.dumps(item) if isinstance(item, list) else item for item in items]
    return _table({needed[0]: items})


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


def _texts(items: list[Any], recipe: Recipe, names: list[str]) -> dict[str, list[Any]]:
    columns, needed = recipe.columns, ", ".join(names)
    if is_template(columns.text or "") or is_template(columns.text_pair or ""):
        raise DataError(
            _WHERE, f"are no rows, and the recipe puts texts together from {needed}; pass rows that have them"
        )
    if columns.text_pair is None and all(isinstance(item, str | None) for item in items):
        return {names[0]: items}
    if columns.text_pair is not None and all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        return {name: [item[place] for item in items] for place, name in enumerate(names)}
    noun = "texts" if columns.text_pair is None else "pairs of texts"
    raise DataError(_WHERE, f"are neither {noun} nor rows; the recipe's inputs have {needed}")


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
        problem = (
            f"is an array of {pixels.dtype} and shape {pixels.shape}; give uint8, height x width, or x 3 or 4 channels"
        )
        raise DataError("the image", problem)
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and channels == 1 else pixels)


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
