"""Reader of the user's data, a window of rows at a time, in one pass; data that is read whole is one window.

Nothing is cached, so no copy of a record is left under the user's home. No message, and no exception behind one, holds
more of a record than its row and column. Libraries quote a row that they cannot read, so errors are raised where no
other one is being handled.
"""

from __future__ import annotations

import csv
import glob
import io
import itertools
import json
import lzma
import os
import re
import sys
import uuid
from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TypeAlias, cast, get_args

import pyarrow as pa
import pyarrow.parquet

from s3t.errors import DataError
from s3t.files import is_folder, open_regular, reading_problem
from s3t.json_text import JsonError, read_json
from s3t.recipe.labels import name_of
from s3t.records.requests import CellError, is_unicode
from s3t.store.rows import WINDOW_ROWS, Cells
from s3t.tasks import Kind
from s3t.wording import reason

if TYPE_CHECKING:
    import datasets
    import pandas as pd


class Query(NamedTuple):
    """Rows of a database as data: `Query("postgresql+psycopg://me@db/shop", "select id, text, label from tickets")`."""

    url: str
    """The database's address, as SQLAlchemy writes it. Keep a password in ~/.pgpass."""
    sql: str


Data: TypeAlias = (
    "str | Path | pa.Table | datasets.Dataset | datasets.DatasetDict | pd.DataFrame | Sequence[Mapping[str, Any]] | "
    "Query"
)
"""Types that users may pass as data; a path may be a folder of Parquet files, or a pattern of their names."""
Format: TypeAlias = Literal["csv", "tsv", "jsonl", "parquet"]
Window: TypeAlias = "pa.Table | list[dict[str, Any]]"
"""Rows as they are read: of JSON lines as mappings, else a table."""
Row: TypeAlias = "tuple[int, Sequence[Any], int]"
"""The line or number of a row, its cells, and its length in characters."""

FORMATS: Mapping[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
"""Format of a file, by its suffix, which that of a compression may follow."""
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".xz": "xz"}
WHOLE = sys.maxsize
"""Rows of a window that holds all."""
_MOST_CHARACTERS = 2**24
"""Most characters in a window, so a window of long texts has fewer rows."""
_BUFFER_BYTES = 2**20
_SHOWN_LINES = 20
"""Lines that are named one by one."""
_SHOWN_ROWS = 10
"""Rows that a sentence names one by one."""
_TEXT = pa.string()


class UnreadableError(Exception):
    """The reason why no more of a file can be read: without its content, which a library's error may quote."""


class Positions:
    """Position of every record, for messages. A file's lines count from 1, a CSV file's header included; a table's rows
    from 0. Memory is taken by records that do not begin in the line after their predecessor's.
    """

    def __init__(self, noun: Literal["line", "row"]) -> None:
        self.noun = noun
        self.delimiter: str | None = None
        """Between the cells of a CSV or TSV file; else None."""
        self._files: list[tuple[int, str]] = []
        self._records, self._numbers = array("q", [0]), array("q", [0])

    def add(self, record: int, number: int) -> None:
        """Note the line of the next record; records are counted from 0 in the order of the file."""
        if number - self._numbers[-1] != record - self._records[-1]:
            self._records.append(record)
            self._numbers.append(number)

    def begin(self, record: int, file: str) -> None:
        """Note the file that the next records come from, where there are several; messages count from its start."""
        self._files.append((record, file))

    def numbers(self, records: Iterable[int]) -> list[int]:
        places = ((record, bisect_right(self._records, record) - 1) for record in records)
        return [self._numbers[at] + record - self._records[at] for record, at in places]

    def named(self, records: Sequence[int]) -> str:
        """Records in a message, the first few of many.

        >>> lines = Positions("line")
        >>> for record, line in enumerate([2, 3, 7]):
        ...     lines.add(record, line)
        >>> lines.named([2]), lines.named([0, 1])
        ('line 7', 'lines 2, 3')
        """
        shown = records[:_SHOWN_ROWS]
        listed = ", ".join(map(self._in_words, shown, self.numbers(shown)))
        more = f" and {len(records) - _SHOWN_ROWS} more" if len(records) > _SHOWN_ROWS else ""
        return f"{self.noun}{'' if len(records) == 1 else 's'} {listed}{more}"

    def _in_words(self, record: int, number: int) -> str:
        if not self._files:
            return str(number)
        first, file = self._files[bisect_right(self._files, record, key=itemgetter(0)) - 1]
        return f"{record - first} of {file}"


