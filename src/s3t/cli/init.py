"""`s3t init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import s3t
from s3t.cli.display import print_status
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.progress import ProgressBar


def command(
    run: RunArgument,
    data: Annotated[
        Path, typer.Option("--data", metavar="FILE", help="The records: .csv, .jsonl or .parquet.", show_default=False)
    ],
    recipe: Annotated[
        Path, typer.Option("--recipe", metavar="YAML", help="The recipe; fields in docs/recipe.md.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Make a run: check recipe and records, assign records to slices, draw the orders, write the folder RUN.

    Nothing is trained yet. If anything is wrong, all problems are listed and no folder is left. Notes tell of repeated
    records, equal features with different labels, texts cut by text.max_length, and empty slices.
    """
    with failures_reported(as_json):
        with s3t.Run.create(run, recipe=recipe, data=data, progress=ProgressBar()) as created:
            status, notices = created.status(), created.notices
        if s3t.load_recipe(recipe).partition.salt is not None:
            typer.echo(
                f"s3t: {recipe} declares the salt, so it outlives `s3t destroy-key`: remove it there before that, or "
                "leave it out, and init draws one that the run alone has",
                err=True,
            )

        def render() -> None:
            print_status(status, run)
            for notice in notices:
                typer.echo(f"note: {notice}")

        show(status.to_json() | {"notices": list(notices)}, as_json, render)
