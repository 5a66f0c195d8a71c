"""The orders of a run, and its policy of repair: what run.json says of them now, and others.

Both are only ever added, behind those that are there, by replacing run.json whole. So a process that has the run open
sees another file when there are more. Until it looks it is exact all the same: the ledger's stages, never the orders,
decide what a deletion erases, an audit checks and a trainer commits. Orders and policies say what to train, and among
which prefixes to serve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from s3t.aftermath import EXTENDED, after_refusal
from s3t.core import Order, Secret
from s3t.core.growth import MOST_SPARES
from s3t.errors import InputError, IntegrityError, StorageError
from s3t.events import Progress, silent
from s3t.ledger.locks import RunLock, hold
from s3t.orders import orders_of_shards
from s3t.orders.setting import MOST_NUMBERS
from s3t.recipe import Recipe, RepairAsNeeded, RepairPolicy, recipe_from
from s3t.store.disk import storage_errors
from s3t.store.folder import Description, Layout, read_description, write_description

Shards: TypeAlias = tuple[tuple[Order, ...], ...]
"""The orders of each shard."""


@dataclass(frozen=True, kw_only=True)
class Addition:
    """What `extend` adds to every shard: orders, spares, or another policy of repair; one of the three."""

    budget: int | None = None
    """Orders of a shard."""
    spares: int | None = None
    """Chains beside the main one; None: as many as now."""
    spare_depth: int | None = None
    """Slices of each; None: as many as now."""
    policy: Any | None = None
    """The value of a recipe's `deletion.repair`, not checked yet."""

    def __post_init__(self) -> None:
        asked = {
            "a budget": self.budget is not None,
            "spares or their depth": (self.spares, self.spare_depth) != (None, None),
            "a policy": self.policy is not None,
        }
        if sum(asked.values()) != 1:
            given = " and ".join(name for name, wanted in asked.items() if wanted) or "nothing"
            raise InputError("the extension", f"{given} asked for: give one of {', '.join(asked)}")