class Problems:
    """Problems of the data, each once, with the records that have it. `where` is the file, or the kind of object."""

    def __init__(self, where: str, positions: Positions) -> None:
        self.where, self.positions = where, positions
        self._records: dict[str, list[int]] = {}

    def add(self, problem: str, record: int | None = None) -> None:
        """A problem of one record, by its number among all; or of the whole data."""
        self._records.setdefault(problem, []).extend(() if record is None else (record,))

    def __bool__(self) -> bool:
        return bool(self._records)

    def refuse(self) -> None:
        """Raise all problems, if there are any, those of the whole data first."""
        ordered = sorted(self._records.items(), key=lambda problem: bool(problem[1]))
        if ordered:
            listed = (f"{self.positions.named(rows)}: {problem}" if rows else problem for problem, rows in ordered)
            raise DataError(self.where, listed)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as read, or a window of it: not yet checked."""

    rows: pa.Table
    folder: Path
    """The folder that relative image paths start from."""
    first: int
    """Number of the first row among all of the data, where this is a window of it."""
    problems: Problems
    """Problems that are found in this window, and were in earlier ones."""

    def cells(self, name: str | None, kind: Kind) -> Cells | None:
        """A column's values; None if it is not there once, or if its type does not fit, which is a problem."""
        if name is None or self.rows.column_names.count(name) != 1:
            return None
        column = self.rows[name]
        if (problem := type_problem(column.type, kind)) is not None:
            self.problems.add(f"column {name!r} {problem}")
            return None
        return Cells(column)

    def column(
        self,
        name: str | None,
        kind: Kind,
        parse: Callable[[Any], Any],
        made: pa.DataType = _TEXT,
        *,
        what: str = "",
        cells: Iterable[Any] | None = None,
    ) -> pa.ChunkedArray:
        """The parsed cells of a column, or those given. Where `parse` raises `CellError`, the problem is noted and the
        value is null. `what` names the column's content in messages."""
        named = f"{what} (column {name!r})" if what else f"column {name!r}"
        if cells is None:
            cells = self.cells(name, kind) or ()

        def values() -> Iterator[Any]:
            for row, cell in enumerate(cells, start=self.first):
                try:
                    yield parse(cell)
                except CellError as error:
                    self.problems.add(f"{named} {error}", row)
                    yield None

        return converted(values(), made)


def converted(values: Iterable[Any], kind: pa.DataType = _TEXT) -> pa.ChunkedArray:
    each = iter(values)
    chunks: list[pa.Array] = []
    while window := list(itertools.islice(each, WINDOW_ROWS)):
        made = pa.array(window, kind)
        chunks += made.chunks if isinstance(made, pa.ChunkedArray) else [made]  # texts of more than 2 GB
    return pa.chunked_array(chunks, kind)


_TYPES: Mapping[str, Callable[[pa.DataType], bool]] = {
    "nothing": pa.types.is_null,
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
    "floating-point numbers": pa.types.is_floating,
    "decimal numbers": pa.types.is_decimal,
    "whole numbers": pa.types.is_integer,
    "true and false": pa.types.is_boolean,
    "dates or times": pa.types.is_temporal,
    "bytes": lambda kind: (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    ),
    "lists": lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind),
    "mappings": pa.types.is_nested,
}
_NAMES = frozenset({"nothing", "text", "whole numbers"})
_CATEGORIES = _NAMES | {"true and false", "floating-point numbers"}  # these are declared, so 1.0 can only mean 1
_LISTS = frozenset({"nothing", "text", *(f"lists of {content}" for content in _CATEGORIES)})
_FITTING: Mapping[Kind, tuple[frozenset[str], str]] = {
    "name": (_NAMES, "an id or a subject is text or a whole number"),
    "category": (_CATEGORIES, "a label or a group is text, a number, true or false"),
    "categories": (_LISTS, "labels are lists, or text with a delimiter"),
    "number": (_NAMES | {"floating-point numbers", "decimal numbers"}, "a regression's label is a number"),
    "text": (frozenset({"nothing", "text"}), "a text is text"),
    "date": (frozenset({"nothing", "text", "dates or times"}), "a date is text (2026-11-30), a date or a time"),
    "words": (_LISTS, "words are lists of text, or text with a delimiter"),
    "messages": (
        frozenset({"nothing", "text", "lists of mappings", "lists of nothing"}),
        "a chat is a list of messages, or such a list as JSON",
    ),
}
"""Contents of a column that fit its kind, and what they have to be, for messages. Images may be anything."""


