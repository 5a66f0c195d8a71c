"""`s3t evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from s3t.cli.display import print_line, print_table
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.progress_bar import ProgressBar


def command(
    run: RunArgument,
    data: Annotated[
        Path,
        typer.Option("--data", metavar="FILE", help="Labelled data: .csv, .jsonl or .parquet.", show_default=False),
    ],
    depths: Annotated[
        bool, typer.Option(help="Also evaluate the ensemble cut to each depth (one pass a live block).")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Measure the ensemble on labelled data, as a whole, per shard and per depth.

    Classification: accuracy and Matthews correlation. Regression: Pearson correlation and root mean squared error.
    """
    with failures_reported(as_json):
        import s3t

        with s3t.Run.open(run) as opened:
            result = opened.evaluate(data, per_depth=depths, progress=ProgressBar())

        def render() -> None:
            shown = ", ".join(
                f"{name} {'undefined' if value is None else f'{value:.4f}'}" for name, value in result.metrics.items()
            )
            print_line(f"{shown} on {result.n} records (generation {result.generation})")
            print_table("each shard alone", list(result.per_shard))
            print_table("the ensemble cut to a depth", list(result.per_depth))

        show(result.to_json(), as_json, render)