class Orders:
    def __init__(self, layout: Layout, opened: Description, secret: Secret) -> None:
        self._layout = layout
        self._opened = opened
        self._secret = secret
        self._known: tuple[object, Description] = (None, opened)
        self._proposed: tuple[Shards, int, Shards] | None = None  # orders, a budget, and those orders extended to it

    def described(self) -> Description:
        """The run.json that is on the disk; it is read only if it is another file than before."""
        file = self._file()  # before it is read: if it is replaced meanwhile, it is read once more
        if file is None or file != self._known[0]:
            self._known = file, self._read()
        return self._known[1]

    def proposed(self, recipe: Recipe, added: Addition, *, progress: Progress = silent) -> Description:
        """The run.json that `extend` would write. Changes nothing. `progress` hears of a search for orders."""
        return self._with(self._read(), recipe, added, progress)

    def extend(self, recipe: Recipe, added: Addition, *, lock: RunLock, progress: Progress = silent) -> None:
        """Write orders or a policy into run.json, durably; nothing if they are there already.

        A crash leaves the old file or the new one. Which orders are added follows from declared numbers and the orders
        that are there: never from what was deleted, from the number of records, or from a clock. Orders stay in the
        file under any policy. The lock is held while the file is replaced, not while orders are chosen, which may take
        a minute: deletions do not wait for it.
        """
        while True:
            description = self._read()
            wanted = self._with(description, recipe, added, progress)
            if wanted == description:  # an extension that was cut short is asked for again
                return
            with hold(lock):
                if self._read() != description:  # another process has added some meanwhile
                    continue
                try:
                    with storage_errors("extending the run"):
                        write_description(self._layout, wanted, self._secret)
                except StorageError:
                    if self.described() == description:
                        raise
                    with after_refusal(EXTENDED):  # it was the folder of the new file that could not be synchronised
                        raise
                return

    def _with(self, description: Description, recipe: Recipe, added: Addition, progress: Progress) -> Description:
        """A run.json with what is added behind what is there; the same where that is there already."""
        if (budget := added.budget) is not None:
            self._check(budget, description, recipe)
            orders = description.orders
            if budget == len(orders[0]):
                return description
            if self._proposed is None or self._proposed[:2] != (orders, budget):
                self._proposed = orders, budget, extended(orders, recipe, budget=budget, progress=progress)
            return description.model_copy(update={"orders": self._proposed[2]})
        present = description.present(recipe).deletion.repair
        wanted = _with_spares(present, recipe, added) if added.policy is None else _policy(recipe, added.policy)
        if wanted == present:
            return description
        return description.model_copy(update={"repairs": (*description.repairs, wanted)})

    def _check(self, budget: int, description: Description, recipe: Recipe) -> None:
        if recipe.method.one_order:
            raise InputError("the budget", f"method {recipe.method} has one order a shard, and no more can be added")
        if isinstance(description.present(recipe).deletion.repair, RepairAsNeeded):
            what = "the run grows its chains as needed, and has no fixed orders: give --spares or --spare-depth"
            raise InputError("the budget", what)
        slices, present = len(description.orders[0][0]), len(description.orders[0])
        if not isinstance(budget, int) or isinstance(budget, bool):
            raise InputError("the budget", f"{budget!r} is not a whole number")
        if budget < present:
            raise InputError(
                "the budget",
                f"{budget} is below the present budget of {present}, and orders are only added: give a bigger one",
            )
        if budget > _all_orders(slices):
            number = f"{slices}! = {_all_orders(slices)}, the number of orders of {slices} slices"
            raise InputError("the budget", f"{budget} exceeds {number}; lower the budget")
        numbers = len(description.orders) * slices * budget
        if budget > present and numbers > MOST_NUMBERS:
            raise InputError(
                "the budget", f"so many orders are more than {MOST_NUMBERS:,} numbers in all; lower the budget"
            )

    def _read(self) -> Description:
        """Read run.json, and check that it is still this run's."""
        description = read_description(self._layout)
        opened = self._opened
        behind = len(description.orders) == len(opened.orders) and all(
            new[: len(old)] == old
            for old, new in zip(
                (*opened.orders, opened.repairs), (*description.orders, description.repairs), strict=True
            )
        )
        grown = {"orders": opened.orders, "repairs": opened.repairs, "check": opened.check}
        if not behind or description.model_copy(update=grown) != opened:
            raise IntegrityError(
                f"{self._layout.description} has changed since the run was opened, and not by orders that were added "
                "or a policy of repair; open the run again, or restore the file from a backup"
            )
        return description

    def _file(self) -> tuple[int, int, int] | None:
        """Identity of a run.json: each is a file of its own, and longer than the one before."""
        try:
            stat = self._layout.description.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _policy(recipe: Recipe, asked: Any) -> RepairPolicy:
    """A policy that was asked for, checked as that of a new run's recipe is."""
    fields = recipe.model_dump(mode="json")
    fields["deletion"]["repair"] = asked
    fields["sequences"] = {"prior": recipe.sequences.prior}  # of chains; present orders fit any other policy
    return recipe_from(fields, where="the policy").deletion.repair


def _with_spares(present: RepairPolicy, recipe: Recipe, added: Addition) -> RepairAsNeeded:
    if not isinstance(present, RepairAsNeeded):
        raise InputError("the spares", "the run has fixed orders, and no spares: give --budget, which adds orders")
    most = min(recipe.partition.slices - 1, MOST_SPARES), present.depth
    problems = [
        *_out_of_range("spares", added.spares, present.spares, most[0], "each begins with a slice of its own"),
        *_out_of_range("spare depth", added.spare_depth, present.spare_depth, most[1], "the main chain has no more"),
    ]
    if problems:
        raise InputError("the spares", problems)
    changed = {"spares": added.spares, "spare_depth": added.spare_depth}
    changed = {name: number for name, number in changed.items() if number is not None}
    return present.model_copy(update={**changed, "level": None})  # these chains were asked for, not a level


def _out_of_range(what: str, number: int | None, least: int, most: int, limit: str) -> list[str]:
    if number is None:
        return []
    if not isinstance(number, int) or isinstance(number, bool):
        return [f"{what} {number!r} is not a whole number"]
    if number < least:
        return [f"{what} {number} is below the present {least}, and chains are only added: give a bigger number"]
    return [f"{what} {number}: give at most {most}, for {limit}"] if number > most else []


def _all_orders(slices: int) -> float:
    """L!; infinite beyond any number that could be trained."""
    return math.factorial(slices) if slices <= 20 else math.inf


def extended(orders: Shards, recipe: Recipe, *, budget: int, progress: Progress) -> Shards:
    """Every shard's orders, and behind them others up to `budget`, by the recipe's selector."""
    declared = zip(recipe.settings(), orders, strict=True)
    settings = [replace(setting, budget=budget, given=given) for setting, given in declared]
    sequences = recipe.sequences
    return orders_of_shards(sequences.selector, settings, vary=sequences.vary_by_shard, progress=progress)
