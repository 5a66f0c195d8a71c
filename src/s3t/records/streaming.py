"""Inputs window by window, from a file or a pipe, so that any number of them takes bounded memory."""

from __future__ import annotations

import io
import itertools
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar, get_args

import pyarrow as pa
import pyarrow.parquet

from s3t.errors import DataError, InputError
from s3t.records.positions import Positions, csv_rows
from s3t.records.problems import UnreadableError
from s3t.records.reading import PARQUET_SUFFIXES, SUFFIXES, json_object

Format: TypeAlias = Literal["csv", "jsonl", "parquet"]
"""File format."""

Rows: TypeAlias = "list[dict[str, Any]] | pa.Table"
Item = TypeVar("Item")


def format_of(source: Path | BinaryIO, given: str | None) -> Format:
    """The format of a file or a pipe: the one that is given, else that of the file's suffix.

    Raises:
        InputError: neither is one that s3t reads.

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
    if suffix in PARQUET_SUFFIXES:
        return "parquet"
    if suffix not in SUFFIXES:
        raise InputError(str(source), f"has the suffix {suffix!r}; use .csv, .jsonl or .parquet, or name its format")
    return "csv" if suffix == ".csv" else "jsonl"


def windows(source: Path | BinaryIO, form: Format, *, size: int) -> Iterator[tuple[Rows, Positions]]:
    """Yields (table of at most `size` rows, positions of the rows), each read when it is asked for.

    The source is a file, or a pipe of CSV or JSON lines; text is in UTF-8.

    Raises:
        DataError: the source cannot be read; nothing of a row is in it. Raised after the windows before the fault.
    """
    path = source if isinstance(source, Path) else None
    where = named(source)
    if path is not None and not path.is_file():
        raise DataError(where, "is not a file; check the path")
    if path is None and form == "parquet":
        raise DataError(where, "cannot be Parquet, whose end is read first; write it to a file, or send JSON lines")
    readers = {"csv": _csv_windows, "jsonl": _json_windows, "parquet": _parquet_windows}
    try:
        with path.open("rb") if path is not None else nullcontext(source) as file:
            yield from readers[form](file, size)  # type: ignore[arg-type]
    except UnreadableError as fault:
        problem = str(fault)
    except UnicodeDecodeError:
        problem = "is not UTF-8 text; save it as UTF-8"
    except (pa.ArrowException, OSError):
        problem = f"is not a readable {form} file, perhaps truncated; export it again"
    else:
        return
    raise DataError(where, problem)  # here, where no library's error is handled: it quotes what it could not read


def named(source: Path | BinaryIO) -> str:
    """Name of a source, for messages."""
    return str(source) if isinstance(source, Path) else "standard input"


def _csv_windows(file: BinaryIO, size: int) -> Iterator[tuple[Rows, Positions]]:
    lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield from _csv_rows_windows(csv_rows(lines), size)
    finally:
        lines.detach()  # who opened the file or the pipe closes it


def _csv_rows_windows(rows: Iterator[tuple[int, list[str]]], size: int) -> Iterator[tuple[Rows, Positions]]:
    _, header = next(rows, (0, []))
    if not header:
        raise UnreadableError("is an empty CSV file; begin it with a row of column names")
    if twice := [name for name in dict.fromkeys(header) if header.count(name) > 1]:
        raise UnreadableError(f"column {twice[0]!r} occurs {header.count(twice[0])} times; name each column once")
    for window in batched(rows, size):
        for line, row in window:
            if len(row) != len(header):
                raise UnreadableError(
                    f"line {line}: the row has {len(row)} cells and the header {len(header)}; put cells that hold "
                    "commas into quotes"
                )
        yield (
            [dict(zip(header, row, strict=True)) for _, row in window],
            Positions("line", [line for line, _ in window]),
        )


def _json_windows(file: BinaryIO, size: int) -> Iterator[tuple[Rows, Positions]]:
    lines = ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    for window in batched(lines, size):
        rows = []
        for number, line in window:
            row, problem = json_object(line.removeprefix(BOM_UTF8) if number == 1 else line)
            if row is None:
                raise UnreadableError(f"line {number} {problem}")
            rows.append(row)
        yield rows, Positions("line", [number for number, _ in window])


def _parquet_windows(file: BinaryIO, size: int) -> Iterator[tuple[Rows, Positions]]:
    start = 0
    for batch in pa.parquet.ParquetFile(file).iter_batches(batch_size=size):  # across the file's groups of rows
        yield pa.Table.from_batches([batch]), Positions("row", range(start, start + batch.num_rows))
        start += batch.num_rows


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields lists of `size` items; the last may be shorter."""
    each = iter(items)
    while batch := list(itertools.islice(each, size)):
        yield batch
