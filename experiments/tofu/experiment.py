"""Authors deleted one after another, by exact and by approximate unlearning, and what is left of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from experiments.runner import Row
from experiments.runs import kept, recipe_of, untrained
from experiments.settings import TrainingSettings
from experiments.tasks import Task
from experiments.tofu.approximate import METHODS, Unlearning, unlearn
from experiments.tofu.judging import Judge
from experiments.tofu.measures import forget_quality, model_utility
from experiments.tofu.records import SETS, Records, records
from experiments.tofu.systems import adapters, compared, copied, loaded, policy_of, trained_to, with_adapter
from s3t import Run
from s3t.recipe import repair_due

BEFORE, REFERENCE, OURS = "before", "reference", "s3t"


class System(BaseModel):
    """A system of s3t."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shards: int = Field(ge=1)
    """m."""
    policy: str
    """Of repair, as in a recipe."""


class Config(TrainingSettings):
    """Systems, policies, measures."""

    authors: int | None
    """Of all, those to be forgotten among them; None: all."""
    systems: tuple[System, ...]
    """Of s3t. Those of one m are trained once."""
    slices: int = Field(ge=1)
    """L."""
    layers_per_slice: int = Field(ge=1)
    """Of a block, from the top; the layers below all blocks stay as pre-trained, in full training, too."""
    budget: int = Field(ge=1)
    """B of s3t."""
    compared_depth: int = Field(ge=1)
    """Slices of the deepest stages that are compared, byte for byte, with a run that never saw the authors."""
    rank: int = Field(ge=1)
    """Of LoRA; alpha is twice as much."""
    unlearning: Unlearning
    """Of approximate unlearning."""
    forget_rows: int = Field(ge=1)
    """Records of a set of authors on which systems are measured, at most."""
    retain_rows: int = Field(ge=1)
    """Retained records on which systems are measured, at most."""
    tokens: int = Field(ge=1)
    """Written for an answer, at most."""
    weights: tuple[float, ...]
    """Of the attacker's guidance; 0 is the model after, 1 the one before."""
    plausible: float = Field(ge=0, le=1)
    """Least probability of a token that the attacker takes, as a share of the likeliest one's before."""
    attacked_shards: int = Field(ge=1)
    """m of the systems that are attacked."""
    attacked_rows: int = Field(ge=1)
    """Deleted records that are attacked, at most."""


def points(config: Config) -> list[Row]:
    """Full training with and without the authors; s3t under every policy; approximate unlearning of every set."""
    ours = [{"system": OURS, **system.model_dump()} for system in config.systems]
    approximate = [{"system": method, "forget": name} for method in METHODS for name in SETS]
    return [{"system": REFERENCE}, {"system": BEFORE}, *ours, *approximate]


def measure(config: Config, point: Row) -> Row:
    """Measures of a system, by set of authors, after those are gone from it; and seconds, which are not exact."""
    found = records(authors=config.authors, made_up=config.made_up)
    judge = Judge(
        found,
        forget_rows=config.forget_rows,
        retain_rows=config.retain_rows,
        most=config.tokens,
        seed=config.seed,
    )
    if point["system"] == OURS:
        return _exact(config, point, found, judge)
    if point["system"] in METHODS:
        return _approximate(config, point, found, judge)
    if point["system"] == BEFORE:
        with kept(_recipe(config, found.task), found.task) as trained, copied(trained) as run:
            return {"after": judge.judged(loaded(run), SETS)}
    without = found.without_forgotten()
    with untrained(_recipe(config, without), without) as run:
        seconds = run.train().seconds
        return {"after": judge.judged(loaded(run), SETS), "seconds": {"training": seconds}}


def _recipe(config: Config, task: Task, *, shards: int | None = None, budget: int = 1) -> dict[str, Any]:
    """Of s3t; without `shards`, of full training."""
    whole = shards is None
    return recipe_of(
        task,
        config.training | {"seed": config.seed},
        slices=1 if whole else config.slices,
        shards=shards or 1,
        layers_per_slice=config.layers_per_slice * (config.slices if whole else 1),
        budget=budget,
        method="full" if whole else None,
        rank=config.rank,
    )


def _exact(config: Config, point: Row, found: Records, judge: Judge) -> Row:
    """Delete every author from a copy of the trained run, with repairs by the policy."""
    recipe = _recipe(config, found.task, shards=point["shards"], budget=config.budget)
    with kept(recipe, found.task) as trained, copied(trained) as run:
        before = loaded(run)  # the copy that an attacker has kept
        row = {"before": judge.judged(before, SETS[-1:])} | _deleted(config, point, found, judge, run, before)
        with trained_to(config.compared_depth, recipe, found.without_forgotten()) as other:
            return row | {"stages": compared(run, other)}


