"""`s3t evaluate`."""

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

WriteOption = Annotated[
    int,
    typer.Option(
        "--write",
        metavar="N",
        min=0,
        help="Language models: also write after the first N prompts, and compare with the completions: exact match "
        "and ROUGE-L. Needs the extra texts.",
    ),
]
ConfusionOption = Annotated[
    Path | None,
    typer.Option(
        "--confusion",
        metavar="FILE",
        help="Draw which labels are taken for which, into a .png, .svg or .pdf file: a row a label, a column an "
        "answer. Needs the extra plots.",
    ),
]


def command(
    run: RunArgument,
    data: Annotated[
        Path,
        typer.Option("--data", metavar="FILE", help="Labelled data: .csv, .jsonl or .parquet.", show_default=False),
    ],
    depths: Annotated[
        bool, typer.Option(help="Also evaluate the ensemble cut to each depth (one pass a live block).")
    ] = True,
    write: WriteOption = 0,
    report: Annotated[
        bool, typer.Option("--report", help="Also precision, recall, F1 and support of every label.")
    ] = False,
    confusion: ConfusionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the ensemble on labelled data, as a whole, per shard and per depth.

    Classification: accuracy, F1 and Matthews correlation. Several labels: micro and macro F1, and the share of records
    that are right in all. Words with tags: F1, precision and recall of entities, accuracy of words. Regression: Pearson
    correlation and root mean squared error. Language models: perplexity, and mean loss a token.
    """
    with failures_reported(as_json):
        from s3t.drawing import check_picture, draw_confusion

        if confusion is not None:
            check_picture(confusion)
        with s3t.Run.open(run) as opened:
            _check(opened, report=report, confusion=confusion)
            result = opened.evaluate(data, per_depth=depths, write=write, progress=ProgressBar())
        if confusion is not None and result.confusion is not None:
            title = f"{counted(result.n, 'record')}, accuracy {result.accuracy:.3f}, generation {result.generation}"
            draw_confusion(result.confusion, result.classes, confusion, title=title)

        def render() -> None:
            measures = ", ".join(
                f"{name} {'undefined' if value is None else f'{value:.4f}'}" for name, value in result.metrics.items()
            )
            typer.echo(f"{measures} on {counted(result.n, 'record')} (generation {result.generation})")
            if report:
                print_table("each label", [*result.per_class, *result.means])
            print_table("each shard alone", list(result.per_shard))
            print_table("the ensemble cut to a depth", list(result.per_depth))
            if confusion is not None:
                typer.echo(f"drawn: {confusion}")

        show(result.to_json(report=report or confusion is not None), as_json, render)


def _check(run: s3t.Run, *, report: bool, confusion: Path | None) -> None:
    """Check that the run has what the options ask for."""
    if (report or confusion is not None) and not run.labels:
        raise s3t.InputError("the command", f"{run.recipe.task} has no labels; leave out --report and --confusion")
    if confusion is not None and not run.recipe.task.target.one_label:
        raise s3t.InputError("the command", f"in {run.recipe.task} no label stands for another; leave out --confusion")
