"""Positions of records in the user's data, for messages: lines of a file, or rows of a table."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

SHOWN = 10
"""Rows that a message names one by one."""


class Positions:
    """Position of every record. A file's lines count from 1, a CSV file's header included; a table's rows from 0.

    Memory is taken by records that do not begin in the line after their predecessor's.
    """

    def __init__(self, noun: Literal["line", "row"]) -> None:
        self._noun = noun
        self._records, self._numbers = array("q", [0]), array("q", [0])

    def add(self, record: int, number: int) -> None:
        """Note the line of the next record; records are counted from 0 in the order of the file."""
        if number - self._numbers[-1] != record - self._records[-1]:
            self._records.append(record)
            self._numbers.append(number)

    def number(self, record: int) -> int:
        """Line or row number of a record."""
        at = bisect_right(self._records, record) - 1
        return self._numbers[at] + record - self._records[at]

    def numbers(self, first: int, count: int) -> list[int]:
        """Line or row numbers of some records, one after another."""
        return [self.number(record) for record in range(first, first + count)]

    def named(self, records: Sequence[int]) -> str:
        """Records in a message, the first few of many.

        >>> lines = Positions("line")
        >>> for record, line in enumerate([2, 3, 7]):
        ...     lines.add(record, line)
        >>> lines.named([2]), lines.named([0, 1])
        ('line 7', 'lines 2, 3')
        """
        listed = ", ".join(str(self.number(record)) for record in records[:SHOWN])
        more = f" and {len(records) - SHOWN} more" if len(records) > SHOWN else ""
        return f"{self._noun}{'' if len(records) == 1 else 's'} {listed}{more}"
