"""`s3t predict`."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import typer

import s3t
from s3t.cli.display import print_table
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.cli.remote import RunOrServerArgument, UrlOption, folder, server
from s3t.errors import InputError
from s3t.progress import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.run import Run
    from s3t.run.answers import Predictions

STDIN = Path("-")
_AT_ONCE = 64
"""Inputs that are sent to a server at once, with --jsonl."""

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
    run: RunOrServerArgument = None,
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
    url: UrlOption = None,
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
        inputs = Given(data=data, text=text or (), pair=pair, form=form)
        with closing(_documents(run, url, inputs, top=top, whole=not jsonl)) as documents:
            if jsonl:
                for window in documents:
                    _print_lines(window["predictions"])
                return
            document = next(documents, None)
        if document is None:
            where = "standard input" if data == STDIN else str(data)
            raise InputError(where, "holds no inputs; give at least one")
        rows = document["predictions"]
        if output is not None:
            write_predictions(output, rows)
            del document["predictions"]
            document |= {"output": str(output), "count": len(rows)}

        def render() -> None:
            if output is not None:
                typer.echo(f"{counted(len(rows), 'answer')} of generation {document['generation']} written to {output}")
            else:
                print_table(f"generation {document['generation']}", [_shown(row, top) for row in rows])

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


class Given(NamedTuple):
    """Inputs of the command line."""

    data: Path | None
    text: Sequence[str]
    pair: Sequence[str] | None
    form: str | None

    @property
    def typed(self) -> Sequence[Any]:
        """Texts, or pairs of texts, of the options --text and --pair."""
        return list(zip(self.text, self.pair, strict=True)) if self.pair else self.text

    @property
    def source(self) -> Path | BinaryIO | None:
        """The file, or standard input; None if the inputs are typed."""
        return sys.stdin.buffer if self.data == STDIN else self.data

    @property
    def format(self) -> str | None:
        """Format of the source; None: as the file's suffix says."""
        return self.form or ("jsonl" if self.data == STDIN else None)


def _documents(
    run: Path | None, url: str | None, given: Given, *, top: int | None, whole: bool
) -> Generator[dict[str, Any], None, None]:
    """Documents of the answers to windows of inputs, or to all of them at once by one generation."""
    if (client := server(run, url)) is not None:
        with client:
            for rows, places in _windows(given, whole=whole):
                found = client.predict(list(rows), top=top)
                for row in found["predictions"]:
                    if "row" in row:
                        row["row"] = places[row["row"]]
                    row["generation"] = found["generation"]
                yield found
        return
    from s3t.run.reporting import outage_of

    with s3t.Run.open(folder(run)) as opened:
        for warning in outage_of(opened.parts, opened.inventory()):
            typer.echo(f"s3t: warning: {warning}", err=True)
        for answers in _answers(opened, given, whole=whole):
            yield answers.to_json(top=top)


def _answers(run: Run, given: Given, *, whole: bool) -> Iterator[Predictions]:
    """A run's own answers."""
    source = given.source
    if source is None:
        yield run.predict(given.typed)
    elif whole and isinstance(source, Path) and given.form is None:
        yield run.predict(source, progress=ProgressBar())
    else:
        yield from run.predict_windows(source, form=given.format, whole=whole)


def _windows(given: Given, *, whole: bool) -> Iterator[tuple[Sequence[Any], Sequence[int]]]:
    """Inputs as a server takes them, and their places: the rows of a file as they are, for the server knows the
    recipe."""
    source = given.source
    if source is None:
        yield given.typed, range(len(given.typed))
        return
    from s3t.records.reading import WHOLE, format_of, read_rows

    yield from read_rows(source, format_of(source, given.format), size=WHOLE if whole else _AT_ONCE)


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
