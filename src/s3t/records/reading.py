"""Reader of the user's data into an Arrow table: CSV, JSON lines, Parquet, `datasets.Dataset`, a pandas frame.

Nothing is cached: reading goes straight to arrow, so no copy of a record is left under the user's home.

No message, and no exception behind one, holds more of a record than its row and column. Libraries quote a row that they
cannot read, so errors are raised where no other one is being handled.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from s3t.disk import open_regular, reading_problem
from s3t.errors import DataError
from s3t.records.csv_blocks import CsvBlocks
from s3t.records.imported import is_of
from s3t.records.names import is_unicode
from s3t.records.positions import Positions
from s3t.records.problems import Problems
from s3t.records.values import name_of
from s3t.tasks import Kind

if TYPE_CHECKING:
    import datasets
    import pandas as pd

Data: TypeAlias = "str | Path | pa.Table | datasets.Dataset | pd.DataFrame"
"""Types that users may pass as data."""

SUFFIXES = {".csv": "CSV", ".jsonl": "JSON lines", ".ndjson": "JSON lines", ".json": "JSON lines"}
PARQUET_SUFFIXES = (".parquet", ".pq")
_DECODED_BYTES = 2**20
_SHOWN = 20
"""Lines and rows that are named one by one."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as read: not yet checked."""

    rows: pa.Table
    where: str
    """The file, or the kind of object, for messages."""
    folder: Path
    """The folder that relative image paths start from."""
    positions: Positions
    """Position of each row in the data, for messages."""
    first: int = 0
    """Number of the first row among all of the data, where this is a window of it."""


def read_data(data: Data, *, columns: Mapping[str, Kind]) -> Table:
    """Read a file, or take over an object in memory.

    Args:
        data: path of a CSV, JSON lines or Parquet file; or a Dataset, a data frame, an arrow table.
        columns: kind of each used column. In a CSV file they stay text (an id of 007 is not the
            number 7), but for numbers. Of others, nothing but the name is of interest.

    Raises:
        DataError: the file is missing, no regular file, of an unknown format, truncated, or malformed.
    """
    if isinstance(data, str | Path):
        path = Path(data)
        where, folder = str(data), path.parent
        positions = Positions.in_file(path)
        rows, problems = _read_file(path, columns, positions)
    else:
        where, folder, positions = f"the {type(data).__name__}", Path(), Positions.in_table()
        rows, problems = from_memory(data, columns), []
    if rows is not None:
        damaged = Problems(positions)
        check_decodable(rows, columns, damaged)
        problems = problems + damaged.sentences()
    if rows is None or problems:
        raise DataError(where, problems)
    return Table(rows=rows, where=where, folder=folder, positions=positions)


def from_memory(data: Any, columns: Mapping[str, Kind]) -> pa.Table:
    """The table of an object in memory.

    Raises:
        DataError: it is none, or has columns that no table can have.
    """
    rows, problems = _table_of(data, columns)
    if rows is None and not problems:
        raise DataError(
            type(data).__name__,
            "is not data; pass a path, a datasets.Dataset, a pandas.DataFrame or a pyarrow.Table",
        )
    if rows is None:
        raise DataError(f"the {type(data).__name__}", problems)
    return rows


def _table_of(data: Any, columns: Mapping[str, Kind]) -> tuple[pa.Table | None, list[str]]:
    """(Table, problems) of an object in memory: one of both, or neither if it is no data."""
    if isinstance(data, pa.Table):
        return data, []
    if is_of(data, "pandas", "DataFrame"):
        return _from_frame(data, columns)
    if is_of(data, "datasets", "Dataset"):
        import datasets  # it is in memory

        table = data.with_format("arrow")[:]
        for name, feature in data.features.items():
            inner = getattr(feature, "feature", None)
            if isinstance(feature, datasets.ClassLabel):
                names = pa.array([_class_name(feature, code) for code in table[name].to_pylist()], pa.string())
            elif isinstance(inner, datasets.ClassLabel):
                lists = [codes and [_class_name(inner, code) for code in codes] for codes in table[name].to_pylist()]
                names = pa.array(lists, pa.list_(pa.string()))
            else:
                continue
            table = table.set_column(table.column_names.index(name), name, names)
        return table, []
    return None, []


def _class_name(feature: datasets.ClassLabel, code: int | None) -> str | None:
    """The name of a class; None for -1, which is how unlabelled splits say that there is no label."""
    return None if code is None or code < 0 else str(feature.int2str(code))


