"""Collecting what is wrong with a table: one sentence a kind of problem, with its rows."""

from __future__ import annotations

ROWS_SHOWN = 10


class Problems:
    """Problems by kind, each with the rows (counted from 0) that have it."""

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = {}
        self._whole: list[str] = []

    def add(self, problem: str) -> None:
        """A problem of the whole table."""
        self._whole.append(problem)

    def add_row(self, row: int, problem: str) -> None:
        """A problem of one row; rows with the same sentence are gathered."""
        self._rows.setdefault(problem, []).append(row)

    def sentences(self) -> list[str]:
        """All problems, those of the whole table first."""
        return self._whole + [f"{_rows_text(rows)}: {problem}" for problem, rows in self._rows.items()]


def _rows_text(rows: list[int]) -> str:
    shown = ", ".join(str(row) for row in rows[:ROWS_SHOWN])
    more = f" and {len(rows) - ROWS_SHOWN} more" if len(rows) > ROWS_SHOWN else ""
    return f"{'row' if len(rows) == 1 else 'rows'} {shown}{more}"
