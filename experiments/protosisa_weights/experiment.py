"""One ProtoSISA, its answers weighed differently, over many random deletion orders."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from experiments.replay import Judge, curves
from experiments.runner import Row
from experiments.runs import expected_of
from experiments.served import SystemSettings, beside_prototypes, protosisa


class Config(SystemSettings):
    """One system, under several weights."""

    weights: tuple[float, ...]
    """Of SISA's logits; the prototypes' is 1 less that."""
    rounds: int = Field(ge=1)
    """Random deletion orders."""
    until: int = Field(ge=1)
    """Deletions of the last point."""
    step: int = Field(ge=1)
    """Deletions between two points."""

    @property
    def grid(self) -> list[int]:
        """Numbers of deletions."""
        return list(range(0, self.until + 1, self.step))


def points(config: Config) -> list[Row]:
    """One a weight."""
    return [{"weight": weight} for weight in config.weights]


def measure(config: Config, point: Row) -> Row:
    """The curve of a weight."""
    found = config.found()
    models, prototypes = protosisa(config, found)
    judge = Judge(beside_prototypes(models, prototypes, weight=point["weight"]), expected_of(found))
    return curves(judge, config.grid, models.sizes, rounds=config.rounds, seed=config.seed)


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """The best weight without a deletion, and once half of the systems are dead; accuracies of each."""
    half = max(place for place, alive in enumerate(rows[0]["alive"]) if alive >= 0.5)
    at = {"no_deletion": 0, "late": half}
    return {
        "late_deletions": config.grid[half],
        "best_weight": {
            when: max(rows, key=lambda row: row["accuracy"][place])["weight"] for when, place in at.items()
        },
        "accuracy": {
            f"{row['weight']:g}": {when: row["accuracy"][place] for when, place in at.items()} for row in rows
        },
    }
