"""The orders of every shard, by a recipe's declarations."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from s3t.core import Order
from s3t.errors import SettingError
from s3t.events import Progress, silent
from s3t.orders.rules import bms, conditional, cyclic, cyclic_adjacent, full, random_orders, sorted_cyclic
from s3t.orders.setting import Setting, completed
from s3t.orders.survival import ENUMERATED_SLICES, survival
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

MAX_FULL_SLICES = 8
"""8! = 40,320 orders."""
MAX_SURVIVAL_SLICES = 512
MAX_SAMPLED_DELETIONS = 256
"""Largest number in the horizon where `survival` samples sets of hit slices; 65,536 samples of it take 0.1 GB."""


def no_selector(name: str) -> str:
    """The message for an unknown selector's name."""
    names = ", ".join(SELECTORS)
    return f"no selector is called {name!r}; choose one of {names}{did_you_mean(name, SELECTORS)}"


def selector_problem(selector: str, setting: Setting) -> str | None:
    """The reason why a selector has no orders for the setting; None if none is known before the search."""
    slices, budget, furthest = setting.slices, setting.budget, max(setting.horizon)
    if selector == "survival" and slices > MAX_SURVIVAL_SLICES:
        return f"survival takes at most {MAX_SURVIVAL_SLICES} slices, not {slices}; take cyclic"
    if selector == "survival" and slices > ENUMERATED_SLICES and furthest > MAX_SAMPLED_DELETIONS:
        return (
            f"survival looks at most {MAX_SAMPLED_DELETIONS} deletions ahead for more than {ENUMERATED_SLICES} slices, "
            f"not {furthest}; shorten the horizon"
        )
    if selector == "bms" and budget > slices:
        return (
            f"bms gives at most {slices} orders of {slices} slices, not {budget}; lower the budget, or take survival, "
            "conditional or cyclic"
        )
    if selector == "full" and slices > MAX_FULL_SLICES:
        return f"full takes at most {MAX_FULL_SLICES} slices, not {slices}; take survival and a smaller budget"
    if selector == "full" and budget != (total := math.factorial(slices)):
        return f"full takes all {total} orders of {slices} slices, not {budget}; set the budget to {total}"
    return None


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
