"""From the user's data to an arrow table: CSV, JSON lines, Parquet, `datasets.Dataset`, a pandas frame.

Nothing is cached: reading goes straight to arrow, so no copy of a record is left under the user's home.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from s3t.errors import DataError
from s3t.records.values import name_of

if TYPE_CHECKING:
    import datasets
    import pandas as pd

Data: TypeAlias = "str | Path | pa.Table | datasets.Dataset | pd.DataFrame"
"""What users may pass as data."""

Inputs: TypeAlias = "Data | Sequence[str] | Sequence[Mapping[str, Any]]"
"""What users may have predicted: data, a list of texts, or a list of rows."""

SUFFIXES = {".csv": "CSV", ".jsonl": "JSON lines", ".ndjson": "JSON lines", ".json": "JSON lines"}
PARQUET_SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as read: not yet checked."""

    rows: pa.Table
    where: str
    """The file, or the kind of object, for messages."""
    folder: Path
    """The folder that relative image paths start from."""


def read_data(data: Data, *, text_columns: tuple[str, ...] = ()) -> Table:
    """Read a file, or take over an object in memory.

    Args:
        data: path of a CSV, JSON lines or Parquet file; or a Dataset, a data frame, an arrow table.
        text_columns: columns of a CSV file that stay text (an id of 007 is not the number 7).

    Raises:
        DataError: the file is missing, of an unknown format, truncated, or malformed.
    """
    if isinstance(data, str | Path):
        path = Path(data)
        return Table(rows=_read_file(path, text_columns), where=str(data), folder=path.parent)
    rows = _from_memory(data)
    if rows is None:
        raise DataError(
            type(data).__name__,
            ["is not data; pass a path, a datasets.Dataset, a pandas.DataFrame or a pyarrow.Table"],
        )
    return Table(rows=rows, where=f"the {type(data).__name__}", folder=Path())


def inputs_as_data(inputs: Inputs, *, text_column: str | None) -> Data:
    """Inputs as data: a list of texts becomes a table with the text column, a list of rows a table.

    Raises:
        DataError: the rows do not make a table.
    """
    if isinstance(inputs, str) and text_column is not None and not Path(inputs).suffix:
        raise DataError("the inputs", [f"are the one string {inputs!r}; pass a file, or the text in a list"])
    if not isinstance(inputs, list | tuple):
        return inputs  # type: ignore[return-value, unused-ignore]
    if text_column is not None and all(isinstance(item, str) for item in inputs):
        return pa.table({text_column: pa.array(inputs, pa.string())})
    if not inputs:
        raise DataError("the inputs", ["are an empty list; pass at least one row"])
    try:
        return pa.Table.from_pylist([dict(row) for row in inputs])
    except (TypeError, ValueError) as error:
        raise DataError("the inputs", [f"are neither texts nor rows of one shape: {error}"]) from error


def _from_memory(data: Any) -> pa.Table | None:
    if isinstance(data, pa.Table):
        return data
    # Looked up, not imported: who passes a frame has imported pandas already.
    pandas, datasets = sys.modules.get("pandas"), sys.modules.get("datasets")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        try:
            return pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError("the DataFrame", [f"a column mixes types: {error}"]) from error
    if datasets is not None and isinstance(data, datasets.Dataset):
        table = data.with_format("arrow")[:]
        for name, feature in data.features.items():
            if isinstance(feature, datasets.ClassLabel):
                # -1 is how unlabelled splits say that there is no label.
                codes = table[name].to_pylist()
                names = [None if code is None or code < 0 else feature.int2str(code) for code in codes]
                table = table.set_column(table.column_names.index(name), name, pa.array(names, pa.string()))
        return table
    return None


def _read_file(path: Path, text_columns: tuple[str, ...]) -> pa.Table:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES and suffix not in PARQUET_SUFFIXES:
        raise DataError(str(path), [f"has the suffix {suffix!r}; use .csv, .jsonl or .parquet"])
    if not path.is_file():
        raise DataError(str(path), ["is not a file; check the path"])
    try:
        if suffix in PARQUET_SUFFIXES:
            # Read whole through a buffer: a memory map would keep the file's bytes alive behind our back.
            return pa.parquet.ParquetFile(path).read()
        rows = _read_csv(path, text_columns) if suffix == ".csv" else _read_json_lines(path)
        _ = rows.column_names  # decodes the header, which arrow does not look at
        return rows
    except pa.ArrowException as error:
        kind = SUFFIXES.get(suffix, "Parquet")
        raise DataError(
            str(path), [f"is not a readable {kind} file, perhaps truncated: {error}; export it again"]
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(str(path), [f"is not UTF-8 text at byte {error.start}; save it as UTF-8"]) from error
    except OSError as error:
        raise DataError(str(path), [f"cannot be read, perhaps truncated: {error.strerror or error}"]) from error


def _read_csv(path: Path, text_columns: tuple[str, ...]) -> pa.Table:
    return pa.csv.read_csv(
        path,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=dict.fromkeys(text_columns, pa.string())),
    )


def _read_json_lines(path: Path) -> pa.Table:
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
                problems.append(f"line {number} is not JSON: {reason}; write one object a line")
                continue
            if isinstance(row, dict):
                rows.append(row)
            else:
                problems.append(f"line {number} holds a {type(row).__name__}; write one object a line")
    if problems:
        raise DataError(str(path), problems)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            # Numbers and text in one column, or a number of more than 64 bits: text says all of them.
            texts = [value if isinstance(value, str) else name_of(value) for value in values]
            columns[name] = pa.array(texts, pa.string())
        except UnicodeEncodeError:
            row = next(row for row, value in enumerate(values) if not _is_unicode(value))
            problems.append(f"row {row}: column {name!r} holds half a surrogate pair, which is no text; correct it")
    if problems:
        raise DataError(str(path), problems)
    return pa.table(columns)


def _is_unicode(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
