"""The orders of a run, and its policy of repair: what run.json says of them now, and others.

Both are only ever added, behind those that are there, by replacing run.json whole. So a process that has the run open
sees another file when there are more. Until it looks it is exact all the same: the ledger's stages, never the orders,
decide what a deletion erases, an audit checks and a trainer commits. Orders and policies say what to train, and among
which prefixes to serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from s3t.aftermath import EXTENDED, after_refusal
from s3t.core import Order, Secret
from s3t.errors import InputError, IntegrityError, RecipeError, StorageError
from s3t.events import Progress, silent
from s3t.ledger.locks import RunLock, hold
from s3t.orders import orders_of_shards
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
        present = description.present(recipe)
        if added.budget is None:
            policy = _policy(present, added)
            if policy == present.deletion.repair:
                return description
            return description.model_copy(update={"repairs": (*description.repairs, policy)})
        budget, orders = _budget(present, added.budget), description.orders
        if budget == present.budget:
            return description
        if self._proposed is None or self._proposed[:2] != (orders, budget):
            self._proposed = orders, budget, extended(orders, recipe, budget=budget, progress=progress)
        return description.model_copy(update={"orders": self._proposed[2]})

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


def _budget(present: Recipe, asked: int) -> int:
    """A budget, checked as that of a new run's recipe is."""
    if present.method.one_order:
        raise InputError("the budget", f"method {present.method} has one order a shard, and no more can be added")
    if isinstance(present.deletion.repair, RepairAsNeeded):
        what = "the run grows its chains as needed, and has no fixed orders: give --spares or --spare-depth"
        raise InputError("the budget", what)
    if isinstance(asked, int) and not isinstance(asked, bool) and asked < present.budget:
        what = f"{asked} is below the present budget of {present.budget}, and orders are only added: give a bigger one"
        raise InputError("the budget", what)
    fields = present.model_dump(mode="json")
    fields["sequences"]["budget"] = asked
    return _checked(fields, "the budget").budget


def _policy(present: Recipe, added: Addition) -> RepairPolicy:
    """A policy that was asked for, or the present one with more spares, checked as that of a new run's recipe is."""
    fields, repair = present.model_dump(mode="json"), present.deletion.repair
    fields["sequences"] = {"prior": present.sequences.prior}  # of chains; present orders fit any other policy
    if added.policy is not None:
        fields["deletion"]["repair"] = added.policy
        return recipe_from(fields, where="the policy").deletion.repair
    if not isinstance(repair, RepairAsNeeded):
        raise InputError("the spares", "the run has fixed orders, and no spares: give --budget, which adds orders")
    asked = {"spares": added.spares, "spare_depth": added.spare_depth}
    asked = {name: number for name, number in asked.items() if number is not None}
    fields["deletion"]["repair"] |= {**asked, "level": None}  # these chains were asked for, not a level
    wanted = _checked(fields, "the spares").deletion.repair
    problems = [
        f"{name} {number} is below the present {getattr(repair, name)}, and chains are only added: give a bigger number"
        for name, number in asked.items()
        if number < getattr(repair, name)
    ]
    if problems:
        raise InputError("the spares", problems)
    return wanted


def _checked(fields: Mapping[str, Any], where: str) -> Recipe:
    try:
        return recipe_from(fields)
    except RecipeError as error:
        raise InputError(where, error.problems) from None


def extended(orders: Shards, recipe: Recipe, *, budget: int, progress: Progress) -> Shards:
    """Every shard's orders, and behind them others up to `budget`, by the recipe's selector."""
    declared = zip(recipe.settings(), orders, strict=True)
    settings = [replace(setting, budget=budget, given=given) for setting, given in declared]
    sequences = recipe.sequences
    return orders_of_shards(sequences.selector, settings, vary=sequences.vary_by_shard, progress=progress)
