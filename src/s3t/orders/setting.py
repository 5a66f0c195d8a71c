"""The input of a choice of orders, and what every selector uses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from s3t.core import Order
from s3t.errors import SettingError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Row = tuple[Annotated[float, Field(strict=True)], ...]
Deletions = Annotated[int, Field(ge=1, le=10_000, strict=True)]
"""A number of deletions in a shard."""

MAX_SLICES = 10_000
MAX_BUDGET = 50_000
"""Largest budget: all 8! = 40,320 orders, and some more."""
MOST_NUMBERS = 20_000_000
"""Largest count of numbers in all orders together."""
DEFAULT_DELETIONS = 8
DEFAULT_HORIZON = (1, 2, 4, 8)
SUM_TOLERANCE = 1e-6
"""Tolerance of the sum of a prior around 1; a prior is divided by its sum."""
_LEAST_VALUE = 1e-100


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Inputs of the choice of a shard's orders. Declared, never counted: no field says how many records a slice holds
    or which have left. A `SettingError` says everything that is wrong.
    """

    slices: int = Field(ge=1, le=MAX_SLICES, strict=True)
    """L."""
    budget: int = Field(strict=True)
    """B, from 1 to L!."""
    prior: Row | None = None
    """L probabilities, that the next deletion falls on each slice; None: all are alike."""
    deletions: Deletions = DEFAULT_DELETIONS
    """t of the paper's score (see `scores`)."""
    horizon: tuple[Deletions, ...] = DEFAULT_HORIZON
    """Numbers of deletions in the shard over which the expected depth is averaged."""
    values: Row | None = None
    """F(1)..F(L), what a live prefix of k slices is worth: not negative, non-decreasing; None: F(k) = k. F(0) is 0."""
    seed: int = Field(default=0, ge=0, lt=2**63, strict=True)
    """Seed of selectors that draw at random."""
    given: tuple[Order, ...] = ()
    """Orders that are there already, and stay: the choice begins with them."""

    @model_validator(mode="wrap")
    @classmethod
    def _told(cls, content: Any, read: ModelWrapValidatorHandler[Setting]) -> Setting:
        try:
            return read(content)
        except ValidationError as error:
            details = error.errors(include_url=False)
        problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}, not {each['input']!r}" for each in details]
        wrong = {each["loc"][0] for each in details}
        right = {name: value for name, value in content.kwargs.items() if name not in wrong}
        if right.keys() >= {"slices", "budget"}:
            try:
                cls(**right)
            except SettingError as error:
                problems += error.problems
        raise SettingError(*problems)

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            raise SettingError(*problems)

    def _problems(self) -> Iterator[str]:
        slices, budget = self.slices, self.budget
        orders = math.factorial(slices) if slices <= 20 else math.inf  # 21! exceeds every budget
        if not 1 <= budget <= orders:
            count = "" if orders == math.inf else f" = {orders}"
            number = f"{slices}!{count}, the number of orders of {slices} slices"
            yield f"budget {budget} is not between 1 and {number}; choose one in between"
        elif budget > MAX_BUDGET:
            yield f"budget {budget}: at most {MAX_BUDGET:,} orders a shard; lower the budget"
        elif budget * slices > MOST_NUMBERS:
            yield f"{budget:,} orders of {slices:,} slices: at most {MOST_NUMBERS:,} numbers; lower the budget"
        yield from () if self.prior is None else prior_problems(self.prior, slices)
        yield from () if self.values is None else _value_problems(self.values, slices)
        if not self.horizon:
            yield "the horizon is empty; give numbers of deletions"
        if any(sorted(order) != list(range(slices)) for order in self.given):
            yield f"a given order is not a permutation of 0..{slices - 1}"
        if len(set(self.given)) != len(self.given) or len(self.given) > max(budget, 0):
            yield f"the given orders are not distinct or exceed the budget {budget}"

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


def _value_problems(values: tuple[float, ...], slices: int) -> Iterator[str]:
    if len(values) != slices:
        yield f"the table of values has {len(values)} numbers for {slices} slices; give F(1) to F({slices})"
    elif not all(math.isfinite(value) and value >= 0 for value in values):
        yield "the table of values holds a number that is negative or not finite"
    elif values[-1] < _LEAST_VALUE:
        yield f"the table of values ends with {values[-1]}; a full depth is worth at least {_LEAST_VALUE}"
    elif falls := [k for k in range(1, slices) if values[k] < values[k - 1]]:
        yield f"the table of values falls at F({falls[0] + 1}); a deeper prefix is worth no less"


def scores(orders: Sequence[Order], probabilities: Sequence[float], deletions: int) -> Floats:
    """Each order's score: the sum over i of i * (1 - p_1 - ... - p_i)^t (paper, Section 3.3 and Appendix B.2).

    p_i is the probability of the i-th slice of the order.

    >>> scores([(2, 1, 0)], (0.5, 0.4, 0.1), 1).round(6).tolist()
    [1.9]
    """
    lost = np.cumsum(np.asarray(probabilities)[np.asarray(orders)], axis=1)
    depth = np.arange(1, lost.shape[1] + 1)
    return np.asarray((depth * power(np.maximum(1 - lost, 0), deletions)).sum(axis=1))


def power(base: Floats, exponent: int) -> Floats:
    """Integer power by repeated squaring: products alone, so the same bits on every machine (libm's pow differs)."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base = base * base
        exponent >>= 1
    return result


def mean_distance(orders: Sequence[Order]) -> float:
    """Mean Hamming distance over all pairs of orders: positions at which they differ, 0..L; 0 for a single order.

    >>> mean_distance([(0, 1, 2), (1, 2, 0), (0, 2, 1)])
    2.3333333333333335
    """
    if len(orders) < 2:
        return 0.0
    counts = [np.bincount(column) for column in np.asarray(orders).T]
    agreeing = sum(int((count * (count - 1) // 2).sum()) for count in counts)
    return len(orders[0]) - agreeing / math.comb(len(orders), 2)
