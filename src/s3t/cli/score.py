"""`s3t score`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import s3t
from s3t.cli.display import print_table
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.progress import ProgressBar
from s3t.wording import counted


def command(
    run: RunArgument,
    data: Annotated[
        Path,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Records as the run was trained on: .csv, .jsonl or .parquet.",
            show_default=False,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Tell how likely a language model finds texts: log-likelihood and perplexity of what it learns of each record.

    Tokens of prompts count where the recipe learns them (language.loss: all).
    """
    with failures_reported(as_json):
        with s3t.Run.open(run) as opened:
            result = opened.score(data, progress=ProgressBar())

        def render() -> None:
            print_table("scores", result.rows())
            shown = "undefined" if result.perplexity is None else f"{result.perplexity:.4f}"
            records = counted(len(result.log_probabilities), "record")
            typer.echo(f"perplexity {shown} on {records} (generation {result.generation})")

        show(result.to_json(), as_json, render)
