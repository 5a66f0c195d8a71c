"""The orders of every shard, by a recipe's declarations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from s3t.core import Order
from s3t.errors import SettingError
from s3t.events import Progress, silent
from s3t.orders.rules import (
    bms,
    bms_problem,
    conditional,
    cyclic,
    cyclic_adjacent,
    full,
    full_problem,
    random_orders,
    sorted_cyclic,
)
from s3t.orders.setting import Setting, completed
from s3t.orders.survival import survival, survival_problem
from s3t.wording import did_you_mean

SELECTORS: dict[str, Callable[[Setting], tuple[Order, ...]]] = {
    "survival": survival,
    "cyclic": cyclic,
    "cyclic-adjacent": cyclic_adjacent,
    "bms": bms,
    "conditional": conditional,
    "sorted-cyclic": sorted_cyclic,
    "random": random_orders,
    "full": full,
}
"""Selectors by the name they have in a recipe, the default first: they choose exactly B distinct orders of a shard, of
settings that `selector_problem` finds nothing wrong with."""

DEFAULT_SELECTOR = "survival"

KNOW_NO_PRIOR = ("cyclic", "cyclic-adjacent", "random", "full")
"""Selectors that choose the same orders whatever the prior."""

_LIMITS = {"survival": survival_problem, "bms": bms_problem, "full": full_problem}


def no_selector(name: str) -> str:
    """The message for an unknown selector's name."""
    names = ", ".join(SELECTORS)
    return f"no selector is called {name!r}; choose one of {names}{did_you_mean(name, SELECTORS)}"


def selector_problem(selector: str, setting: Setting) -> str | None:
    """The reason why a selector has no orders for the setting; None if none is known before the search."""
    limit = _LIMITS.get(selector)
    return None if limit is None else limit(setting)


def select(selector: str, setting: Setting, *, progress: Progress = silent) -> tuple[Order, ...]:
    """B orders by the selector of that name. Given orders come first; what is added has the tops least in use."""
    if selector not in SELECTORS:
        raise SettingError(no_selector(selector))
    if (problem := selector_problem(selector, setting)) is not None:
        raise SettingError(problem)
    choose = SELECTORS[selector]
    orders = survival(setting, progress=progress) if choose is survival else choose(setting)
    return completed(setting.given, orders, setting.budget) if setting.given else orders


def prior_rows(
    prior: Sequence[float] | Sequence[Sequence[float]] | None, *, shards: int
) -> tuple[tuple[float, ...] | None, ...]:
    """Prior of each shard: None for a uniform one, the L given numbers, or its row of the m given rows.

    What the rows hold, `Setting` checks.

    >>> prior_rows([0.5, 0.5], shards=2)
    ((0.5, 0.5), (0.5, 0.5))
    """
    if prior is None:
        return (None,) * shards
    rows = [tuple(row) for row in prior if isinstance(row, Sequence)]
    if not rows:
        return (tuple(value for value in prior if not isinstance(value, Sequence)),) * shards
    if len(rows) != len(prior) or len(rows) != shards:
        raise SettingError(
            f"the prior has {len(prior)} rows for {shards} shard{'' if shards == 1 else 's'}; give one row of "
            "probabilities, or one a shard"
        )
    return tuple(rows)


def orders_of_shards(
    selector: str, settings: Sequence[Setting], *, vary: bool, progress: Progress = silent
) -> tuple[tuple[Order, ...], ...]:
    """The orders of every shard; shards with equal settings share the work.

    With `vary` shards get different orders of the same quality: slices that are equally likely to be deleted change
    places, by a permutation that the seed and the shard decide (shard 0 keeps them). Where no two are equally likely,
    the selector gets another seed.
    """
    plain_orders: dict[Setting, tuple[Order, ...]] = {}
    orders = []
    for shard, setting in enumerate(settings):
        renamed = _renaming(setting, shard) if vary else tuple(range(setting.slices))
        back = tuple(renamed.index(index) for index in range(setting.slices))
        plain = replace(setting, given=_renamed(setting.given, back))
        if vary and len(set(setting.probabilities)) == setting.slices:
            plain = replace(plain, seed=setting.seed + _SEEDS_APART * shard)
        if plain not in plain_orders:
            plain_orders[plain] = select(selector, plain, progress=progress)
        orders.append(_renamed(plain_orders[plain], renamed))
    return tuple(orders)


_SEEDS_APART = 1_000_003


def _renaming(setting: Setting, shard: int) -> Order:
    """New names of the slices: a permutation among those of equal probability."""
    names = list(range(setting.slices))
    if shard == 0:
        return tuple(names)
    generator = random.Random(setting.seed + _SEEDS_APART * shard)  # noqa: S311 - nothing secret
    for probability in sorted(set(setting.probabilities)):
        alike = [index for index in range(setting.slices) if setting.probabilities[index] == probability]
        for index, name in zip(alike, generator.sample(alike, len(alike)), strict=True):
            names[index] = name
    return tuple(names)


def _renamed(orders: Sequence[Order], names: Order) -> tuple[Order, ...]:
    return tuple(tuple(names[index] for index in order) for order in orders)
