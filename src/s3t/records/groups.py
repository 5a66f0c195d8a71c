"""The groups of a table's rows, where the recipe declares groups.

A record's group is its own cell's; nothing is counted. That the rows of one owner (a subject; without one, an id) have
one group is a check between rows, but it decides no place: it refuses the table, so that no run comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from s3t.recipe import Group
from s3t.records.problems import Problems
from s3t.records.values import name_of


class RowGroups:
    """The group of each row, from the cells of the group's column; one that is not declared is a problem."""

    def __init__(self, group: Group, cells: Iterable[Any], problems: Problems) -> None:
        self._group = group
        self._problems = problems
        self._names = [name_of(cell) for cell in cells]
        for row, name in enumerate(self._names):
            if name is None:
                problems.add_row(row, f"the group (column {group.column!r}) is empty; give every record one")
            elif name not in group.slices:
                problems.add_row(
                    row,
                    f"the group (column {group.column!r}) is outside the declared groups; declare it in "
                    "partition.group or correct the row",
                )

    def check_one_each(self, owner_is: str, owners: Iterable[str | None]) -> None:
        """Check that all rows of an owner have one group, since they lie in one slice; None owns nothing."""
        first: dict[str, int] = {}
        for row, (owner, name) in enumerate(zip(owners, self._names, strict=False)):
            if owner is None or name not in self._group.slices:
                continue
            known = first.setdefault(owner, row)
            if self._names[known] != name:
                self._problems.add_row(
                    row,
                    f"{owner_is} has another group here than in {self._problems.named(known)}; such records "
                    "lie in one slice, so give them one group",
                )

    def among(self) -> list[tuple[int, ...]]:
        """Slices of each row's group; KeyError if there was a problem."""
        spread: dict[str | None, tuple[int, ...]] = {name: self._group.among(name) for name in self._group.slices}
        return [spread[name] for name in self._names]
