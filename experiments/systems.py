"""How many deletions a system takes: exactly, and simulated with the orders that it would be trained with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.laws import deletion_rate, first_failure
from experiments.runner import Row
from s3t.core import Order
from s3t.planning.simulation import Deletions, simulate


def rates(orders: Sequence[Sequence[Order]], deletions: Deletions, *, trials: int, seed: int) -> Row:
    """The deletion rate and the first failure of a system, in deletions.

    Args:
        orders: for each shard, its orders.
        deletions: where they fall.
        trials: simulated systems.
        seed: of the simulation.

    Returns:
        `rate` and `first` (exact means), `rate_std` and `first_std` (exact), and the same with `simulated_`;
        `simulated_rate_error` is the standard error of the simulated mean.
    """
    tops = [{order[0] for order in chosen} for chosen in orders]
    rate, first = deletion_rate(tops, deletions), first_failure(tops, deletions)
    found = simulate(orders, deletions, trials=trials, seed=seed)
    return {
        "rate": rate.mean,
        "rate_std": rate.std,
        "first": first.mean,
        "first_std": first.std,
        "simulated_rate": float(found.deletion_rate.mean()),
        "simulated_rate_std": float(found.deletion_rate.std(ddof=1)),
        "simulated_rate_error": float(found.deletion_rate.std(ddof=1) / np.sqrt(trials)),
        "simulated_first": float(found.first_failure.mean()),
    }