def _from_frame(frame: pd.DataFrame, columns: Mapping[str, Kind]) -> tuple[pa.Table | None, list[str]]:
    """The table of a pandas frame, column by column: unused columns may hold anything."""
    names, arrays, problems = [], [], []
    for place, given in enumerate(frame.columns):
        name = str(given)
        names.append(name)
        if name not in columns:
            arrays.append(pa.nulls(len(frame)))
            continue
        try:
            array = pa.Array.from_pandas(frame.iloc[:, place])
        except (pa.ArrowException, UnicodeEncodeError, OverflowError, TypeError, ValueError):
            problems.append(
                f"column {name!r} mixes types, or holds values that no table has; convert it to text or to numbers"
            )
            continue
        arrays.append(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
    return (None, problems) if problems else (pa.Table.from_arrays(arrays, names=names), [])


def check_decodable(rows: pa.Table, columns: Mapping[str, Kind], problems: Problems) -> None:
    """Add the problems of text that is not UTF-8: arrow takes it over unseen, and fails where it is first read."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name not in columns:
            continue
        try:
            column.validate(full=True)
        except pa.ArrowException:
            bad = [row for row in range(rows.num_rows) if not _readable(column[row])]
            for row in bad:
                problems.add_row(row, f"column {name!r} is not UTF-8 text; correct it")
            if not bad:
                problems.add(f"column {name!r} is damaged; export it again")


def _readable(value: Any) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _read_file(path: Path, columns: Mapping[str, Kind], positions: Positions) -> tuple[pa.Table | None, list[str]]:
    """(Table, problems) of a file: one of both."""
    suffix = path.suffix.lower()
    problem = file_problem(path)
    if problem is not None:
        return None, [problem]
    try:
        with open_regular(path) as file:
            if suffix in PARQUET_SUFFIXES:
                return _read_parquet(file)
            reader = _read_csv if suffix == ".csv" else _read_json_lines
            return reader(file, columns, positions)
    except OSError as error:
        return None, [f"cannot be read, perhaps truncated: {error.strerror or 'its bytes are damaged'}"]


def file_problem(path: Path) -> str | None:
    """Why a path names no data file that can be read; None if it does."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES and suffix not in PARQUET_SUFFIXES:
        return f"has the suffix {suffix!r}; use .csv, .jsonl or .parquet"
    return reading_problem(path)


def _read_parquet(file: BinaryIO) -> tuple[pa.Table | None, list[str]]:
    try:
        # Read whole through a buffer: a memory map would keep the file's bytes alive behind our back.
        return pa.parquet.ParquetFile(file).read(), []
    except (pa.ArrowException, OSError, ValueError):
        return None, ["is not a readable Parquet file, perhaps truncated; export it again"]


def _read_csv(file: BinaryIO, columns: Mapping[str, Kind], positions: Positions) -> tuple[pa.Table | None, list[str]]:
    content = pa.py_buffer(file.read())
    if not _is_utf8(content):  # looked at first: arrow decodes a ragged row where no error of it can be caught
        line = _first_line_that_is_not_utf8(content)
        return None, [not_utf8_problem(line)]
    try:
        blocks, view = CsvBlocks(), memoryview(content)
        for start in range(0, len(view), _DECODED_BYTES):
            blocks.add(view[start : start + _DECODED_BYTES])
        table, ragged = _parsed_csv(content, columns, blocks, threads=True)
        if ragged:  # by several threads, rows have no numbers
            _, ragged = _parsed_csv(content, columns, blocks, threads=False)
    except pa.ArrowException:
        if not content.to_pybytes().strip():
            return None, ["is an empty CSV file; begin it with a row of column names"]
        return None, ["is not a readable CSV file, perhaps truncated; export it again"]
    return table, ragged_problems(ragged, positions)


def not_utf8_problem(line: int) -> str:
    """The problem of a CSV file with a line that is not UTF-8."""
    return f"is not UTF-8 text in line {line}; save it as UTF-8"


def ragged_problems(ragged: Iterable[tuple[int, int, int]], positions: Positions) -> list[str]:
    """Problems of the rows that have not as many cells as the header: of each, its number, its cells, the header's."""
    problems = Problems(positions)
    for row, cells, wanted in ragged:
        problems.add_row(
            row, f"the row has {cells} cells and the header {wanted}; put cells that hold commas into quotes"
        )
    return problems.sentences()


def _parsed_csv(
    content: pa.Buffer, columns: Mapping[str, Kind], blocks: CsvBlocks, *, threads: bool
) -> tuple[pa.Table, list[tuple[int, int, int]]]:
    """The rows that have as many cells as the header; and of each other one: its number, its cells, the header's."""
    ragged: list[tuple[int, int, int]] = []

    def skip(row: Any) -> str:
        ragged.append(((row.number or 2) - 2, row.actual_columns, row.expected_columns))
        return "skip"

    table = pa.csv.read_csv(
        pa.BufferReader(content),
        read_options=pa.csv.ReadOptions(use_threads=threads, block_size=blocks.nbytes),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        convert_options=pa.csv.ConvertOptions(
            column_types={name: pa.string() for name, kind in columns.items() if kind != "number"}
        ),
    )
    return table, ragged


def _is_utf8(content: pa.Buffer) -> bool:
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(content)
    try:
        for start in range(0, len(view), _DECODED_BYTES):
            decoder.decode(view[start : start + _DECODED_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _first_line_that_is_not_utf8(content: pa.Buffer) -> int:
    lines = content.to_pybytes().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if not _is_utf8(pa.py_buffer(line)))


def _read_json_lines(
    file: BinaryIO, columns: Mapping[str, Kind], positions: Positions
) -> tuple[pa.Table | None, list[str]]:
    lines: list[str] = []
    rows, problems = list(json_rows(file, lines)), Problems(positions)
    if lines:
        return None, shown_lines(lines)
    return rows_as_table(rows, columns, problems), problems.sentences()


def json_rows(file: Iterable[bytes], problems: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file of JSON lines; what is wrong with a line is added to the problems."""
    for number, line in enumerate(file, start=1):
        content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not content.strip():
            continue
        row, problem = json_object(content)
        if row is None:
            problems.append(f"line {number} {problem}")
        else:
            yield row


def shown_lines(problems: Sequence[str]) -> list[str]:
    """Problems of lines, the first few of many."""
    more = [f"and {len(problems) - _SHOWN} more lines"] if len(problems) > _SHOWN else []
    return [*problems[:_SHOWN], *more]


def rows_as_table(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Kind], problems: Problems
) -> pa.Table | None:
    """Rows with the names of their columns as a table; None if there are problems, to which it adds."""
    arrays = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        kind = columns.get(name)
        arrays[name] = (
            pa.nulls(len(rows)) if kind is None else _json_column([row.get(name) for row in rows], name, kind, problems)
        )
    return None if problems else pa.table(arrays)


def json_object(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The row that a line holds, or what is wrong with the line: of it, nothing is quoted."""
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError:
        return None, "is not UTF-8 text; save the file as UTF-8"
    except json.JSONDecodeError as error:
        return None, f"is not JSON, from character {error.pos + 1} on; write one object a line"
    except RecursionError:
        return None, "is not JSON: it is nested too deeply; write one object a line"
    except ValueError:
        return None, "holds a number of too many digits; write it as text"
    if not isinstance(row, dict):
        return None, f"holds a {type(row).__name__}; write one object a line"
    if not all(map(is_unicode, row)):
        return None, "has a key that holds half a surrogate pair, which is no text; correct it"
    return row, ""


def _json_column(values: list[Any], name: str, kind: Kind, problems: Problems) -> pa.Array:
    """A column; numbers and text that stand beside each other become text where that is one name whichever it was.

    Chats become JSON, since arrow would give all messages the fields of each.
    """
    if kind == "messages":
        values = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, RecursionError):
        pass
    texts = []
    for row, value in enumerate(values):
        if isinstance(value, str) and not is_unicode(value):
            problems.add_row(row, f"column {name!r} holds half a surrogate pair, which is no text; correct it")
        elif value is None or isinstance(value, str) or _as_text_means_the_same(value, kind):
            texts.append(value if isinstance(value, str) else name_of(value))
        else:
            problems.add_row(
                row, f"column {name!r} holds a value of type {type(value).__name__} beside others; write all as text"
            )
    return pa.array(texts, pa.string())


def _as_text_means_the_same(value: Any, kind: Kind) -> bool:
    if isinstance(value, bool):
        return kind == "category"
    if isinstance(value, int):
        return kind in ("name", "category", "number")
    return isinstance(value, float) and kind in ("category", "number")


def columns_in_words(present: Sequence[str], wanted: Iterable[str]) -> str:
    """The columns of a table, for a message. Where none is one that is wanted, the first row may be a record and not
    a header; then they are only counted.

    >>> columns_in_words(["id", "words"], ["id", "text"]), columns_in_words(["Ann Lee", "7"], ["id"])
    ("the data has 'id', 'words'", 'none of the 2 columns has a name that is looked for')
    """
    if set(present) & set(wanted):
        return f"the data has {', '.join(map(repr, present))}"
    count = len(present)
    return (
        f"none of the {count} columns has a name that is looked for"
        if count > 1
        else "the only column has another name"
        if count
        else "it has no columns"
    )
