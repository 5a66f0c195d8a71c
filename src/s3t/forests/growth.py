"""Which chains a run's shards have, and which stages are trained next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from s3t.forests.chains import Chains, leaves
from s3t.forests.costs import StageCosts
from s3t.forests.policy import AsNeeded, by_worth
from s3t.sequences import Order


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Repair as needed, of one run. From declared numbers and live stages alone, never from what records hold."""

    policy: AsNeeded
    costs: StageCosts
    """By depth, of L depths; declared ones. Measured times would make the choice follow the records' lengths."""
    chances: tuple[tuple[float, ...], ...]
    """For each of m shards, the chance of each slice to be the shard's next that is hit; a row adds up to 1."""

    def chains(self, shard: int, alive: Iterable[Order]) -> Chains:
        """A shard's chains after a repair, the main one first; behind them others that are alive."""
        there = leaves(alive)
        planned = self.policy.planned(there, slices=self.costs.slices, chances=self.chances[shard])
        others = (chain for chain in there if not any(chain == plan[: len(chain)] for plan in planned))
        return (*planned, *others)

    def may_begin(self, shard: int, alive: Iterable[Order], prefix: Order) -> bool:
        """True if a missing stage of a shard with these live prefixes may be trained now."""
        chances = self.chances[shard]
        return self.policy.may_begin(leaves(alive), prefix, slices=self.costs.slices, chances=chances)

    def missing(self, alive: Sequence[Iterable[Order]]) -> list[tuple[int, Order]]:
        """The shard and prefix of each stage that a repair trains, the most worth for its cost first."""
        return by_worth(self.policy, [leaves(prefixes) for prefixes in alive], self.costs, self.chances)
