"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from s3t.run.placement import WorkerCount

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.", show_default=False)]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout instead of tables, and nothing else there.")
]
MovedOption = Annotated[
    bool, typer.Option("--moved", help="The folder is the run itself, which was moved here, and no copy of it.")
]
WorkersOption = Annotated[
    str,
    typer.Option(
        "--workers",
        metavar="N",
        help="Processes that share the training, or auto: one a GPU, or as many as the cores have room for, each with "
        "training.threads. Each has the base model, a shard's encoded slices and the optimiser in memory.",
    ),
]


MOST_SEED = 2**63 - 1


def seed_problems(seed: int) -> Iterator[str]:
    """Problems of the seed of a simulation."""
    if seed < 0:
        yield f"seed {seed} is negative"
    if seed > MOST_SEED:
        yield f"the seed is above 2^63-1, {MOST_SEED}; give a smaller one"


def number_of(workers: str) -> WorkerCount:
    """The option's value as `Run.train` takes it, which says what is wrong with it."""
    return int(workers) if workers.isdecimal() and len(workers) < 20 else workers  # type: ignore[return-value]
