"""Systems trained for their size: what each stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from experiments.runner import Row
from experiments.runs import recipe_of, trained
from experiments.settings import Settings
from experiments.tasks import task


class Paper(BaseModel):
    """The paper's table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budgets: tuple[int, ...]
    """B's."""
    gb: tuple[float, ...]
    """Of the adapters, GB."""


class Config(Settings):
    """One system, under many budgets."""

    made_up: bool
    """Made-up records."""
    task: str
    """By name."""
    records: int | None
    """To train on; None: all."""
    shards: int = Field(ge=1)
    """m."""
    slices: int = Field(ge=1)
    """L."""
    budgets: tuple[int, ...]
    """B's."""
    paper: Paper
    """What is compared with."""
    training: dict[str, Any]
    """Of the recipe."""


def points(config: Config) -> list[Row]:
    """SISA, and s3t under every budget."""
    return [{"system": "sisa", "budget": 1}, *({"system": "s3t", "budget": budget} for budget in config.budgets)]


def measure(config: Config, point: Row) -> Row:
    """Bytes of the artifacts and their manifests, as `s3t status` tells them; and how many stages there are."""
    found = task(config.task, records=config.records, tried=1, made_up=config.made_up)
    recipe = recipe_of(
        found,
        config.training | {"seed": config.seed},
        shards=config.shards,
        slices=config.slices,
        **({"method": "sisa"} if point["system"] == "sisa" else {"budget": point["budget"]}),
    )
    with trained(recipe, found) as run:
        status = run.status()
        return {"bytes": status.stored_bytes, "stages": len(status.inventory.alive)}


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Megabytes by system, and what each is beside one order of s3t; the paper's beside its first."""
    one = next(row["bytes"] for row in rows if (row["system"], row["budget"]) == ("s3t", 1))
    paper = dict(zip(config.paper.budgets, config.paper.gb, strict=True))
    return {
        "megabytes": {f"{row['system']}, B={row['budget']}": row["bytes"] / 1e6 for row in rows},
        "stages": {f"{row['system']}, B={row['budget']}": row["stages"] for row in rows},
        "times_one_order": {str(row["budget"]): row["bytes"] / one for row in rows if row["system"] == "s3t"},
        "paper_times_one_order": {str(budget): gb / config.paper.gb[0] for budget, gb in paper.items()},
        "sisa_over_one_order": rows[0]["bytes"] / one,
    }
