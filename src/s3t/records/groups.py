"""The groups of a table's rows, where the recipe declares groups.

A record's group is its own cell's; nothing is counted. All rows of one owner (a subject; without one, an id) must have
one group. That check compares rows, but it decides no place: a table that fails it becomes no run.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from s3t.recipe import Group
from s3t.recipe.labels import comparison_key, name_of
from s3t.records.problems import Problems
from s3t.records.repeats import Names


def groups_of(cells: Iterable[Any], group: Group, problems: Problems) -> list[str | None]:
    """The group of each row, from the cells of the group's column; None where it is a problem."""
    names = [name_of(cell) for cell in cells]
    keys = {comparison_key(name) for name in group.slices}
    for row, name in enumerate(names):
        if name is None:
            problems.add_row(row, f"the group (column {group.column!r}) is empty; give every record one")
        elif name not in group.slices and comparison_key(name) in keys:
            problems.add_row(
                row,
                f"the group (column {group.column!r}) differs from a declared one in blanks or Unicode form alone; "
                "write both alike",
            )
        elif name not in group.slices:
            problems.add_row(
                row,
                f"the group (column {group.column!r}) is outside the declared groups; declare it in "
                "partition.group or correct the row",
            )
    return [name if name in group.slices else None for name in names]


def among_of(groups: Iterable[str | None], group: Group) -> list[tuple[int, ...]]:
    """Slices of each row's group; KeyError if there was a problem."""
    spread: dict[str | None, tuple[int, ...]] = {name: group.among(name) for name in group.slices}
    return [spread[name] for name in groups]


class OneGroupEach:
    """Check that all rows of an owner have one group, since they lie in one slice. Takes 20 bytes of memory a row."""

    def __init__(self, owner_is: str, group: Group) -> None:
        self._owner_is, self._owners = owner_is, Names()
        self._numbers: dict[str | None, int] = {name: number for number, name in enumerate(group.slices)}
        self._groups = array("I")

    def add(self, owners: Iterable[str | None], groups: Sequence[str | None]) -> None:
        """Take in the next rows; an owner of None owns nothing."""
        each = list(zip(owners, groups, strict=False))  # where the column of groups is missing, there are none
        self._owners.add(None if group is None else owner for owner, group in each)
        self._groups.extend(self._numbers.get(group, 0) for _, group in each)

    def check(self, problems: Problems) -> None:
        """Add the rows whose owner has another group in an earlier row."""
        rows, firsts = self._owners.repeated()
        groups = np.frombuffer(self._groups, dtype=np.uintc)
        differ = groups[rows] != groups[firsts]
        problems.begin(0)
        for row, first in zip(rows[differ].tolist(), firsts[differ].tolist(), strict=True):
            problems.add_row(
                row,
                f"{self._owner_is} has another group here than in {problems.named(first)}; such records "
                "lie in one slice, so give them one group",
            )
