"""Where deletion requests fall: how likely the next one is to hit each slice of each shard."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s3t.errors import PlanningError
from s3t.sequences.selector import SUM_TOLERANCE

TOLERANCE = SUM_TOLERANCE
"""How far a sum of probabilities may be from 1. It is normalised afterwards."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Deletions:
    """Where deletion requests fall in a system of m shards of L slices.

    Without `records`, a cell can be hit any number of times (sampling with replacement: far more records than
    deletions). With them, each record is deleted at most once, and the next one is drawn from those left in proportion
    to its weight, probability of its cell over records of its cell (successive sampling). Probabilities in proportion
    to the records then mean that every record left is equally likely.

    Attributes:
        probabilities: of the first deletion to fall into a cell, m x L, read-only; all cells together sum to 1.
        records: in each cell, m x L, read-only; None for sampling with replacement.

    Raises:
        PlanningError: numbers that are not finite, are negative or do not sum to 1; another shape; a cell that has a
            positive probability and no records.
    """

    probabilities: NDArray[np.float64]
    records: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        probabilities, problems = _numbers(self.probabilities)
        if not problems and (probabilities.ndim != 2 or probabilities.size == 0):
            problems = [f"expected m rows of L numbers, m and L at least 1, not the shape {probabilities.shape}"]
        if not problems and abs(math.fsum(probabilities.flat) - 1) > TOLERANCE:
            problems = [f"all cells together sum to {math.fsum(probabilities.flat):.12g}, not to 1"]
        records = None
        if self.records is not None:
            records, wrong = _counts(self.records)
            problems += wrong
        if records is not None and not problems:
            problems = _misfits(probabilities, records)
        if problems:
            raise PlanningError("the deletions", problems)
        object.__setattr__(self, "probabilities", _frozen(probabilities / math.fsum(probabilities.flat)))
        object.__setattr__(self, "records", None if records is None else _frozen(records))

    @property
    def shards(self) -> int:
        """M."""
        return int(self.probabilities.shape[0])

    @property
    def slices(self) -> int:
        """L."""
        return int(self.probabilities.shape[1])

    @property
    def is_uniform_over_records(self) -> bool:
        """Whether every record is equally likely to be the next (none is more so than another)."""
        if self.records is None:
            return False
        return bool(np.allclose(self.probabilities * self.records.sum(), self.records, rtol=1e-12, atol=0))

    @classmethod
    def uniform(cls, shards: int, slices: int) -> Deletions:
        """Every slice equally likely, with replacement (the paper's assumption).

        >>> Deletions.uniform(2, 4).probabilities.tolist()
        [[0.125, 0.125, 0.125, 0.125], [0.125, 0.125, 0.125, 0.125]]

        Raises:
            PlanningError: `shards` or `slices` is less than 1.
        """
        problems = [f"{what} is {value}, not at least 1" for what, value in _sizes(shards, slices) if value < 1]
        if problems:
            raise PlanningError("the deletions", problems)
        return cls(probabilities=np.full((shards, slices), 1 / (shards * slices)))

    @classmethod
    def from_prior(cls, prior: ArrayLike, *, shards: int) -> Deletions:
        """Declared probabilities of the slices, with replacement; shards are equally likely.

        >>> Deletions.from_prior([0.75, 0.25], shards=2).probabilities.tolist()
        [[0.375, 0.125], [0.375, 0.125]]

        Args:
            prior: L numbers that hold in every shard, or m rows of L; each row sums to 1.
            shards: m.

        Raises:
            PlanningError: `shards` is less than 1, or the prior is of another length, or no probabilities.
        """
        if shards < 1:
            raise PlanningError("the deletions", [f"the number of shards is {shards}, not at least 1"])
        return cls(probabilities=_spread(prior, shards=shards, slices=None))

    @classmethod
    def from_records(cls, records: ArrayLike, *, replacement: bool, prior: ArrayLike | None = None) -> Deletions:
        """Every record equally likely; or, with a prior, every record of a slice.

        >>> Deletions.from_records([[3, 1]], replacement=False).probabilities.tolist()
        [[0.75, 0.25]]

        Args:
            records: in each slice, m rows of L whole numbers.
            replacement: whether a record may be drawn again; if not, the slices run dry.
            prior: L numbers that hold in every shard, or m rows of L; each row sums to 1; shards are equally likely.

        Raises:
            PlanningError: counts or prior are wrong, or a slice can be hit and has no records (and `replacement` is
                false).
        """
        counts, problems = _counts(records)
        if not problems and (counts.ndim != 2 or counts.size == 0):
            problems = [f"expected m rows of L counts, m and L at least 1, not the shape {counts.shape}"]
        if not problems and prior is None and not counts.any():
            problems = ["there are no records at all"]
        if problems:
            raise PlanningError("the records", problems)
        if prior is None:
            probabilities = counts / counts.sum()
        else:
            probabilities = _spread(prior, shards=counts.shape[0], slices=counts.shape[1])
        return cls(probabilities=probabilities, records=None if replacement else counts)