def type_in_words(kind: pa.DataType) -> str:
    """Content of a column of that type, in words: a mapping's type would name its keys.

    >>> type_in_words(pa.float64()), type_in_words(pa.list_(pa.struct({"key": pa.string()})))
    ('floating-point numbers', 'lists of mappings')
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    words = next((words for words, fits in _TYPES.items() if fits(kind)), "values of another kind")
    return f"lists of {type_in_words(kind.value_type)}" if words == "lists" else words


def type_problem(kind: pa.DataType, wanted: Kind) -> str | None:
    """The reason why a column of that type cannot hold what it should; None if it can."""
    if wanted not in _FITTING:
        return None
    fitting, expected = _FITTING[wanted]
    content = type_in_words(kind)
    return None if content in fitting else f"holds {content}; {expected}, so convert the column"


def format_of(source: Path | BinaryIO, given: str | None) -> Format:
    """The format of a file or a pipe: the one that is given, else that of the file's suffix.

    >>> format_of(Path("new.csv"), None), format_of(Path("new.txt"), "jsonl")
    ('csv', 'jsonl')
    """
    if given in get_args(Format):
        return cast("Format", given)
    if given is not None or not isinstance(source, Path):
        problem = "of a pipe has to be given" if given is None else f"{given!r} is none"
        raise DataError("the format", f"{problem}; use {', '.join(get_args(Format))}")
    if (found := format_named(source)) is None:
        known = ".csv, .tsv, .json, .jsonl (which .gz, .bz2, .xz or .zst may follow) or .parquet"
        raise DataError(str(source), f"has the suffix {source.suffix!r}; use {known}, or name its format")
    return found


def format_named(path: Path) -> Format | None:
    if path.suffix.lower() not in _COMPRESSIONS:
        return FORMATS.get(path.suffix.lower())
    found = FORMATS.get(Path(path.stem).suffix.lower())
    return None if found == "parquet" else found


def read_data(data: Data, *, columns: Mapping[str, Kind]) -> Table:
    """All rows of a file or an object in memory. Arguments and errors as `read_windows`."""
    (table,) = read_windows(data, columns=columns, size=WHOLE)
    return table


def read_windows(
    data: Data | BinaryIO, *, columns: Mapping[str, Kind], size: int, form: str | None = None
) -> Iterator[Table]:
    """Yields tables of at most `size` rows, at least one; of a file or a pipe, each is read when it is asked for.

    `data` may be an open pipe of CSV or JSON lines. `columns` gives the kind of each used column; of others, nothing
    but the name is of interest. In a CSV file all columns stay text: an id of 007 is not the number 7. `form` is as of
    `format_of`.
    """
    folder = Path()
    if isinstance(data, str):
        data = Path(data)
    if isinstance(data, Path) and (parts := _parts(data)):
        folder, problems = parts[0].parent, Problems(str(data), Positions("row"))
        windows = _windows_together(parts, problems, size)
    elif isinstance(data, Query):
        problems, windows = _opened_query(data, size)
    elif isinstance(data, Path) or hasattr(data, "read"):
        source = cast("Path | BinaryIO", data)
        folder = source.parent if isinstance(source, Path) else folder
        problems, windows = _opened(source, format_of(source, form), size)
    else:
        problems = Problems(f"the {type(data).__name__}", Positions("row"))
        rows = _from_memory(data, columns, problems)
        # No more than there are: without columns a slice would grow.
        starts = range(0, max(rows.num_rows, 1), size)
        windows = ((at, rows.slice(at, min(size, rows.num_rows - at))) for at in starts)
    of_rows = Problems(problems.where, problems.positions)
    for first, window in windows:
        table = window if isinstance(window, pa.Table) else _json_table(window, columns, problems, first)
        _check_decodable(table, columns, problems, first)
        if not problems:
            yield Table(rows=table, folder=folder, first=first, problems=of_rows)
    problems.refuse()


def read_rows(source: Path | BinaryIO, form: Format, *, size: int) -> Iterator[tuple[list[dict[str, Any]], list[int]]]:
    """Yields (at most `size` rows as mappings, their lines or row numbers) of a file or a pipe."""
    problems, windows = _opened(source, form, size)
    for first, rows in windows:
        if isinstance(rows, pa.Table):
            _check_decodable(rows, rows.column_names, problems, first)
            if len(set(rows.column_names)) < rows.num_columns:
                problems.add("two columns have one name; name each column once")
        if not problems:
            listed = rows if isinstance(rows, list) else rows.to_pylist()
            yield listed, problems.positions.numbers(range(first, first + len(listed)))
    problems.refuse()


def _opened(source: Path | BinaryIO, form: Format, size: int) -> tuple[Problems, Iterator[tuple[int, Window]]]:
    where = str(source) if isinstance(source, Path) else "standard input"
    by_row = form == "parquet" or (form == "jsonl" and isinstance(source, Path) and _begins_an_array(source))
    problems = Problems(where, Positions("row" if by_row else "line"))
    return problems, _windows(source, form, problems, size)


def _parts(path: Path) -> list[Path]:
    """Parquet files of a folder, or that a pattern (`*`, `?`, `[`) names, in the order of their names."""
    if is_folder(path):
        found = sorted(each for each in path.iterdir() if each.suffix.lower() in (".parquet", ".pq"))
        wanted = "holds no Parquet file; name a file, or a folder of Parquet files"
    elif not glob.has_magic(str(path)) or path.exists():
        return []
    else:
        found = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 - of absolute patterns, too
        wanted = "names files that are not Parquet" if found else "names no file; check the pattern"
    if not found or any(FORMATS.get(each.suffix.lower()) != "parquet" for each in found):
        raise DataError(str(path), wanted)
    return found


def _windows_together(parts: Sequence[Path], problems: Problems, size: int) -> Iterator[tuple[int, Window]]:
    """Windows of several Parquet files, one after another."""
    first, tables = 0, []
    for part in parts:
        own = Problems(str(part), problems.positions)
        problems.positions.begin(first, part.name)
        for _, window in _windows(part, "parquet", own, size):
            table = cast("pa.Table", window)
            if size == WHOLE:
                tables.append(table)
            else:
                yield first, table
            first += table.num_rows
        own.refuse()
    if tables:
        try:
            yield 0, pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException:
            problems.add("its files have other types of a column; convert them")


def _begins_an_array(path: Path) -> bool:
    """True if a file holds one JSON array of rows; False if it cannot be read, which is told later."""
    with suppress(OSError, UnreadableError), open_regular(path) as file, _uncompressed(file, path) as content:
        return content.read(_BUFFER_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    return False


@contextmanager
def _uncompressed(file: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """The content of a file, whose suffix tells its compression."""
    compression = _COMPRESSIONS.get(path.suffix.lower())
    if compression is None:
        yield file
        return
    try:
        if compression == "xz":
            with lzma.LZMAFile(file) as content:
                yield cast("BinaryIO", content)
        else:
            stream: Any = pa.CompressedInputStream(pa.PythonFile(file, "r"), compression)
            yield cast("BinaryIO", io.BufferedReader(stream, _BUFFER_BYTES))
    except (lzma.LZMAError, EOFError, OSError):
        raise UnreadableError(f"is no whole {compression} file, perhaps truncated; make it again") from None


def columns_in_words(present: Sequence[str], wanted: Iterable[str]) -> str:
    """The columns of a table, for a message. Where none is wanted, the first row may be a record: they are counted.

    >>> columns_in_words(["id", "words"], ["id", "text"]), columns_in_words(["Ann Lee", "7"], ["id"])
    ("the data has 'id', 'words'", 'none of the 2 columns has a name that is looked for')
    """
    if set(present) & set(wanted):
        return f"the data has {', '.join(map(repr, present))}"
    count = len(present)
    if count > 1:
        return f"none of the {count} columns has a name that is looked for"
    return "the only column has another name" if count else "it has no columns"


# Objects in memory.


def is_of(value: object, package: str, *classes: str) -> bool:
    """True if a value is of one of some classes of a package, which a caller who has such a value has imported. While
    another thread imports the package, its classes are not there yet, and no value is.

    >>> import fractions
    >>> is_of(fractions.Fraction(1), "fractions", "Fraction", "NoSuchClass"), is_of(1, "no_such_package", "Fraction")
    (True, False)
    """
    module = sys.modules.get(package)
    return isinstance(value, tuple(getattr(module, name) for name in classes if hasattr(module, name)))


def _from_memory(data: Any, columns: Mapping[str, Kind], problems: Problems) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if is_of(data, "pandas", "DataFrame"):
        return _from_frame(data, columns, problems)
    if is_of(data, "datasets", "DatasetDict"):
        if len(data) != 1:
            remedy = f"pass one of them: data[{next(iter(data), '')!r}]"
            raise DataError(problems.where, f"has the splits {', '.join(data)}; {remedy}")
        (data,) = data.values()
    if is_of(data, "datasets", "Dataset"):
        return _from_dataset(data)
    if isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        if not all(is_unicode(str(name)) for name in set(itertools.chain.from_iterable(data))):
            raise DataError(problems.where, "has a key that holds half a surrogate pair, which is no text; correct it")
        return _json_table(data, columns, problems, 0)
    kinds = "a path, a datasets.Dataset, a pandas.DataFrame, a pyarrow.Table or a list of mappings"
    raise DataError(problems.where, f"is not data; pass {kinds}")


def _from_dataset(data: datasets.Dataset) -> pa.Table:
    """The table of a data set, with the names of its class labels in place of their codes."""
    table = data.with_format("arrow")[:]
    for name, feature in data.features.items():
        inner = getattr(feature, "feature", feature)
        if is_of(inner, "datasets", "ClassLabel"):
            names = [_class_names(inner, cell) for cell in table[name].to_pylist()]
            kind = pa.string() if inner is feature else pa.list_(pa.string())
            table = table.set_column(table.column_names.index(name), name, pa.array(names, kind))
    return table


def _class_names(feature: datasets.ClassLabel, code: Any) -> Any:
    """The name of a class, or the names of several; None for -1, by which unlabelled splits say that there is none."""
    if isinstance(code, list):
        return [_class_names(feature, one) for one in code]
    return None if code is None or code < 0 else str(feature.int2str(code))


def _from_frame(frame: pd.DataFrame, columns: Mapping[str, Kind], problems: Problems) -> pa.Table:
    """The table of a pandas frame, column by column: unused columns may hold anything."""
    names = [str(name) for name in frame.columns]
    arrays = [pa.nulls(len(frame))] * len(names)
    for place, name in enumerate(names):
        if name not in columns:
            continue
        try:
            array = pa.Array.from_pandas(frame.iloc[:, place])
        except (pa.ArrowException, UnicodeEncodeError, OverflowError, TypeError, ValueError):
            problem = "mixes types, or holds values that no table has; convert it to text or to numbers"
            problems.add(f"column {name!r} {problem}")
            continue
        arrays[place] = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return pa.Table.from_arrays(arrays, names=names)


def _check_decodable(rows: pa.Table, columns: Container[str], problems: Problems, first: int) -> None:
    """Add the problems of text that is not UTF-8, and of mappings that no reader tells apart: arrow takes both over
    unseen, and fails where they are first read."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name not in columns:
            continue
        if _repeats_a_field(column.type):
            problems.add(f"column {name!r} holds mappings that give a field twice; keep one of the two")
            continue
        try:
            column.validate(full=True)
        except pa.ArrowException:
            bad = [row for row in range(rows.num_rows) if not _readable(column[row])]
            for row in bad:
                problems.add(f"column {name!r} is not UTF-8 text; correct it", first + row)
            if not bad:
                problems.add(f"column {name!r} is damaged; export it again")


