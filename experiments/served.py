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
from s3t.core import Order, Place
from testing.roles import roles


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
    seconds: dict[int, list[float]]
    """By depth, of training every stage."""


def every_order(config: SystemSettings, found: Task, **options: Any) -> Answers:
    """Of s3t with all L! orders: those of every smaller budget are among them. Options as of `recipe_of`."""
    slices = range(config.slices)
    with kept(config.recipe(found, budget=math.factorial(config.slices), **options), found) as run:
        prefixes = [prefix for depth in slices for prefix in permutations(slices, depth + 1)]
        return _answers(run, answers_of(run, found, prefixes))


def own_orders(recipe: Mapping[str, Any], found: Task) -> Answers:
    """Of a system's own orders."""
    with kept(recipe, found) as run:
        return _answers(run, answers_of(run, found, _prefixes(run)))


def sisa(config: SystemSettings, found: Task) -> Answers:
    """Of SISA."""
    return own_orders(config.recipe(found, method="sisa"), found)


def every_order_of_sisa(config: SystemSettings, found: Task, **options: Any) -> Answers:
    """Of SISA with every order of its slices, one after the other, as it has one at a time. Options as of `recipe_of`.

    The order is that of rising chances of a deletion, which a prior declares; it decides nothing else.
    """
    recipe = config.recipe(found, method="sisa", **options)
    answers = []
    for order in permutations(range(config.slices)):
        chances = [2 * (order.index(index) + 1) / (config.slices * (config.slices + 1)) for index in range(len(order))]
        answers.append(own_orders(recipe | {"sequences": {"selector": "sorted-cyclic", "prior": chances}}, found))
    return Answers(
        logits={key: own for each in answers for key, own in each.logits.items()},
        orders=tuple(
            tuple(order for (order,) in shard) for shard in zip(*(each.orders for each in answers), strict=True)
        ),
        sizes=answers[0].sizes,
        seconds={
            depth: [second for each in answers for second in each.seconds.get(depth, [])]
            for depth in range(1, config.slices + 1)
        },
    )


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
    orders, *_ = run.inventory().orders
    return [order[: depth + 1] for order in orders for depth in range(len(order))]


def _answers(run: Run, logits: dict[tuple[int, Prefix], Logits]) -> Answers:
    partition, inventory = run.recipe.partition, run.inventory()
    sizes = [
        [inventory.records[Place(shard, index)] for index in range(partition.slices)]
        for shard in range(partition.shards)
    ]
    with roles(run).ledger.reading() as transaction:
        durations = transaction.history.durations()
    seconds: dict[int, list[float]] = {depth: [] for depth in range(1, partition.slices + 1)}
    for stage, duration in durations.items():
        if stage.kind == "model":
            seconds[len(stage.prefix)].append(duration)
    return Answers(logits, inventory.orders, np.array(sizes), seconds)