def _sizes(shards: int, slices: int) -> list[tuple[str, int]]:
    return [("the number of shards", shards), ("the number of slices", slices)]


def _numbers(values: ArrayLike) -> tuple[NDArray[np.float64], list[str]]:
    """The values as floats, and what is wrong with them: ragged, not numbers, not finite, negative."""
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return np.empty(0), ["expected numbers, in rows of equal length"]
    problems = []
    if not np.isfinite(numbers).all():
        problems.append(f"{_places(~np.isfinite(numbers))} not finite")
    if (numbers < 0).any():
        problems.append(f"{_places(numbers < 0)} negative")
    return numbers, problems


def _counts(values: ArrayLike) -> tuple[NDArray[np.int64], list[str]]:
    """The values as whole numbers, and what is wrong with them."""
    numbers, problems = _numbers(values)
    if not problems and (numbers > 2**53).any():
        problems.append(f"{_places(numbers > 2**53)} above 2^53")
    if not problems and (numbers != np.floor(numbers)).any():
        problems.append(f"{_places(numbers != np.floor(numbers))} not a whole number of records")
    return (np.empty(0, dtype=np.int64) if problems else numbers.astype(np.int64)), problems


def _places(where: NDArray[np.bool_]) -> str:
    """Which numbers are wrong: `number 3 is`, `number (0, 2) is`, `numbers (0, 2), (1, 0) and 7 more are`."""
    found = np.argwhere(where).tolist()
    names = [str(index[0]) if len(index) == 1 else str(tuple(index)) for index in found[:3]]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"number {names[0]} is" if len(found) == 1 else f"numbers {', '.join(names)}{more} are"


def _spread(prior: ArrayLike, *, shards: int, slices: int | None) -> NDArray[np.float64]:
    """The prior's rows, one a shard, each divided by its sum and by m.

    Raises:
        PlanningError: the prior is of another shape, or a row is no distribution.
    """
    rows, problems = _numbers(prior)
    length = "L" if slices is None else str(slices)
    if rows.ndim == 2 and rows.shape[0] != shards:
        problems.append(f"it has {rows.shape[0]} rows; expected {shards}, one a shard, or {length} numbers for all")
    if rows.ndim not in (1, 2) or rows.shape[-1] == 0:
        problems.append(f"expected {length} numbers, or {shards} rows of {length} (L at least 1)")
    elif slices is not None and rows.shape[-1] != slices:
        problems.append(f"it has {rows.shape[-1]} numbers a row; expected {slices}, one a slice")
    if not problems:
        sums = [math.fsum(row) for row in np.atleast_2d(rows)]
        names = [""] if rows.ndim == 1 else [f"row {index} " for index in range(len(sums))]
        problems = [
            f"{name or 'it '}sums to {total:.12g}, not to 1"
            for name, total in zip(names, sums, strict=True)
            if abs(total - 1) > TOLERANCE
        ]
    if problems:
        raise PlanningError("the prior", problems)
    spread = np.atleast_2d(rows) / np.array(sums)[:, np.newaxis] / shards
    return np.array(np.broadcast_to(spread, (shards, spread.shape[1])))


def _misfits(probabilities: NDArray[np.float64], records: NDArray[np.int64]) -> list[str]:
    """What is wrong with records and probabilities together."""
    if records.shape != probabilities.shape:
        return [f"records have the shape {records.shape}, probabilities {probabilities.shape}"]
    empty = np.argwhere((probabilities > 0) & (records == 0)).tolist()
    return [
        f"slice {index} of shard {shard} has probability {probabilities[shard, index]:.3g} and no records; "
        "give it probability 0, or sample with replacement"
        for shard, index in empty
    ]


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
