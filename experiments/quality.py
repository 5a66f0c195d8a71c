"""How good the orders of a shard are: by the paper's measures, and by what is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from experiments.retained import retained
from experiments.runner import Row
from experiments.settings import Settings
from s3t.core import Order
from s3t.orders import Setting, mean_distance, random_orders, scores, select

Prior = tuple[float, ...]


def dirichlet(slices: int, *, number: int, seed: int) -> list[Prior]:
    """Priors from the flat Dirichlet distribution. The first few are the same however many are drawn.

    >>> [round(sum(prior), 9) for prior in dirichlet(4, number=2, seed=0)]
    [1.0, 1.0]
    """
    drawn = np.random.default_rng([seed, slices]).dirichlet(np.ones(slices), size=number)
    return [tuple(row) for row in (drawn / drawn.sum(axis=1, keepdims=True)).tolist()]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """How orders are judged: by the paper's measures, and by what is served."""

    deletions: int
    """t of the paper's score."""
    horizon: tuple[int, ...]
    """Numbers of deletions in the shard over which the depth is averaged."""
    terms: int
    """Of an exact sum, at most; above, the depth is simulated, on the same histories for all orders."""
    trials: int
    """Simulated histories."""
    seed: int
    """Of the simulation, and of selectors."""

    def judged(self, orders: Sequence[Order], prior: Prior | None) -> Row:
        """Distance, score and depth of a shard's orders.

        Args:
            orders: B orders of L slices.
            prior: L probabilities; None: uniform.

        Returns:
            `distance`: the mean over pairs of orders of the positions at which they differ, 0..L (0 for one order);
            `score`: the sum of the orders' scores; `depth`: the expected slices of the best surviving prefix, 0..L;
            `exact`: whether the depth is.
        """
        slices = len(orders[0])
        probabilities = (1 / slices,) * slices if prior is None else prior
        kept = retained(orders, self.horizon, prior=prior, terms=self.terms, trials=self.trials, seed=self.seed)
        return {
            "distance": mean_distance(orders),
            "score": float(scores(orders, probabilities, self.deletions).sum()),
            "depth": float(kept.expected_depth.mean()),
            "exact": kept.exact,
        }

    def of(self, selector: str, *, slices: int, budget: int, prior: Prior | None = None) -> Row:
        """The same of the orders that a selector gives; its name goes before each measure's."""
        setting = Setting(
            slices=slices,
            budget=budget,
            prior=prior,
            deletions=self.deletions,
            horizon=self.horizon,
            seed=self.seed,
        )
        found = self.judged(select(selector, setting), prior)
        return {f"{selector.replace('-', '_')}_{name}": value for name, value in found.items()}

    def of_random(self, *, slices: int, budget: int, seeds: Sequence[int], prior: Prior | None = None) -> Row:
        """Mean and standard deviation of each measure over several draws of random orders."""
        found = [self.judged(random_orders(Setting(slices=slices, budget=budget, seed=seed)), prior) for seed in seeds]
        (line,) = averaged(found, [], ["distance", "score", "depth"])
        return {f"random_{name}": value for name, value in line.items()}


class JudgeSettings(Settings):
    """Settings of an experiment that judges orders."""

    deletions: int = Field(ge=1)
    """t of the paper's score."""
    horizon: tuple[int, ...]
    """Numbers of deletions in the shard over which the expected depth is averaged."""
    terms: int = Field(ge=1)
    """Of an exact sum for the depth, at most; above, it is simulated."""
    trials: int = Field(ge=1)
    """Simulated histories, where the depth is simulated."""

    @property
    def judge(self) -> Judge:
        """As told."""
        return Judge(
            deletions=self.deletions, horizon=self.horizon, terms=self.terms, trials=self.trials, seed=self.seed
        )


def averaged(rows: Sequence[Row], by: Sequence[str], names: Sequence[str]) -> list[Row]:
    """Mean and standard deviation of the named numbers over the rows that are alike in `by`.

    >>> averaged([{"b": 1, "x": 1.0}, {"b": 1, "x": 3.0}], ["b"], ["x"])
    [{'b': 1, 'x': 2.0, 'x_std': 1.4142135623730951}]
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    found = []
    for key, group in groups.items():
        line: Row = dict(zip(by, key, strict=True))
        for name in names:
            values = np.array([row[name] for row in group], dtype=np.float64)
            line[name] = float(values.mean())
            line[f"{name}_std"] = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        found.append(line)
    return found