def _repeats_a_field(kind: pa.DataType) -> bool:
    fields = [kind.field(place) for place in range(kind.num_fields)]
    return len({field.name for field in fields}) < len(fields) or any(_repeats_a_field(field.type) for field in fields)


def _readable(value: Any) -> bool:
    with suppress(UnicodeDecodeError):
        value.as_py()
        return True
    return False


# Files and pipes.


def _windows(source: Path | BinaryIO, form: Format, problems: Problems, size: int) -> Iterator[tuple[int, Window]]:
    """Yields (number of its first row, window) of a file or a pipe; at least one, if all is well. Of a pipe, which may
    never end, none follows a problem."""
    path, first = source if isinstance(source, Path) else None, 0
    try:
        if path is None and form == "parquet":
            raise UnreadableError("cannot be Parquet, whose end is read first; write it to a file, or send JSON lines")
        if path is not None and (problem := reading_problem(path)) is not None:
            raise UnreadableError(problem)
        with ExitStack() as exits:
            if path is None:
                file = opened = cast("BinaryIO", source)
            else:
                opened = exits.enter_context(open_regular(path))
                file = exits.enter_context(_uncompressed(opened, path))
            before = None if path is None else _state(opened)
            windows: Iterable[Window]
            if form == "jsonl":
                by_row = problems.positions.noun == "row"
                rows = _array_rows(file, problems) if by_row else _json_rows(file, problems, endless=path is None)
                windows = _cut(rows, problems.positions, size)
                windows = windows if size < WHOLE else [list(itertools.chain.from_iterable(windows))]
            elif form == "parquet":
                windows = _parquet_windows(file, size)
            else:
                windows = _csv_windows(file, problems, min(size, WINDOW_ROWS), "\t" if form == "tsv" else ",")
                windows = windows if size < WHOLE else [pa.concat_tables(windows)]
            for window in windows:
                yield first, window
                if problems and path is None:
                    return
                first += len(window)
            if before is not None and _state(opened) != before:
                raise UnreadableError("changed while it was read; run the command again when it is complete")
    except UnreadableError as fault:
        problems.add(str(fault))
    except OSError as error:
        problems.add(f"cannot be read, perhaps truncated: {error.strerror or 'its bytes are damaged'}")


