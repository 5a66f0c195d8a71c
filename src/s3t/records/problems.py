"""Collecting what is wrong with a table: one sentence a kind of problem, with its rows. None holds a value of a row."""

from __future__ import annotations

from s3t.records.positions import Positions


class Problems:
    """Problems by kind, each with the records that have it, named by their positions."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._rows: dict[str, list[int]] = {}
        self._whole: list[str] = []

    def add(self, problem: str) -> None:
        """A problem of the whole table."""
        self._whole.append(problem)

    def add_row(self, row: int, problem: str) -> None:
        """A problem of one record, by its number from 0; records with the same sentence are gathered."""
        self._rows.setdefault(problem, []).append(row)

    def named(self, row: int) -> str:
        """Name of a record, for messages about another one."""
        return self._positions.named([row])

    def sentences(self) -> list[str]:
        """Sentences of all problems, those of the whole table first."""
        return self._whole + [f"{self._positions.named(rows)}: {problem}" for problem, rows in self._rows.items()]
