"""Options and numbers of repair as needed, of `plan` and `simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from s3t.cli.declarations import noted, numbers_in
from s3t.errors import DataError

if TYPE_CHECKING:
    from s3t.forests import StageCosts

LEAST_SECONDS, MOST_SECONDS = 1e-6, 1e9
"""Bounds of the seconds that a stage may take."""
MOST_CELLS = 200_000_000
"""Largest count of numbers that simulated forests hold: of systems, shards, chains and slices."""

StageSecondsOption = Annotated[
    str | None,
    typer.Option(
        "--stage-seconds",
        metavar="S1,S2,...",
        help="Seconds of training a stage of each depth, 1 to L, as measured; without, costs are arithmetic.",
    ),
]
SparesOption = Annotated[
    int | None,
    typer.Option(
        "--spares", metavar="S", help="Chains beside the main one, each with its own first slice; 1 if absent."
    ),
]
SpareDepthOption = Annotated[
    int | None, typer.Option("--spare-depth", metavar="K", help="Slices of a spare; 1 if absent.")
]


def stage_seconds(text: str | None, *, slices: int, problems: list[str]) -> StageCosts | None:
    """Costs from the option, in seconds; None if it is absent or wrong, which is then among the problems."""
    from s3t.forests import StageCosts

    if text is None:
        return None
    with noted(problems):
        numbers = numbers_in(text, where="--stage-seconds")
        wrong = [f"{each:g} seconds" for each in numbers if not LEAST_SECONDS <= each <= MOST_SECONDS]
        if wrong:
            raise DataError("--stage-seconds", f"{wrong[0]}: give {LEAST_SECONDS:g} to {MOST_SECONDS:,.0f}")
        if len(numbers) != slices:
            raise DataError("--stage-seconds", f"has {len(numbers)} numbers for {slices} slices; give one a depth")
        return StageCosts(tuple(numbers))
    return None


def forest_problems(trials: int, shards: int, slices: int, spares: int) -> list[str]:
    """A sentence if a simulation of so many forests would take too much memory."""
    cells = trials * shards * (1 + spares) * slices
    if cells <= MOST_CELLS:
        return []
    return [f"{trials:,} systems of that size are {cells:,} places of slices, more than {MOST_CELLS:,}; lower --trials"]