def _opened_query(query: Query, size: int) -> tuple[Problems, Iterator[tuple[int, Window]]]:
    """Windows of what a database answers, as it sends them. An error does not quote the statement, nor its values."""
    from sqlalchemy import create_engine, exc, make_url

    try:
        engine = create_engine(url := make_url(query.url))
    except (exc.ArgumentError, ImportError, ValueError) as error:  # these quote the dialect's name at most
        raise DataError("the database", f"its address cannot be used ({reason(error)}); install its driver") from None
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).is_file():
        raise DataError("the database", f"{url.database} is no file")
    problems = Problems(f"the rows of {url.set(password=None, query={})}", Positions("row"))

    def windows() -> Iterator[tuple[int, Window]]:
        first = 0
        try:
            options: dict[str, Any] = {"stream_results": True, "max_row_buffer": WINDOW_ROWS, "no_parameters": True}
            with engine.connect().execution_options(**options) as connection:
                result = connection.exec_driver_sql(query.sql)
                if not result.returns_rows:
                    raise UnreadableError("the statement gives no rows; write a SELECT")
                names = list(result.keys())
                if len({*names}) < len(names):
                    problems.add("two columns have one name; name each column once")
                for part in [result.all()] if size == WHOLE else result.partitions(min(size, WINDOW_ROWS)):
                    yield first, [dict(zip(names, map(_plain, row), strict=True)) for row in part]
                    first += len(part)
                if not first:
                    yield 0, pa.table({name: [] for name in names})
        except UnreadableError as fault:
            problems.add(str(fault))
        except exc.SQLAlchemyError as error:  # its text quotes the statement, and may quote values
            cause = getattr(error, "orig", None) or error
            code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
            kind = f"{type(cause).__name__}{f', {code}' if code else ''}"
            problems.add(f"the database refused ({kind}); try the statement in its own program")
        finally:
            engine.dispose()

    return problems, windows()


