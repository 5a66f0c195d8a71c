"""`s3t predict`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import s3t
from s3t.cli.display import print_table
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.errors import InputError
from s3t.progress_bar import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.run import Run
    from s3t.run.answers import Predictions

STDIN = Path("-")

TextOption = Annotated[
    list[str] | None, typer.Option("--text", metavar="TEXT", help="A text to answer; repeatable, instead of FILE.")
]
TopOption = Annotated[
    int | None, typer.Option("--top", metavar="K", help="Show the K likeliest labels, the likeliest first.")
]
PairOption = Annotated[
    list[str] | None,
    typer.Option("--pair", metavar="TEXT", help="The second text of a pair; as many as --text, in their order."),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format of FILE, whatever its name: csv, jsonl or parquet; of stdin: csv or jsonl.",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write the answers to a .csv, .jsonl or .parquet file, replacing it. A label's probability is a column "
        "`probability:LABEL`; in CSV a list is written as JSON.",
    ),
]


def command(
    run: RunArgument,
    data: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="Inputs: .csv, .jsonl or .parquet; - reads JSON lines from standard input."
        ),
    ] = None,
    text: TextOption = None,
    pair: PairOption = None,
    form: FormatOption = None,
    top: TopOption = None,
    jsonl: Annotated[
        bool,
        typer.Option("--jsonl", help="Print one JSON object an input on stdout, window by window, as FILE is read."),
    ] = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer with the ensemble: a label, every label's probability, and the generation that answered.

    Without --output the answers go to stdout. An input without an id is named by its row: the line of a CSV or JSON
    lines file (a CSV file's header is line 1), the row of a Parquet file, the number of a --text (from 0).

    For programs: s3t predict RUN --input - --jsonl < inputs.jsonl
    """
    with failures_reported(as_json):
        from s3t.prediction.writing import check_output, write_predictions

        _check(data, text, pair, form, top=top, jsonl=jsonl, output=output, as_json=as_json)
        if output is not None:
            check_output(output)
        with s3t.Run.open(run) as opened:
            answers = _answers(opened, data, text or (), pair, form, whole=not jsonl)
            if jsonl:
                for window in answers:
                    _print_lines(window.rows(top=top))
                return
            result = next(answers, None)
            if result is None:
                where = "standard input" if data == STDIN else str(data)
                raise InputError(where, "holds no inputs; give at least one")
        document = result.to_json(top=top)
        if output is not None:
            write_predictions(output, result.rows(top=top))
            del document["predictions"]
            document |= {"output": str(output), "count": len(result)}

        def render() -> None:
            if output is not None:
                typer.echo(f"{counted(len(result), 'answer')} of generation {result.generation} written to {output}")
            else:
                print_table(f"generation {result.generation}", [_shown(row, top) for row in result.rows(top=top)])

        show(document, as_json, render)


def _check(
    data: Path | None,
    text: Sequence[str] | None,
    pair: Sequence[str] | None,
    form: str | None,
    *,
    top: int | None,
    jsonl: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Check that the options are compatible; all problems at once."""
    problems = []
    if (data is None) == (not text):
        problems.append("give the inputs as --input FILE, as --input - or as --text TEXT, one of them")
    if pair and len(pair) != len(text or ()):
        problems.append(f"there are {len(pair)} --pair for {len(text or ())} --text; give one for each")
    if form is not None and data is None:
        problems.append("--format is of --input; leave it out")
    if top is not None and top < 1:
        problems.append(f"--top {top}: give at least 1")
    if jsonl and (as_json or output is not None):
        problems.append("--jsonl prints lines; leave out --json and --output")
    if problems:
        raise InputError("the command", problems)


def _answers(
    run: Run, data: Path | None, text: Sequence[str], pair: Sequence[str] | None, form: str | None, *, whole: bool
) -> Iterator[Predictions]:
    """Answers window by window, or all at once, of one generation."""
    if data is None:
        yield run.predict(list(zip(text, pair, strict=True)) if pair else text)
    elif whole and data != STDIN and form is None:
        yield run.predict(data, progress=ProgressBar())
    else:
        source, default = (sys.stdin.buffer, "jsonl") if data == STDIN else (data, None)
        yield from run.predict_windows(source, form=form or default, whole=whole)


def _print_lines(rows: list[dict[str, Any]]) -> None:
    sys.stdout.write("".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows))
    sys.stdout.flush()  # a program that reads along has its answers before the next window is computed


def _shown(row: dict[str, Any], top: int | None) -> dict[str, Any]:
    """An answer as a row of a table: with the label's probability, or with the K likeliest labels and theirs."""
    likely, generation = row.pop("probabilities", None), row.pop("generation")
    if not isinstance(likely, dict):  # none, or one mapping a word: too much for a table
        return row | {"generation": generation}
    if top is not None:
        return row | {f"likeliest {top}": ", ".join(f"{name} {value:.4f}" for name, value in likely.items())}
    # Of several labels, each has its own probability.
    return row | ({"probability": likely[row["label"]]} if "label" in row else {}) | {"generation": generation}
