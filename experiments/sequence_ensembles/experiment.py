"""All orders trained once; how good random choices of some of them are together, before any deletion."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from pydantic import Field

from experiments.runner import Row
from experiments.runs import expected_of
from experiments.served import SystemSettings, every_order


class Config(SystemSettings):
    """One system, of which more and more orders answer."""

    counts: tuple[int, ...]
    """Orders that answer together."""
    draws: int = Field(ge=1)
    """Random choices of so many orders."""


def points(config: Config) -> list[Row]:
    """One a number of orders."""
    return [{"orders": count} for count in config.counts]


def measure(config: Config, point: Row) -> Row:
    """Accuracy of all shards together, and of one shard alone, over random choices of the orders."""
    found = config.found()
    answers, expected = every_order(config, found), expected_of(found)
    generator = np.random.default_rng([config.seed, point["orders"]])
    orders = list(permutations(range(config.slices)))
    whole = np.stack([[answers.logits[shard, order] for order in orders] for shard in range(config.shards)])
    together, alone = [], []
    for _ in range(config.draws):
        chosen = generator.choice(len(orders), size=point["orders"], replace=False)
        shards = whole[:, chosen].mean(axis=1)
        together.append(float((shards.mean(axis=0).argmax(axis=1) == expected).mean()))
        alone.append(float((shards.argmax(axis=2) == expected).mean()))
    return {
        "accuracy": float(np.mean(together)),
        "accuracy_spread": float(np.std(together)),
        "one_shard": float(np.mean(alone)),
        "one_shard_spread": float(np.std(alone)),
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """What all orders gain over one, and how much of it a few do."""
    first, last = rows[0], rows[-1]
    return {
        what: {
            "one_order": first[what],
            "all_orders": last[what],
            "points_gained": 100 * (last[what] - first[what]),
            "points_gained_by": {str(row["orders"]): 100 * (row[what] - first[what]) for row in rows},
        }
        for what in ("accuracy", "one_shard")
    }
