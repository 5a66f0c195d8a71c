"""The values of a column, a window at a time: as Python's objects they take ten times the memory that arrow's take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_ROWS = 2**14
"""Rows of which the values are Python's objects at a time."""


class Cells:
    """The values of a column, to go through any number of times."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self._column), WINDOW_ROWS):
            yield from self._column.slice(start, WINDOW_ROWS).to_pylist()

    def __contains__(self, value: object) -> bool:
        return any(cell == value for cell in self)
