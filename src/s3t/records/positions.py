"""Positions of records in the user's data, for messages: lines of a file, or rows of a table."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

LINE_SUFFIXES = (".csv", ".jsonl", ".ndjson", ".json")
SHOWN = 10
"""Rows that a message names one by one."""


class Positions:
    """Position of every record. A file's lines count from 1, a CSV file's header included; a table's rows from 0.

    Numbers may be given as a CSV or JSON lines file, which is read when one is needed.
    """

    def __init__(self, noun: Literal["line", "row"], numbers: Sequence[int] | Path) -> None:
        self._noun = noun
        self._given = numbers

    @classmethod
    def in_file(cls, path: Path) -> Positions:
        """Positions of the records of a file."""
        return cls("line", path) if path.suffix.lower() in LINE_SUFFIXES else cls.in_table()

    @classmethod
    def in_table(cls) -> Positions:
        """Positions of the rows of a Parquet file, a data frame or a list."""
        return cls("row", range(sys.maxsize))

    @cached_property
    def numbers(self) -> Sequence[int]:
        """Line or row number of every record. For a table there may be more numbers than rows."""
        if not isinstance(self._given, Path):
            return self._given
        with self._given.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            if self._given.suffix.lower() == ".csv":
                return [line for line, _ in csv_rows(file)][1:]
            return [line for line, content in enumerate(file, start=1) if content.strip()]

    def named(self, records: Sequence[int]) -> str:
        """Records in a message, the first few of many; they are counted from 0 in the order of the file.

        >>> lines = Positions("line", [2, 3, 7])
        >>> lines.named([2]), lines.named([0, 1])
        ('line 7', 'lines 2, 3')
        """
        listed = ", ".join(str(self.numbers[record]) for record in records[:SHOWN])
        more = f" and {len(records) - SHOWN} more" if len(records) > SHOWN else ""
        return f"{self._noun}{'' if len(records) == 1 else 's'} {listed}{more}"


def csv_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV file, the header first, each with the line that it begins in; a quoted cell may hold line ends.

    >>> list(csv_rows(['text,id\\n', '"a\\n', 'b",1\\n', '\\n', 'c,2\\n']))
    [(1, ['text', 'id']), (2, ['a\\nb', '1']), (5, ['c', '2'])]
    """
    csv.field_size_limit(sys.maxsize)  # a text may be longer than the module's limit of 131,072 characters
    reader = csv.reader(lines)
    before = 0
    for row in reader:
        if row:  # not a blank line
            yield before + 1, row
        before = reader.line_num