def _plain(value: Any) -> Any:
    """A value of a database's driver as a file would have it."""
    return str(value) if isinstance(value, uuid.UUID) else bytes(value) if isinstance(value, memoryview) else value


def _state(file: BinaryIO) -> tuple[int, int]:
    state = os.fstat(file.fileno())
    return state.st_size, state.st_mtime_ns


def _cut(rows: Iterable[Row], positions: Positions, size: int) -> Iterator[list[Any]]:
    """Windows of rows: the cells of all, one after another. Long rows make shorter windows."""
    window: list[Any] = []
    count = begin = characters = 0
    for line, row, long in rows:
        positions.add(count, line)
        window += row
        count, characters = count + 1, characters + long
        if count - begin >= size or characters > _MOST_CHARACTERS:
            yield window
            window, begin, characters = [], count, 0
    if window or count == 0:
        yield window


def _parquet_windows(file: BinaryIO, size: int) -> Iterator[pa.Table]:
    try:
        # A thread of arrow's that lets go of a Python file while Python ends aborts the process; so none is started.
        source = pa.parquet.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        if size == WHOLE or source.metadata.num_rows == 0:
            yield source.read(use_threads=False)
            return
        for batch in source.iter_batches(batch_size=size, use_threads=False):  # across groups of rows
            yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError, ValueError):
        raise UnreadableError("is not a readable Parquet file, perhaps truncated; export it again") from None


