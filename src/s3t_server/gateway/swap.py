"""Changes to an engine, from the ledger's state and the engine's. Pure.

New adapters are loaded first, then answers are routed to them, then old ones leave: no request finds none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Swap:
    """Adapters of one run, by their names in the engine."""

    wanted: Mapping[int, str]
    """Adapter of the serving chain, by shard that can answer."""
    routed: Mapping[int, str]
    """Adapters that answer now, by shard."""
    listed: Collection[str]
    """Adapters that the engine lists."""
    doubtful: Collection[str]
    """Adapters that the engine may have, listed or not: of this gateway, and of those that were killed."""
    tainted: Collection[str]
    """Adapters with a deleted record."""
    in_use: Collection[str]
    """Adapters that the engine is computing an answer with."""

    @property
    def loads(self) -> list[str]:
        """Adapters to load."""
        return sorted({*self.wanted.values()}.difference(self.listed))

    @property
    def routes(self) -> dict[int, str]:
        """Adapters that may answer once they are loaded, by shard. A shard whose own is not loaded keeps its old one.

        >>> empty = dict(doubtful=(), tainted=["c"], in_use=())
        >>> Swap(wanted={0: "b", 1: "d"}, routed={0: "a", 1: "c"}, listed=["a", "c"], **empty).routes
        {0: 'a'}
        """
        loaded = {shard: name for shard, name in self.wanted.items() if name in self.listed}
        return {shard: name for shard, name in ({**self.routed} | loaded).items() if name not in self.tainted}

    @property
    def leaving(self) -> list[str]:
        """Adapters to unload, and then to probe. One with a deleted record leaves at once, even if it is in use."""
        kept = {*self.wanted.values(), *self.routes.values(), *self.in_use}.difference(self.tainted)
        return sorted({*self.listed, *self.doubtful} - kept)