def _deleted(
    config: Config, point: Row, found: Records, judge: Judge, run: Run, before: Sequence[Any]
) -> dict[str, Any]:
    """After each author depths, stages lost and trained, and seconds; after each set the measures and the attack."""
    policy = policy_of(point["policy"])
    ends = {len(found.forgotten[name]): name for name in SETS}
    row: dict[str, list[Any]] = {name: [] for name in ("depths", "repaired_depths", "stages_lost", "stages_trained")}
    seconds: dict[str, list[float]] = {"deletion": [], "repair": []}
    after: dict[str, Any] = {}
    attack: dict[str, Any] = {}
    for number, author in enumerate(found.gone, start=1):
        started = time.perf_counter()
        report = run.delete(subjects=[author], wait=False)  # the policy under test repairs, not the recipe's
        seconds["deletion"].append(time.perf_counter() - started)
        row["depths"].append(list(report.depths_after))
        row["stages_lost"].append(report.stages_lost)
        repair = run.repair() if repair_due(policy, run.inventory(), trained=True) else None
        seconds["repair"].append(0.0 if repair is None else repair.seconds)
        row["stages_trained"].append(0 if repair is None else len(repair.stages))
        row["repaired_depths"].append(list(run.status().depths))
        if number in ends:
            name, models = ends[number], loaded(run)
            after |= judge.judged(models, [name])
            if point["shards"] == config.attacked_shards:
                attack[name] = _attacked(config, judge, models, before, name)
    return {**row, "after": after, "attack": attack, "seconds": seconds}


def _attacked(config: Config, judge: Judge, after: Sequence[Any], before: Sequence[Any], name: str) -> Row | None:
    if not after:
        return None
    return judge.attacked(
        after, before, name, weights=config.weights, plausible=config.plausible, rows=config.attacked_rows
    )


def _approximate(config: Config, point: Row, found: Records, judge: Judge) -> Row:
    """Unlearn one set from the model of full training."""
    name, base = point["forget"], Path(found.task.recipe["base_model"])
    with kept(_recipe(config, found.task), found.task) as trained, copied(trained) as run, adapters(run) as (adapter,):
        model = with_adapter(base, adapter)
    table = found.task.train
    retained = table[~table["author"].isin(found.forgotten[name])]
    forget, retain = judge.tokens(found.rows(name)), judge.tokens(retained)
    started = time.perf_counter()
    steps = unlearn(
        model,
        forget,
        retain,
        METHODS[point["system"]],
        config.unlearning,
        seed=config.seed,
        bfloat16=config.training.get("precision") == "bfloat16",
    )
    seconds = time.perf_counter() - started
    after = judge.judged([model.merge_and_unload()], [name])
    return {"steps": steps, "after": after, "seconds": {"unlearning": seconds}}


def name_of(row: Mapping[str, Any]) -> str:
    """A system as curves and tables name it."""
    return f"s3t, m={row['shards']}, {row['policy']}" if row["system"] == OURS else str(row["system"])


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Of every system and set: measures, forget quality, model utility; of s3t depths, times, stages and the attack."""
    (reference,) = [row["after"] for row in rows if row["system"] == REFERENCE]
    systems: dict[str, dict[str, Any]] = {}
    for row in rows:
        own = systems.setdefault(name_of(row), {})
        own |= {name: _of_set(found, reference[name]) for name, found in row["after"].items()}
    ours = [row for row in rows if row["system"] == OURS]
    before = {f"s3t, m={row['shards']}, before": row["before"] for row in ours}
    for label, found in before.items():
        systems[label] = {name: _of_set(each, reference[name]) for name, each in found.items()}
    return {
        "systems": systems,
        "stages": {name_of(row): row["stages"] for row in ours},
        "depth": {name_of(row): [_mean(depths) for depths in row["repaired_depths"]] for row in ours},
        "stages_trained": {name_of(row): sum(row["stages_trained"]) for row in ours},
        "seconds": _seconds(rows),
        "attack": {name_of(row): row["attack"] for row in ours if row["attack"]},
    }


def _of_set(found: Row | None, reference: Row) -> Row | None:
    """Measures of a system on one set; None if it is dead."""
    if found is None:
        return None
    return {
        "forget": found["forget"],
        "retain": found["retain"],
        "forget_quality": forget_quality(found["truth_ratios"], reference["truth_ratios"]),
        "model_utility": model_utility([found["retain"]["probability"], found["retain"]["rouge_l_recall"]]),
    }


def _seconds(rows: Sequence[Row]) -> Row:
    """Full training without the authors; approximate unlearning of each set; deletions and repairs of s3t."""
    (reference,) = [row["seconds"]["training"] for row in rows if row["system"] == REFERENCE]
    found: Row = {"full training without the authors": reference}
    for row in rows:
        if row["system"] in METHODS:
            found.setdefault(row["system"], {})[row["forget"]] = row["seconds"]["unlearning"]
        elif row["system"] == OURS:
            deletions, repairs = row["seconds"]["deletion"], row["seconds"]["repair"]
            found[name_of(row)] = {
                "a deletion": _mean(deletions),
                "longest deletion": max(deletions),
                "all repairs": sum(repairs),
                "repairs": sum(seconds > 0 for seconds in repairs),
            }
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