def _csv_windows(file: BinaryIO, problems: Problems, size: int, delimiter: str) -> Iterator[pa.Table]:
    """Windows of a CSV or TSV file, every cell as text."""
    problems.positions.delimiter = delimiter
    # Bytes that are not UTF-8 become halves of surrogate pairs, which no UTF-8 text holds.
    lines = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        rows = _csv_rows(lines, problems, delimiter)
        _, header, _ = next(rows, (0, [], 0))
        if not header:
            raise UnreadableError("is an empty CSV file; begin it with a row of column names")
        for cells in _cut(rows, problems.positions, size):  # no row objects: they cost as much as reading
            columns = [pa.array(cells[column :: len(header)], pa.string()) for column in range(len(header))]
            yield pa.Table.from_arrays(columns, names=header)
    finally:
        if not file.closed:  # else it was, before this generator
            lines.detach()  # who opened the file or the pipe closes it


def _csv_rows(lines: Iterable[str], problems: Problems, delimiter: str) -> Iterator[Row]:
    """Rows that are not blank, the header first; in place of one with too few or too many cells, an empty one. Arrow's
    reader reads on from an open quote to the end, and drops a line feed at a block's end (apache/arrow#51368).
    """
    csv.field_size_limit(sys.maxsize)  # a text may be longer than the module's limit of 131,072 characters
    of_row: list[str] = []

    def noted() -> Iterator[str]:
        for number, line in enumerate(lines, start=1):
            if not is_unicode(line):
                raise UnreadableError(f"is not UTF-8 text in line {number}; save it as UTF-8")
            of_row.append(line)
            yield line

    reader = csv.reader(noted(), strict=True, delimiter=delimiter)
    end, number, width = 0, -1, 0  # the header is row -1
    try:
        for row in reader:
            line, end = end + 1, reader.line_num
            characters = sum(map(len, of_row))
            of_row.clear()
            if not row:
                continue
            if len(row) != width and number >= 0:
                name = "commas" if delimiter == "," else "tabs"
                why = f"the row has {len(row)} cells and the header {width}; put cells that hold {name} into quotes"
                problems.add(why, number)
                row = [""] * width
            elif number < 0:
                width = len(row)
            yield line, row, characters
            number += 1
    except csv.Error:
        raise UnreadableError(_open_quote(end + 1, "".join(of_row), delimiter)) from None


_WHOLE_CELLS = {
    delimiter: re.compile(rf"""(?:(?:"(?:[^"]|"")*+"|[^"{delimiter}\r\n][^{delimiter}\r\n]*+|){delimiter})*+""")
    for delimiter in ",\t"
}
"""Cells at the beginning of a row, each with its delimiter."""


