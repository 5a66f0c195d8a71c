"""The protocol of selectors of slice sequences, and their input."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TypeAlias

from s3t.core import Order
from s3t.errors import SettingError

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
        problems = list(self._type_problems()) or list(self._problems())
        if problems:
            raise SettingError(*problems)

    def _type_problems(self) -> Iterator[str]:
        """Problems of values that are no numbers, or no whole ones; True is not 1 here."""
        for name in ("slices", "budget", "deletions", "seed", "horizon", "prior", "values"):
            value = getattr(self, name)
            is_row = isinstance(value, tuple)
            kind, what = (Real, "number") if name in ("prior", "values") else (Integral, "whole number")
            for place, each in enumerate(value if is_row else () if value is None else (value,)):
                if isinstance(each, bool) or not isinstance(each, kind):
                    yield f"{name}{f'[{place}]' if is_row else ''} is {each!r}, not a {what}"

    def _problems(self) -> Iterator[str]:
        yield from _size_problems(self.slices, self.budget)
        if self.slices >= 1:
            yield from () if self.prior is None else prior_problems(self.prior, self.slices)
            yield from () if self.values is None else _value_problems(self.values, self.slices)
            if any(sorted(order) != list(range(self.slices)) for order in self.given):
                yield f"a given order is not a permutation of 0..{self.slices - 1}"
        if len(set(self.given)) != len(self.given) or len(self.given) > max(self.budget, 0):
            yield f"the given orders are not distinct or exceed the budget {self.budget}"
        if self.deletions < 1:
            yield f"{self.deletions} deletions: the score counts at least 1"
        if not self.horizon or min(self.horizon) < 1:
            yield f"horizon {list(self.horizon)}: give numbers of deletions, each at least 1"
        if self.seed < 0:
            yield f"seed {self.seed} is negative"

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


def _size_problems(slices: int, budget: int) -> Iterator[str]:
    orders = math.factorial(slices) if 0 <= slices <= 20 else math.inf  # 21! exceeds every budget
    if not 1 <= slices <= MAX_SLICES:
        yield f"{slices} slices: a shard has 1 to {MAX_SLICES:,}"
    elif not 1 <= budget <= orders:
        count = "" if orders == math.inf else f" = {orders}"
        number = f"{slices}!{count}, the number of orders of {slices} slices"
        yield f"budget {budget} is not between 1 and {number}; choose one in between"
    elif budget > MAX_BUDGET:
        yield f"budget {budget}: at most {MAX_BUDGET:,} orders a shard; lower the budget"


def _value_problems(values: tuple[float, ...], slices: int) -> Iterator[str]:
    if len(values) != slices:
        yield f"the table of values has {len(values)} numbers for {slices} slices; give F(1) to F({slices})"
    elif not all(math.isfinite(value) and value >= 0 for value in values):
        yield "the table of values holds a number that is negative or not finite"
    elif values[-1] < _LEAST_VALUE:
        yield f"the table of values ends with {values[-1]}; a full depth is worth at least {_LEAST_VALUE}"
    elif falls := [k for k in range(1, slices) if values[k] < values[k - 1]]:
        yield f"the table of values falls at F({falls[0] + 1}); a deeper prefix is worth no less"
