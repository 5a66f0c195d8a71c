"""Deletions until a system is dead, simulated, and the cost of repairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from s3t.planning.bound import paper_bound
from s3t.planning.deletions import Deletions
from s3t.planning.first_hits import NEVER, Times, chunk
from s3t.planning.repairs import Policy, RepairedSimulation, simulate_repairs
from s3t.planning.simulation import Orders, Simulation, simulate

QUANTILES = (0.05, 0.5, 0.95)
_POWERS = 31


@dataclass(frozen=True, kw_only=True)
class Lasting:
    """A number of deletions until something happens. None: in some system it never does."""

    mean: float | None
    """The mean of the simulated systems."""
    std: float | None
    """Their standard deviation."""
    quantiles: Mapping[float, int | None]
    """Quantile of the simulated systems: the smallest number that a share of them does not exceed."""

    def to_json(self) -> dict[str, Any]:
        """Without the quantiles."""
        return {"mean": self.mean, "std": self.std}


@dataclass(frozen=True, kw_only=True, eq=False)
class Endurance:
    """Endurance of a simulated system. But for `repaired`, it is never repaired."""

    deletion_rate: Lasting
    """Until every shard is dead."""
    first_failure: Lasting
    """Until the first shard is dead."""
    bound: float | None
    """The paper's Lemma 1, for uniform deletions."""
    depth: Mapping[int, float]
    """Mean depth of the shards after 1, 2, 4, ... deletions in the system, as long as most systems live."""
    simulation: Simulation
    """The simulated systems."""
    repaired: RepairedSimulation | None
    """Numbers with repairs, if a policy was given."""

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t simulate --json`."""
        both = {"deletion_rate": self.deletion_rate, "first_failure": self.first_failure}
        document: dict[str, Any] = {name: lasting.to_json() for name, lasting in both.items()}
        document["bound"] = self.bound
        document["quantiles"] = {
            name: {str(share): value for share, value in lasting.quantiles.items()} for name, lasting in both.items()
        }
        document["depth"] = {str(number): depth for number, depth in self.depth.items()}
        if self.repaired is not None:
            for name in ("repairs", "cost", "mean_depth"):
                values = getattr(self.repaired, name)
                document[name] = {"mean": float(values.mean()), "std": float(values.std())}
            document["training_cost"] = self.repaired.training_cost
        return document


def endurance(
    orders: Orders,
    deletions: Deletions,
    *,
    trials: int = 10_000,
    seed: int = 0,
    policy: Policy | None = None,
    over: int = 1_000,
) -> Endurance:
    """Simulate how long a system lasts; deletions with replacement.

    >>> from s3t.sequences import Setting, cyclic
    >>> lasting = endurance([cyclic(Setting(slices=6, budget=3))] * 5, Deletions.uniform(5, 6), trials=2_000)
    >>> round(lasting.bound, 1), abs(lasting.deletion_rate.mean - 99.5) < 5
    (99.5, True)

    Args:
        orders: for each shard, its orders of L slices.
        policy: conditions of repairs in a second simulation; None: no second simulation.
    """
    system = simulate(orders, deletions, trials=trials, seed=seed)
    repaired = None
    if policy is not None:
        repaired = simulate_repairs(orders, deletions, over=over, policy=policy, trials=trials, seed=seed)
    uniform = bool((deletions.probabilities == deletions.probabilities[0, 0]).all())
    most = max(_quantile(system.settled, 0.95) or 0, 1)
    numbers = [2**power for power in range(min(most.bit_length(), _POWERS))]
    return Endurance(
        deletion_rate=_lasting(system.deletion_rate),
        first_failure=_lasting(system.first_failure),
        bound=paper_bound(len(orders), deletions.slices, max(map(len, orders))) if uniform else None,
        depth=dict(zip(numbers, system.retained(numbers)[:, 1:].sum(axis=1).tolist(), strict=True)),
        simulation=system,
        repaired=repaired,
    )


def bytes_needed(*, shards: int, slices: int, budget: int, trials: int, repaired: bool) -> int:
    """About how much memory `endurance` takes."""
    cells = shards * slices
    needed = 8 * trials * cells + 64 * min(trials, chunk(cells)) * cells
    if repaired:
        stages = budget * slices
        needed += trials * (cells + 16 * shards * budget + 5 * stages) + 4 * shards * stages * slices
    return needed


def _lasting(times: Times) -> Lasting:
    never = bool((times == NEVER).any())
    return Lasting(
        mean=None if never else float(times.mean()),
        std=None if never else float(times.std()),
        quantiles={share: _quantile(times, share) for share in QUANTILES},
    )


def _quantile(times: Times, share: float) -> int | None:
    value = int(np.quantile(times, share, method="inverted_cdf"))
    return None if value == NEVER else value
