"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from s3t.run.workers import Workers

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.", show_default=False)]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout instead of tables, and nothing else there.")
]
WorkersOption = Annotated[
    str,
    typer.Option(
        "--workers",
        metavar="N",
        help="Processes that share the training, or auto: one a GPU, or as many as the cores have room for. Each has "
        "the base model in memory.",
    ),
]


def number_of(workers: str) -> Workers:
    """The option's value as `Run.train` takes it, which says what is wrong with it."""
    return int(workers) if workers.isdecimal() else workers  # type: ignore[return-value]
