"""Collecting what is wrong with a table: one sentence a kind of problem, with its rows. None holds a value of a row.

A table may come in windows; then rows are counted from the first of the present window.
"""

from __future__ import annotations

from s3t.records.positions import Positions


class UnreadableError(Exception):
    """Problems of a file, one an argument: without its content, which a library's error may quote."""


class Problems:
    """Problems by kind, each with the records that have it, named by their positions."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._first = 0
        self._rows: dict[str, list[int]] = {}
        self._whole: list[str] = []

    def begin(self, first: int) -> None:
        """The window that begins with the table's row `first` is looked at from here on."""
        self._first = first

    def add(self, problem: str) -> None:
        """A problem of the whole table; one that other windows have, too, is told once."""
        if problem not in self._whole:
            self._whole.append(problem)

    def add_row(self, row: int, problem: str) -> None:
        """A problem of one record, by its number in the window; records with the same sentence are gathered."""
        self._rows.setdefault(problem, []).append(self._first + row)

    def named(self, row: int) -> str:
        """Name of a record, for messages about another one."""
        return self._positions.named([self._first + row])

    def __bool__(self) -> bool:
        return bool(self._whole or self._rows)

    def sentences(self) -> list[str]:
        """Sentences of all problems, those of the whole table first."""
        return self._whole + [f"{self._positions.named(rows)}: {problem}" for problem, rows in self._rows.items()]