def _open_quote(line: int, text: str, delimiter: str = ",") -> str:
    """The problem of a row that Python's reader refuses, from the line that it begins in, and its text so far.

    >>> _open_quote(7, 'ann,"two\\nlines","where\\nbob,').partition(" begins")[0]
    'line 8: a cell'
    """
    before = _WHOLE_CELLS[delimiter].match(text)
    line += len(re.findall(r"\r\n?|\n", before[0])) if before else 0
    return (
        f"line {line}: a cell begins there with a quote that no quote before a comma or a line's end closes; take the "
        'quote away, or put the cell into quotes and double those within it ("")'
    )


def _json_rows(file: BinaryIO, problems: Problems, *, endless: bool) -> Iterator[Row]:
    """Rows of JSON lines up to the first that is none; then all such lines are looked for."""
    wrong = 0
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = _checked_row(read_json(line, remedy=_LINES), _LINES)
        except JsonError as error:
            wrong += 1
            if wrong <= _SHOWN_LINES:
                problems.add(f"line {number} {error}")
            if endless:
                return
            continue
        if not wrong:
            yield number, (row,), len(line)
    if wrong > _SHOWN_LINES:
        problems.add(f"and {wrong - _SHOWN_LINES} more lines")


def _array_rows(file: BinaryIO, problems: Problems) -> Iterator[Row]:
    """Rows of one array, which is read whole."""
    try:
        rows = read_json(file.read(), remedy=_ARRAY)
    except JsonError as error:
        raise UnreadableError(str(error)) from None
    for number, row in enumerate(rows):
        try:
            checked = _checked_row(row, _ARRAY)
        except JsonError as error:
            problems.add(str(error), number)
            checked = {}  # in its place, so that later rows keep their numbers
        yield number, (checked,), len(str(row))


_LINES, _ARRAY = "write one object a line", "write an array of objects"


def _checked_row(row: Any, remedy: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise JsonError(f"holds a {type(row).__name__}; {remedy}")
    if not all(map(is_unicode, row)):
        raise JsonError("has a key that holds half a surrogate pair, which is no text; correct it")
    return row


def _json_table(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Kind], problems: Problems, first: int
) -> pa.Table:
    """Rows with the names of their columns as a table; a column with a problem, and an unused one, is empty in it."""
    return pa.table(
        {
            str(name): _json_column([row.get(name) for row in rows], name, columns[name], problems, first)
            if name in columns
            else pa.nulls(len(rows))
            for name in dict.fromkeys(itertools.chain.from_iterable(rows))
        }
    )


_AS_TEXT: Mapping[Kind, tuple[type, ...]] = {
    "name": (int,),
    "category": (bool, int, float),
    "number": (int, float),
}
"""Values of JSON that mean the same as text, in a column of a kind."""
_REMEDIES: Mapping[Kind, str] = {
    "image": "write bytes or paths",
    "messages": "write lists of messages, not nested deeper",
    "words": "write lists of text alone",
    "categories": "write lists of labels of one type",
}
"""Remedies for values that fit no column of a kind."""


def _json_column(values: list[Any], name: str, kind: Kind, problems: Problems, first: int) -> pa.Array:
    """A column; numbers and text beside each other become text where that is one name whichever it was. Chats become
    JSON, since arrow would give all messages the fields of each."""
    with suppress(pa.ArrowException, OverflowError, RecursionError, TypeError, ValueError):
        if kind == "messages":
            values = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        return pa.array(values)
    texts: list[str | None] = []
    for row, value in enumerate(values, start=first):
        text = name_of(value) if type(value) in _AS_TEXT.get(kind, ()) else value
        if isinstance(text, str) and is_unicode(text):
            texts.append(text)
            continue
        texts.append(None)
        if isinstance(text, str):
            problems.add(f"column {name!r} holds half a surrogate pair, which is no text; correct it", row)
        elif text is not None:
            remedy = _REMEDIES.get(kind, "write all as text")
            problems.add(
                f"column {name!r} holds a value of type {type(text).__name__} that does not fit; {remedy}", row
            )
    return pa.array(texts, pa.string())
