"""Systems trained for their size: what each stores."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from experiments.runner import Row
from experiments.runs import trained
from experiments.served import SystemSettings


class Paper(BaseModel):
    """The paper's table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budgets: tuple[int, ...]
    """B's."""
    gb: tuple[float, ...]
    """Of the adapters, GB."""


class Config(SystemSettings):
    """One system, under many budgets."""

    budgets: tuple[int, ...]
    """B's."""
    paper: Paper
    """What is compared with."""


def points(config: Config) -> list[Row]:
    """SISA, and s3t under every budget."""
    return [{"system": "sisa", "budget": 1}, *({"system": "s3t", "budget": budget} for budget in config.budgets)]


def measure(config: Config, point: Row) -> Row:
    """Bytes of the artifacts and their manifests, as `s3t status` tells them; and how many stages there are."""
    found = config.found()
    which: Row = {"method": "sisa"} if point["system"] == "sisa" else {"budget": point["budget"]}
    recipe = config.recipe(found, **which)
    with trained(recipe, found) as run:
        status = run.status(full=True)
        return {"bytes": status.stored_bytes, "stages": status.alive}


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
