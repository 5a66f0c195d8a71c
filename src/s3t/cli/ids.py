"""`s3t ids`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import s3t
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show


def command(
    data: Annotated[Path, typer.Argument(metavar="FILE", help="Records: .csv, .jsonl or .parquet.")],
    recipe: Annotated[
        Path, typer.Option("--recipe", metavar="YAML", help="The recipe that names the columns.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Print the id of every record of a file, one a line: what `delete` asks for where there is no id column.

    They are in the order of the rows. FILE must fit the recipe, labels included.
    """
    with failures_reported(as_json):
        ids = s3t.record_ids(data, s3t.load_recipe(recipe))

        def render() -> None:
            for record in ids:
                typer.echo(record)

        show({"ids": ids}, as_json, render)
