"""Ingestion of a table into records: checked against the recipe, in our columns and plain types.

Records have the columns `record` (id), `subject` (or null), `label`, and the features: `text` (and `text_pair`), or
`image` (encoded bytes). Messages name a record by its line or row. Nothing is fitted on the data but
the label set of `labels: infer`, which is why that one is a gap (docs/guarantees.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from PIL import Image

from s3t.errors import DataError
from s3t.recipe import Recipe
from s3t.recipe.schema import is_template
from s3t.records.checks import Checks, check_columns
from s3t.records.features import read_features, read_prompts
from s3t.records.images import as_png
from s3t.records.reading import FORMATS, Data, Positions, Table, is_of, read_data, read_windows
from s3t.records.requests import text_of
from s3t.records.splitting import Split
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


class Records(NamedTuple):
    """Checked records."""

    rows: pa.Table
    """Our columns (see the module)."""
    labels: tuple[str, ...]
    """The label set, declared or inferred; empty for regression."""
    among: Sequence[tuple[int, ...]] | None
    """For each row, the slices of its shard that its group is spread over; None without groups."""
    positions: Positions
    """Position of each row in the data, for messages."""


def ingest(data: Data, recipe: Recipe) -> Records:
    return _whole(data, recipe, Checks(recipe))


def ingest_into(split: Split | None, data: Data, recipe: Recipe) -> tuple[str, ...]:
    """Check the records to train on, window by window, and divide them into slices, if they are not only to be checked;
    the label set. Memory holds a window of records, and 16 bytes of each record's id where the data has ids.
    """
    checks = Checks(recipe)
    for records in checks.checked(read_windows(data, columns=_kinds(recipe), size=recipe.task.inputs.window_rows)):
        if split is not None:
            split.add(*records)
    return checks.labels


def ingest_labelled(data: Data, recipe: Recipe, *, labels: tuple[str, ...] | None = None) -> Records:
    """Records to evaluate on: features and labels; ids, subjects and groups are not looked at. The label set of a run
    cannot change any more; None: the recipe's.
    """
    return _whole(data, recipe, Checks(recipe, with_owners=False, fixed=labels))


def _whole(data: Data, recipe: Recipe, checks: Checks) -> Records:
    table = read_data(data, columns=_kinds(recipe))
    (records,) = checks.checked([table])
    return Records(records.rows, checks.labels, records.among, table.problems.positions)


def record_ids(data: Data, recipe: Recipe) -> list[str]:
    """The id of every row, as `init` would give it: what `delete` needs where the data has no id column."""
    ids: list[str] = ingest(data, recipe).rows["record"].to_pylist()
    return ids


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
    role = recipe.task.inputs.prompt_role({role for role, value in recipe.columns.model_dump().items() if value})
    return _checked_inputs(read_data(_as_data(inputs, recipe, role=role), columns=_kinds(recipe)), recipe, role=role)


def ingest_windows(
    source: str | Path | BinaryIO, form: str | None, recipe: Recipe, *, size: int
) -> Iterator[IngestedInputs]:
    """Inputs from a file, or an open pipe of CSV or JSON lines, `size` at a time; each window is checked when it is
    asked for. The format is csv, jsonl or parquet; None: as the file's suffix says.
    """
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
    if table.problems:
        raise DataError(table.where, table.problems.sentences())
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
    return columns


def _as_data(inputs: Inputs, recipe: Recipe, *, role: str | None = None) -> Data:
    """Inputs as data: files and tables as they are, everything else as a table with the recipe's columns; or with those
    of one role alone.
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
            listed = ", ".join(map(repr, single))
            raise DataError(_WHERE, f"are a mapping whose {listed} is no list; give a list a column, or a list of rows")
        return _table(columns)
    items = _items(inputs)
    if not isinstance(items, list):
        return inputs
    named, taken = recipe.columns.named(), recipe.task.inputs
    names = list(dict.fromkeys(name for one in ([role] if role else taken.roles) for name in named.get(one, ())))
    if not items:
        if taken.has_tokens and not is_template(recipe.columns.text or ""):
            return _table({name: [] for name in names})
        raise DataError(_WHERE, "are an empty list; pass at least one row")
    if all(isinstance(item, Mapping) for item in items):
        present = dict.fromkeys(column for row in items for column in row)
        return _table({column: [row.get(column) for row in items] for column in present})
    if taken.kind == "image":
        return _table({names[0]: _encoded(items)})
    if taken.kind == "text":
        return _table(_texts(items, recipe, names))
    if taken.kind == "words":
        items = [list(item) if isinstance(item, list | tuple | np.ndarray) else item for item in items]
        if recipe.columns.delimiter is None and not all(isinstance(item, list) for item in items):
            raise DataError(_WHERE, f"are neither lists of words nor rows; the recipe's inputs have {', '.join(names)}")
    elif len(names) > 1 or not all(isinstance(item, str | list | None) for item in items):
        raise DataError(_WHERE, f"are no rows; the recipe's inputs have {', '.join(names)}")
    else:
        try:
            items = [json.dumps(item) if isinstance(item, list) else item for item in items]
        except RecursionError:
            raise DataError(_WHERE, "are nested too deeply; pass lists of messages") from None
    return _table({names[0]: items})


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
