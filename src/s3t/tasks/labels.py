"""Labels as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def indices_of(names: Iterable[str], labels: Sequence[str]) -> list[int]:
    """The place of each name in the label set.

    >>> indices_of(["good", "bad"], ["bad", "fair", "good"])
    [2, 0]
    """
    index = {label: number for number, label in enumerate(labels)}
    return [index[name] for name in names]
