"""Size of the blocks in which arrow reads a CSV file."""

from __future__ import annotations

import numpy as np

_LEAST_BLOCK, _LARGEST_BLOCK = 2**20, 2**26


class CsvBlocks:
    """Measures the rows of a CSV file: arrow reads it in blocks, and refuses a row that is longer than one.

    A quote that is no cell's makes a row look longer than it is; so a block has an upper bound.
    """

    def __init__(self) -> None:
        self._quoted = False
        self._row = self._longest = 0

    def add(self, content: bytes | memoryview) -> None:
        """Measure the next bytes of the file."""
        data = np.frombuffer(content, np.uint8)
        quotes = np.cumsum(data == ord('"')) + self._quoted
        ends = np.flatnonzero((data == ord("\n")) & (quotes % 2 == 0))
        if len(ends):
            inside = int(np.diff(ends).max(initial=0))
            self._longest = max(self._longest, self._row + int(ends[0]) + 1, inside)
            self._row = len(data) - int(ends[-1]) - 1
        else:
            self._row += len(data)
        self._quoted = bool(len(quotes) and quotes[-1] % 2)

    @property
    def nbytes(self) -> int:
        """Bytes of a block that holds every row so far, 1 to 64 MiB."""
        return min(max(self._longest, self._row, _LEAST_BLOCK), _LARGEST_BLOCK)
