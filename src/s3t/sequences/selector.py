"""The protocol of selectors of slice sequences, and their input."""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from s3t.errors import SettingError

Order = tuple[int, ...]
"""A permutation of 0..L-1: the slices of a shard in the order they are trained, top block first. A shorter one
is a prefix."""

MAX_SLICES = 10_000
MAX_BUDGET = 50_000
"""Largest budget: all 8! = 40,320 orders, and some more."""
DEFAULT_DELETIONS = 8
DEFAULT_HORIZON = (1, 2, 4, 8)
SUM_TOLERANCE = 1e-6
"""Tolerance of the sum of a prior around 1; a prior is divided by its sum."""
_LEAST_VALUE = 1e-100


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Inputs of the choice of a shard's orders. Declared, never counted: no field says how many records a slice holds
    or which have left.

    Raises:
        SettingError: with everything that is wrong.
    """

    slices: int
    """L, at least 1."""
    budget: int
    """B, from 1 to L!."""
    prior: tuple[float, ...] | None = None
    """L probabilities, that the next deletion falls on each slice; None: all are alike."""
    deletions: int = DEFAULT_DELETIONS
    """t of the paper's score (see `score`), at least 1."""
    horizon: tuple[int, ...] = DEFAULT_HORIZON
    """Numbers of deletions in the shard over which the expected depth is averaged, each at least 1."""
    values: tuple[float, ...] | None = None
    """F(1)..F(L), what a live prefix of k slices is worth: not negative, non-decreasing; None: F(k) = k. F(0) is 0."""
    seed: int = 0
    """Seed of selectors that draw at random."""
    given: tuple[Order, ...] = ()
    """Orders that are there already, and stay: the choice begins with them."""

    def __post_init__(self) -> None:
        problems = self._type_problems()
        if problems:
            raise SettingError(*problems)
        problems = _size_problems(self.slices, self.budget)
        if self.slices >= 1:
            problems += [] if self.prior is None else prior_problems(self.prior, self.slices)
            problems += _value_problems(self.values, self.slices)
            if any(sorted(order) != list(range(self.slices)) for order in self.given):
                problems.append(f"a given order is not a permutation of 0..{self.slices - 1}")
        if len(set(self.given)) != len(self.given) or len(self.given) > max(self.budget, 0):
            problems.append(f"the given orders are not distinct or exceed the budget {self.budget}")
        if self.deletions < 1:
            problems.append(f"{self.deletions} deletions: the score counts at least 1")
        if not self.horizon or min(self.horizon) < 1:
            problems.append(f"horizon {list(self.horizon)}: give numbers of deletions, each at least 1")
        if self.seed < 0:
            problems.append(f"seed {self.seed} is negative")
        if problems:
            raise SettingError(*problems)

    def _type_problems(self) -> list[str]:
        """Problems of values that are no numbers, or no whole ones; True is not 1 here."""
        whole = {name: getattr(self, name) for name in ("slices", "budget", "deletions", "seed")}
        whole |= {f"horizon[{place}]": value for place, value in enumerate(self.horizon)}
        real = {f"prior[{place}]": value for place, value in enumerate(self.prior or ())}
        real |= {f"values[{place}]": value for place, value in enumerate(self.values or ())}
        problems = [f"{name} is {value!r}, not a whole number" for name, value in whole.items() if not _is_whole(value)]
        return problems + [
            f"{name} is {value!r}, not a number"
            for name, value in real.items()
            if isinstance(value, bool) or not isinstance(value, numbers.Real)
        ]

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The prior, adding up to 1; uniform if none is given."""
        if self.prior is None:
            return (1 / self.slices,) * self.slices
        total = math.fsum(self.prior)
        return tuple(value / total for value in self.prior)

    @property
    def worth(self) -> tuple[float, ...]:
        """F(0)..F(L)."""
        return (0.0, *(range(1, self.slices + 1) if self.values is None else self.values))


Selector: TypeAlias = Callable[[Setting], tuple[Order, ...]]
"""Chooses exactly `budget` distinct orders of a shard. Raises SettingError if it has no such orders."""


def completed(orders: Sequence[Order], candidates: Sequence[Order], budget: int) -> tuple[Order, ...]:
    """The orders, and of the candidates those that are new until there are B, the tops least in use first.

    Candidates are at least B distinct ones, so that enough of them are new.
    """
    completed_orders = dict.fromkeys(orders)
    waiting: dict[int, list[Order]] = {}
    for candidate in reversed(candidates):
        if candidate not in completed_orders:
            waiting.setdefault(candidate[0], []).append(candidate)
    uses = Counter(order[0] for order in orders)
    while len(completed_orders) < budget:
        top = min(waiting, key=lambda index: (uses[index], -len(waiting[index]), index))
        completed_orders[waiting[top].pop()] = None
        uses[top] += 1
        if not waiting[top]:
            del waiting[top]
    return tuple(completed_orders)


def prior_problems(prior: tuple[float, ...], slices: int) -> list[str]:
    """Problems of one row of a prior: its length, its numbers, or their sum."""
    if len(prior) != slices:
        return [f"the prior has {len(prior)} probabilities for {slices} slices; give one a slice"]
    wrong = [value for value in prior if not (math.isfinite(value) and value >= 0)]
    if wrong:
        return [f"the prior holds {', '.join(map(str, wrong))}; probabilities are finite and not negative"]
    total = math.fsum(prior)
    if abs(total - 1) > SUM_TOLERANCE:
        return [f"the prior sums to {total:.6g}, not to 1; divide every probability by {total:.6g}"]
    return []


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _size_problems(slices: int, budget: int) -> list[str]:
    if not 1 <= slices <= MAX_SLICES:
        return [f"{slices} slices: a shard has 1 to {MAX_SLICES:,}"]
    orders = math.factorial(slices) if slices <= 20 else None  # 21! exceeds every budget
    if budget < 1 or (orders is not None and budget > orders):
        count = "" if orders is None else f" = {orders}"
        return [
            f"budget {budget} is not between 1 and {slices}!{count}, the number of orders of {slices} slices; choose "
            "one in between"
        ]
    if budget > MAX_BUDGET:
        return [f"budget {budget}: at most {MAX_BUDGET:,} orders a shard; lower the budget"]
    return []


def _value_problems(values: tuple[float, ...] | None, slices: int) -> list[str]:
    if values is None:
        return []
    if len(values) != slices:
        return [f"the table of values has {len(values)} numbers for {slices} slices; give F(1) to F({slices})"]
    if not all(math.isfinite(value) and value >= 0 for value in values):
        return ["the table of values holds a number that is negative or not finite"]
    if values[-1] < _LEAST_VALUE:
        return [f"the table of values ends with {values[-1]}; a full depth is worth at least {_LEAST_VALUE}"]
    falls = [k for k in range(1, slices) if values[k] < values[k - 1]]
    return [f"the table of values falls at F({falls[0] + 1}); a deeper prefix is worth no less"] if falls else []
