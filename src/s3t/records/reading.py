"""Reader of the user's data: CSV, JSON lines, Parquet, a pipe, `datasets.Dataset`, a pandas frame, an arrow table.

It reads a window of rows at a time, in one pass; data that is read whole is one window. Nothing is cached, so no copy
of a record is left under the user's home.

No message, and no exception behind one, holds more of a record than its row and column. Libraries quote a row that they
cannot read, so errors are raised where no other one is being handled.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, cast, get_args

import pyarrow as pa
import pyarrow.parquet

from s3t.disk import open_regular, reading_problem
from s3t.errors import DataError, InputError
from s3t.json_text import JsonError, read_json
from s3t.recipe.labels import name_of
from s3t.records.imported import is_of
from s3t.records.names import is_unicode
from s3t.records.positions import Positions
from s3t.records.problems import Problems, UnreadableError
from s3t.tasks import Kind

if TYPE_CHECKING:
    import datasets
    import pandas as pd

Data: TypeAlias = "str | Path | pa.Table | datasets.Dataset | pd.DataFrame"
"""Types that users may pass as data."""
Format: TypeAlias = Literal["csv", "jsonl", "parquet"]
"""File format."""
Rows: TypeAlias = "list[dict[str, Any]] | pa.Table"

FORMATS: Mapping[str, Format] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
"""Format of a file, by its suffix."""
WHOLE = sys.maxsize
"""Rows of a window that holds all."""
_MOST_CHARACTERS = 2**24
"""Most characters in a window, so a window of long texts has fewer rows."""
_CSV_ROWS = 2**14
"""Rows of a CSV file that are held as Python objects at a time."""
_BUFFER_BYTES = 2**20
_SHOWN = 20
"""Lines that are named one by one."""


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


def format_of(source: Path | BinaryIO, given: str | None) -> Format:
    """The format of a file or a pipe: the one that is given, else that of the file's suffix.

    >>> format_of(Path("new.csv"), None), format_of(Path("new.txt"), "jsonl")
    ('csv', 'jsonl')
    """
    known: dict[str, Format] = {name: name for name in get_args(Format)}
    if given is not None:
        if given not in known:
            raise InputError("the format", f"{given!r} is none; use {', '.join(known)}")
        return known[given]
    if not isinstance(source, Path):
        raise InputError("the format", f"of a pipe has to be given; use {', '.join(known)}")
    suffix = source.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(str(source), f"has the suffix {suffix!r}; use .csv, .jsonl or .parquet, or name its format")
    return FORMATS[suffix]


def read_data(data: Data, *, columns: Mapping[str, Kind]) -> Table:
    """All rows of a file or an object in memory. Arguments and errors as `read_windows`."""
    (table,) = read_windows(data, columns=columns, size=WHOLE)
    return table


def read_windows(
    data: Data | BinaryIO, *, columns: Mapping[str, Kind], size: int, form: Format | None = None
) -> Iterator[Table]:
    """Yields tables of at most `size` rows, at least one; of a file or a pipe, each is read when it is asked for.

    Args:
        data: path of a CSV, JSON lines or Parquet file; an open pipe of CSV or JSON lines; a Dataset, a data frame, an
            arrow table.
        columns: kind of each used column. In a CSV file all columns stay text: an id of 007 is not the number 7. Of
            others, nothing but the name is of interest.
        form: format of a file or a pipe; None: as the file's suffix says.
    """
    if isinstance(data, str | Path) or hasattr(data, "read"):
        source = Path(data) if isinstance(data, str) else cast("Path | BinaryIO", data)
        where, folder = named(source), source.parent if isinstance(source, Path) else Path()
        given = form if form is not None or not isinstance(source, Path) else FORMATS.get(source.suffix.lower())
        positions = Positions("row") if given == "parquet" else Positions("line")
        tables = _tables(source, given, positions, columns, size)
    else:
        where, folder, positions = f"the {type(data).__name__}", Path(), Positions("row")
        rows = from_memory(data, columns)
        starts = range(0, max(rows.num_rows, 1), size)
        # No more than there are: without columns a slice would grow.
        tables = (rows.slice(start, min(size, rows.num_rows - start)) for start in starts)
    first, problems = 0, Problems(positions)
    try:
        for table in tables:
            problems.begin(first)
            check_decodable(table, columns, problems)
            if not problems:
                yield Table(rows=table, where=where, folder=folder, positions=positions, first=first)
            first += table.num_rows
        found = problems.sentences()
    except UnreadableError as fault:
        found = list(fault.args)
    if found:
        raise DataError(where, found)  # here, where no library's error is handled: it quotes what it could not read


def read_rows(source: Path | BinaryIO, form: Format, *, size: int) -> Iterator[tuple[list[dict[str, Any]], list[int]]]:
    """Yields (at most `size` rows as mappings, their lines or row numbers) of a file or a pipe."""
    positions, first = Positions("row" if form == "parquet" else "line"), 0
    try:
        for rows in _windows(source, form, positions, size):
            if isinstance(rows, pa.Table) and len(set(rows.column_names)) < rows.num_columns:
                raise UnreadableError("two columns have one name; name each column once")
            listed = rows if isinstance(rows, list) else rows.to_pylist()
            yield listed, positions.numbers(first, len(listed))
            first += len(listed)
    except UnreadableError as fault:
        found = list(fault.args)
    else:
        return
    raise DataError(named(source), found)


def named(source: Path | BinaryIO) -> str:
    """Name of a source, for messages."""
    return str(source) if isinstance(source, Path) else "standard input"


def from_memory(data: Any, columns: Mapping[str, Kind]) -> pa.Table:
    """The table of an object in memory."""
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


def _tables(
    source: Path | BinaryIO, form: Format | None, positions: Positions, columns: Mapping[str, Kind], size: int
) -> Iterator[pa.Table]:
    """Windows of a file or a pipe as tables."""
    if form is None:
        raise UnreadableError(f"has the suffix {Path(named(source)).suffix.lower()!r}; use .csv, .jsonl or .parquet")
    first, problems = 0, Problems(positions)
    for rows in _windows(source, form, positions, size):
        problems.begin(first)
        first += len(rows)
        table = rows if isinstance(rows, pa.Table) else rows_as_table(rows, columns, problems)
        if table is not None:
            yield table
        elif not isinstance(source, Path):  # a pipe may never come to an end
            break
    if problems:
        raise UnreadableError(*problems.sentences())


def _windows(source: Path | BinaryIO, form: Format, positions: Positions, size: int) -> Iterator[Rows]:
    """Windows of a file or a pipe: of JSON lines the rows as they are, else tables. At least one, if all is well."""
    path = source if isinstance(source, Path) else None
    if path is None and form == "parquet":
        raise UnreadableError("cannot be Parquet, whose end is read first; write it to a file, or send JSON lines")
    if path is not None and (problem := reading_problem(path)) is not None:
        raise UnreadableError(problem)
    try:
        with open_regular(path) if path is not None else nullcontext(cast("BinaryIO", source)) as file:
            before = None if path is None else _state(file)
            if form == "jsonl":
                yield from _json_windows(file, positions, size, patient=path is not None)
            else:
                tables = (
                    _parquet_windows(file, size)
                    if form == "parquet"
                    else _csv_windows(file, positions, size, patient=path is not None)
                )
                yield from tables if size < WHOLE else [pa.concat_tables(tables)]
            if before is not None and _state(file) != before:
                raise UnreadableError("changed while it was read; run the command again when it is complete")
    except OSError as error:
        problem = f"cannot be read, perhaps truncated: {error.strerror or 'its bytes are damaged'}"
    else:
        return
    raise UnreadableError(problem)


def _state(file: BinaryIO) -> tuple[int, int]:
    """Length of a file, and time of its last change."""
    state = os.fstat(file.fileno())
    return state.st_size, state.st_mtime_ns


def _parquet_windows(file: BinaryIO, size: int) -> Iterator[pa.Table]:
    try:
        # A thread of arrow's that lets go of a Python file while Python ends aborts the process; so none is started.
        source = pa.parquet.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        count = 0
        for batch in source.iter_batches(batch_size=min(size, 2**20), use_threads=False):  # across groups of rows
            count += batch.num_rows
            yield pa.Table.from_batches([batch])
        if count == 0:
            yield source.schema_arrow.empty_table()
    except (pa.ArrowException, OSError, ValueError):
        problem = "is not a readable Parquet file, perhaps truncated; export it again"
    else:
        return
    raise UnreadableError(problem)


def _csv_windows(file: BinaryIO, positions: Positions, size: int, *, patient: bool) -> Iterator[pa.Table]:
    """Windows of a CSV file, every cell as text; all problems are told if the file is read to its end.

    Python's reader is strict, and takes cells as they are. Arrow's reads on from an open quote to the end of the file,
    and drops a line feed at the end of a block (apache/arrow#51368).
    """
    csv.field_size_limit(sys.maxsize)  # a text may be longer than the module's limit of 131,072 characters
    # Bytes that are not UTF-8 become halves of surrogate pairs, which no UTF-8 text holds.
    lines = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    of_row: list[str] = []
    reader, problems = csv.reader(_noted(lines, of_row), strict=True), Problems(positions)
    found: tuple[str, ...] = ()
    end = 0
    try:
        header = next(filter(None, reader), None)  # a row without cells is a blank line
        if header is None:
            raise UnreadableError("is an empty CSV file; begin it with a row of column names")
        if not all(map(is_unicode, header)):
            raise UnreadableError(_not_utf8(reader.line_num))
        of_row.clear()
        end, expected, width, count = reader.line_num, 0, len(header), 0
        while True:
            cells: list[str] = []
            first, characters = count, 0
            for row in reader:
                line, end = end + 1, reader.line_num
                of_row.clear()
                if not row:
                    continue
                if line != expected:
                    positions.add(count, line)
                expected = line + 1
                if len(row) != width:
                    row = _checked_ragged(row, line, width, count, problems)
                cells += row
                count += 1
                if count % 16 == 0:
                    characters += sum(map(len, cells[-16 * width :]))
                if count - first >= size or count - first >= _CSV_ROWS or characters > _MOST_CHARACTERS:
                    break
            table = _text_table(cells, header, first, positions)
            if problems and not patient:
                break
            if not problems and (cells or count == 0):
                yield table
            if not cells:
                break
    except UnreadableError as fault:
        found = fault.args
    except csv.Error:
        found = (_open_quote(end + 1, "".join(of_row)),)
    finally:
        lines.detach()  # who opened the file or the pipe closes it
    if problems or found:
        raise UnreadableError(*problems.sentences(), *found)


def _noted(lines: Iterable[str], noted: list[str]) -> Iterator[str]:
    """Yields lines, and appends each to a list."""
    for line in lines:
        noted.append(line)
        yield line


def _checked_ragged(row: Sequence[str], line: int, width: int, number: int, problems: Problems) -> list[str]:
    """Add the problem of a row with too few or too many cells; returns a row in its place."""
    if not all(map(is_unicode, row)):
        raise UnreadableError(_not_utf8(line))
    problems.add_row(
        number, f"the row has {len(row)} cells and the header {width}; put cells that hold commas into quotes"
    )
    return [""] * width


def _text_table(cells: list[str], header: list[str], first: int, positions: Positions) -> pa.Table:
    """The table of a window's cells, which come row by row."""
    width = len(header)
    try:
        return pa.Table.from_arrays([pa.array(cells[at::width], pa.string()) for at in range(width)], names=header)
    except UnicodeEncodeError:
        bad = next(number for number, cell in enumerate(cells) if not is_unicode(cell))
    raise UnreadableError(_not_utf8(positions.number(first + bad // width)))


def _not_utf8(line: int) -> str:
    return f"is not UTF-8 text in line {line}; save it as UTF-8"


_WHOLE_CELLS = re.compile(r"""(?:(?:"(?:[^"]|"")*+"|[^",\r\n][^,\r\n]*+|),)*+""")
"""Cells at the beginning of a row, each with its comma."""


def _open_quote(line: int, text: str) -> str:
    """The problem of a row that Python's reader refuses, from the line that it begins in, and its text so far.

    >>> _open_quote(7, 'ann,"two\\nlines","where\\nbob,').partition(" begins")[0]
    'line 8: a cell'
    """
    before = _WHOLE_CELLS.match(text)
    line += len(re.findall(r"\r\n?|\n", before[0])) if before else 0
    return (
        f"line {line}: a cell begins there with a quote that no quote before a comma or a line's end closes; take the "
        'quote away, or put the cell into quotes and double those within it ("")'
    )


def _json_windows(file: BinaryIO, positions: Positions, size: int, *, patient: bool) -> Iterator[list[dict[str, Any]]]:
    """Windows of JSON lines; problems of all lines are told if the file is read to its end."""
    problems: list[str] = []
    rows: list[dict[str, Any]] = []
    count, characters = 0, 0
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        row, problem = json_object(line)
        if row is None:
            problems.append(f"line {number} {problem}")
            if not patient:
                break
            continue
        positions.add(count, number)
        count += 1
        if problems:
            continue
        rows.append(row)
        characters += len(line)
        if len(rows) >= size or (size < WHOLE and characters > _MOST_CHARACTERS):
            yield rows
            rows, characters = [], 0
    if problems:
        more = [f"and {len(problems) - _SHOWN} more lines"] if len(problems) > _SHOWN else []
        raise UnreadableError(*problems[:_SHOWN], *more)
    if rows or count == 0:
        yield rows


def json_object(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The row that a line holds, or what is wrong with the line: of it, nothing is quoted."""
    try:
        row = read_json(line)
    except JsonError as error:
        problem = str(error)
        return None, problem if ";" in problem else f"{problem}; write one object a line"
    if not isinstance(row, dict):
        return None, f"holds a {type(row).__name__}; write one object a line"
    if not all(map(is_unicode, row)):
        return None, "has a key that holds half a surrogate pair, which is no text; correct it"
    return row, ""


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
