"""The user's data a window of rows at a time, whatever its form: the same rows as `reading.read_data` reads at once.

Nothing is cached, and messages hold nothing of a record, as there.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from s3t.disk import open_regular
from s3t.errors import DataError
from s3t.records.csv_blocks import CsvBlocks
from s3t.records.positions import Positions
from s3t.records.problems import Problems, UnreadableError
from s3t.records.reading import (
    PARQUET_SUFFIXES,
    Data,
    Table,
    check_decodable,
    file_problem,
    from_memory,
    json_rows,
    not_utf8_problem,
    ragged_problems,
    rows_as_table,
    shown_lines,
)
from s3t.records.streaming import batched
from s3t.tasks import Kind

_BUFFER_BYTES = 2**20
_CHANGED = "changed while it was read; run the command again when it is complete"


def read_windows(data: Data, *, columns: Mapping[str, Kind], size: int) -> Iterator[Table]:
    """Yields tables of at most `size` rows, at least one; of a file, each is read when it is asked for.

    Args:
        data: as for `read_data`.
        columns: kind of each used column. In a CSV file all columns stay text.
        size: rows.

    Raises:
        DataError: as `read_data`, after the windows before the fault or later; they are then of no use.
    """
    if isinstance(data, str | Path):
        path = Path(data)
        where, folder, positions = str(data), path.parent, Positions.in_file(path)
        tables = _of_file(path, columns, positions, size)
    else:
        where, folder, positions = f"the {type(data).__name__}", Path(), Positions.in_table()
        tables = iter((from_memory(data, columns),))
    first, problems = 0, Problems(positions)
    try:
        for table in tables:
            for start in range(0, max(table.num_rows, 1), size):
                rows = table.slice(start, min(size, table.num_rows - start))  # no more: without columns it would grow
                problems.begin(first)
                check_decodable(rows, columns, problems)
                if not problems:
                    yield Table(rows=rows, where=where, folder=folder, positions=positions, first=first)
                first += rows.num_rows
        found = problems.sentences()
    except UnreadableError as fault:
        found = list(fault.args)
    if found:
        raise DataError(where, found)  # here, where no library's error is handled: it quotes what it could not read


def _of_file(path: Path, columns: Mapping[str, Kind], positions: Positions, size: int) -> Iterator[pa.Table]:
    suffix = path.suffix.lower()
    problem = file_problem(path)
    if problem is not None:
        raise UnreadableError(problem)
    try:
        with open_regular(path) as file:
            before = _state(file)
            if suffix in PARQUET_SUFFIXES:
                yield from _parquet_tables(file, size)
            elif suffix == ".csv":
                yield from _csv_tables(path, file, positions)
            else:
                yield from _json_tables(file, columns, positions, size)
            if _state(file) != before:
                raise UnreadableError(_CHANGED)
    except OSError as error:
        problem = f"cannot be read, perhaps truncated: {error.strerror or 'its bytes are damaged'}"
    else:
        return
    raise UnreadableError(problem)


def _state(file: BinaryIO) -> tuple[int, int]:
    """Length of a file, and time of its last change."""
    state = os.fstat(file.fileno())
    return state.st_size, state.st_mtime_ns


def _parquet_tables(file: BinaryIO, size: int) -> Iterator[pa.Table]:
    try:
        # A thread of arrow's that lets go of a Python file while Python ends aborts the process; so none is started.
        source = pa.parquet.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        schema, count = source.schema_arrow, 0
        for batch in source.iter_batches(batch_size=size, use_threads=False):
            count += batch.num_rows
            yield pa.Table.from_batches([batch])
        if count == 0:
            yield schema.empty_table()
    except (pa.ArrowException, OSError, ValueError):
        problem = "is not a readable Parquet file, perhaps truncated; export it again"
    else:
        return
    raise UnreadableError(problem)


def _csv_tables(path: Path, file: BinaryIO, positions: Positions) -> Iterator[pa.Table]:
    blocks = CsvBlocks()
    # Looked at first: arrow decodes a ragged row where none can catch it.
    if line := _line_that_is_not_utf8(file, blocks):
        raise UnreadableError(not_utf8_problem(line))
    ragged: list[tuple[int, int, int]] = []
    try:
        with _opened_csv(path, [], {}, blocks) as probe:
            names = probe.schema.names
        with _opened_csv(path, ragged, dict.fromkeys(names, pa.string()), blocks) as reader:
            schema, count = reader.schema, 0
            for batch in reader:
                count += batch.num_rows
                yield pa.Table.from_batches([batch])
            if count == 0:
                yield schema.empty_table()
    except pa.ArrowException:
        file.seek(0)
        if file.read(_BUFFER_BYTES).strip():
            problem = "is not a readable CSV file, perhaps truncated; export it again"
        else:
            problem = "is an empty CSV file; begin it with a row of column names"
    else:
        if ragged:
            raise UnreadableError(*ragged_problems(ragged, positions))
        return
    raise UnreadableError(problem)


def _opened_csv(
    path: Path, ragged: list[tuple[int, int, int]], types: Mapping[str, pa.DataType], blocks: CsvBlocks
) -> Any:
    """A reader of the rows that have as many cells as the header; of each other one it notes its number, its cells,
    and the header's."""

    def skip(row: Any) -> str:
        ragged.append(((row.number or 2) - 2, row.actual_columns, row.expected_columns))
        return "skip"

    return pa.csv.open_csv(
        pa.OSFile(str(path)),  # read by a thread of arrow's
        # By several threads, rows have no numbers.
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=blocks.nbytes),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        convert_options=pa.csv.ConvertOptions(column_types=types),
    )


def _line_that_is_not_utf8(file: BinaryIO, blocks: CsvBlocks) -> int | None:
    """The first line that is not UTF-8 text, from 1; None if all are. Measures the rows, too."""
    decoder, lines = codecs.getincrementaldecoder("utf-8")(), 1
    while block := file.read(_BUFFER_BYTES):
        blocks.add(block)
        try:
            decoder.decode(block)
        except UnicodeDecodeError as error:
            return lines + error.object[: error.start].count(b"\n")
        lines += block.count(b"\n")
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return lines
    return None


def _json_tables(file: BinaryIO, columns: Mapping[str, Kind], positions: Positions, size: int) -> Iterator[pa.Table]:
    lines: list[str] = []
    first, problems = 0, Problems(positions)
    for rows in batched(json_rows(file, lines), size):
        problems.begin(first)
        first += len(rows)
        table = None if lines else rows_as_table(rows, columns, problems)
        if table is not None:
            yield table
    if found := shown_lines(lines) or problems.sentences():
        raise UnreadableError(*found)
    if first == 0:
        yield pa.table({})
