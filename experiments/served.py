"""Systems that several experiments look at: trained once, kept, and every answer of them known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from experiments.replay import Serving, of_prefixes
from experiments.runs import Logits, Prefix, answers_of, kept, recipe_of
from experiments.settings import TrainingSettings
from experiments.tasks import Task, task
from s3t import Run
from s3t.partition import Place
from s3t.sequences import Order


class SystemSettings(TrainingSettings):
    """What systems are trained on, and how they are cut."""

    task: str
    """By name."""
    records: int | None
    """To train on; None: all."""
    tried: int | None
    """To be tried on; None: all."""
    shards: int = Field(ge=1)
    """m."""
    slices: int = Field(ge=1)
    """L."""

    def found(self) -> Task:
        """The task."""
        return task(self.task, records=self.records, tried=self.tried, made_up=self.made_up)

    def recipe(self, found: Task, **options: Any) -> dict[str, Any]:
        """The recipe of a system; options as of `recipe_of`."""
        shape = {"shards": self.shards, "slices": self.slices} | options
        return recipe_of(found, self.training | {"seed": self.seed}, **shape)


class Answers(NamedTuple):
    """Of a system."""

    logits: dict[tuple[int, Prefix], Logits]
    """By shard and prefix, or by shard and the slices of its prototypes."""
    orders: tuple[tuple[Order, ...], ...]
    """Of every shard."""
    sizes: NDArray[np.int64]
    """Records of every slice, shards x slices."""


def every_order(config: SystemSettings, found: Task) -> Answers:
    """Of s3t with all L! orders: those of every smaller budget are among them."""
    slices = range(config.slices)
    with kept(config.recipe(found, budget=math.factorial(config.slices)), found) as run:
        prefixes = [prefix for depth in slices for prefix in permutations(slices, depth + 1)]
        return _answers(run, answers_of(run, found, prefixes))


def own_orders(recipe: Mapping[str, Any], found: Task) -> Answers:
    """Of a system's own orders."""
    with kept(recipe, found) as run:
        return _answers(run, answers_of(run, found, _prefixes(run)))


def sisa(config: SystemSettings, found: Task) -> Answers:
    """Of SISA."""
    return own_orders(config.recipe(found, method="sisa"), found)


def protosisa(config: SystemSettings, found: Task) -> tuple[Answers, Answers]:
    """Of ProtoSISA's models, and of its prototypes."""
    with kept(config.recipe(found, method="protosisa"), found) as run:
        sizes = range(1, config.slices + 1)
        subsets = [subset for size in sizes for subset in combinations(range(config.slices), size)]
        models = answers_of(run, found, _prefixes(run))
        return _answers(run, models), _answers(run, answers_of(run, found, subsets, kind="prototypes"))


def beside_prototypes(models: Answers, prototypes: Answers, *, weight: float) -> Serving:
    """A shard's model and the prototypes of its untouched slices; without a model the shard is dead, as in the paper.

    Args:
        models: of ProtoSISA.
        prototypes: of ProtoSISA.
        weight: of the model's logits; the prototypes' is 1 less that.
    """
    serving, slices = of_prefixes(models.logits, models.orders), range(models.sizes.shape[1])

    def mixed(shard: int, dead: frozenset[int]) -> Logits | None:
        model = serving(shard, dead)
        if model is None:
            return None
        alive = tuple(index for index in slices if index not in dead)
        found: Logits = weight * model + (1 - weight) * prototypes.logits[shard, alive]
        return found

    return mixed


def _prefixes(run: Run) -> list[Prefix]:
    """Of the orders, which all shards have in common."""
    orders, *_ = run.status().inventory.orders
    return [order[: depth + 1] for order in orders for depth in range(len(order))]


def _answers(run: Run, logits: dict[tuple[int, Prefix], Logits]) -> Answers:
    partition, inventory = run.recipe.partition, run.status().inventory
    sizes = [
        [inventory.records[Place(shard, index)] for index in range(partition.slices)]
        for shard in range(partition.shards)
    ]
    return Answers(logits, inventory.orders, np.array(sizes))
