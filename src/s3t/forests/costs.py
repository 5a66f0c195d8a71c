"""Training costs of stages, by depth: computed from declared numbers, or measured.

A stage's time follows from how long its records are. So measured costs are for what is shown. Which stages are trained,
and in which order, follows from `StageCosts.declared` alone, or what a repair leaves would tell of deleted records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from s3t.errors import PlanningError
from s3t.sequences import Order


@dataclass(frozen=True)
class StageCosts:
    """Cost of a stage of each depth, in one unit: seconds, or passes of a record through a layer."""

    by_depth: tuple[float, ...]
    """L numbers; that of depth k at index k - 1."""

    def __post_init__(self) -> None:
        if not self.by_depth or not all(math.isfinite(cost) and cost > 0 for cost in self.by_depth):
            raise PlanningError(
                "the costs of stages", f"{list(self.by_depth)}: give finite numbers above 0, one a depth"
            )

    @property
    def slices(self) -> int:
        """L."""
        return len(self.by_depth)

    @classmethod
    def declared(cls, slices: int, *, one_block: bool = False) -> StageCosts:
        """Costs of a run's stages from its number of slices and blocks alone, in no particular unit.

        Counted are passes through layers, a pass backward as one forward. A stage of depth k passes k slices forward
        and backward through the k topmost L-ths of the layers: below them the trunk is cached, and filling the cache is
        not counted. With `one_block` every stage trains all layers, as SISA's do.

        >>> StageCosts.declared(3).by_depth, StageCosts.declared(3, one_block=True).by_depth
        ((2, 8, 18), (6, 12, 18))
        """
        return cls(tuple(2 * depth * (slices if one_block else depth) for depth in range(1, slices + 1)))

    def measured(self, seconds: Mapping[int, Sequence[float]]) -> StageCosts | None:
        """Costs in seconds; None if none is measured. Never for a choice of stages (see the module).

        >>> StageCosts((1.0, 4.0, 9.0)).measured({1: [2.0, 2.2, 9.0], 2: [8.0]}).by_depth
        (2.2, 8.0, 18.36)

        `seconds` are measured times by depth. A depth costs their median; one without times costs its present cost
        times the ratio of the medians' sum to their depths' present costs.
        """
        known = {depth: median(times) for depth, times in seconds.items() if times}
        if not known:
            return None
        ratio = math.fsum(known.values()) / math.fsum(self.by_depth[depth - 1] for depth in known)
        return StageCosts(tuple(known.get(depth, ratio * cost) for depth, cost in enumerate(self.by_depth, start=1)))

    def in_trainings(self, shards: int) -> StageCosts:
        """The same in full trainings, each of which passes the records of all shards through all blocks once, as the
        deepest stages of all shards do.

        >>> StageCosts((1.0, 4.0)).in_trainings(5).by_depth
        (0.05, 0.2)
        """
        return StageCosts(tuple(cost / (shards * self.by_depth[-1]) for cost in self.by_depth))

    def of(self, prefixes: Iterable[Order]) -> float:
        """Cost of training the stages of some prefixes.

        >>> StageCosts((1.0, 3.0)).of([(0,), (0, 1), (1,)])
        5.0
        """
        return math.fsum(self.by_depth[len(prefix) - 1] for prefix in prefixes)
