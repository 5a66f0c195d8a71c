"""Commands that ask a run, or measure it: predict, generate, score, evaluate, harness."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeAlias

import typer
from typer import Option

import s3t
from s3t.cli.display import print_parts, print_table
from s3t.cli.options import RunArgument, RunOrServerArgument, UrlOption, opened
from s3t.cli.output import JsonOption, Output
from s3t.errors import InputError
from s3t.extras import how_to_install
from s3t.files import is_folder, writing_problems
from s3t.progress import ProgressBar
from s3t.store.disk import storage_errors, write_durably
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.results.answers import Predictions

STDIN = Path("-")
SUFFIXES = (".csv", ".jsonl", ".parquet")
"""Suffixes of files that answers are written to."""
_AT_ONCE = 64
"""Inputs that are sent to a server at once, with --jsonl."""
Source: TypeAlias = Path | BinaryIO | None
"""A file, or stdin; None: texts are typed."""


def predict(
    run: RunOrServerArgument = None,
    data: Annotated[
        Path | None,
        Option("--input", metavar="FILE", help="Inputs: .csv, .jsonl or .parquet; - reads JSON lines from stdin."),
    ] = None,
    text: Annotated[
        list[str] | None, Option(metavar="TEXT", help="A text to answer; repeatable, instead of FILE.")
    ] = None,
    pair: Annotated[
        list[str] | None, Option(metavar="TEXT", help="The second text of a pair: one for each --text, in order.")
    ] = None,
    form: Annotated[
        str | None,
        Option(
            "--format",
            metavar="NAME",
            help="Format of FILE, whatever its name: csv, tsv, jsonl or parquet; of stdin, no parquet.",
        ),
    ] = None,
    top: Annotated[int | None, Option(metavar="K", help="Show the K likeliest labels, the likeliest first.")] = None,
    jsonl: Annotated[
        bool, Option("--jsonl", help="Print one JSON object an input on stdout, window by window, as FILE is read.")
    ] = False,
    output: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Write the answers to a .csv, .jsonl or .parquet file, replacing it. A label's probability is a "
            "column `probability:LABEL`; in CSV a list is written as JSON.",
        ),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> Iterator[Output]:
    """Answer with the ensemble: a label, every label's probability, and the generation that answered.

    Without --output the answers go to stdout. An input without an id is named by its row: the line of a CSV or JSON
    lines file (a CSV file's header is line 1), the row of a Parquet file, the number of a --text (from 0).

    For programs: s3t predict RUN --input - --jsonl < inputs.jsonl
    """
    texts, pairs = text or (), pair or ()
    _refuse_if(
        ((data is None) == (not texts), "give the inputs as --input FILE, as --input - or as --text TEXT, one of them"),
        (
            pairs and len(pairs) != len(texts),
            f"there are {len(pairs)} --pair for {len(texts)} --text; give one for each",
        ),
        (form is not None and data is None, "--format is of --input; leave it out"),
        (top is not None and top < 1, f"--top {top}: give at least 1"),
        (jsonl and (as_json or output is not None), "--jsonl prints lines; leave out --json and --output"),
    )
    if output is not None and (wrong := writing_problems(output, SUFFIXES)):
        raise InputError(str(output), wrong)
    typed = list(zip(texts, pairs, strict=True)) if pairs else texts
    source, form = (sys.stdin.buffer, form or "jsonl") if data == STDIN else (data, form)
    ask = _ask_run if url is None else _ask_server
    with opened(run, url) as target, closing(ask(target, source, form, typed, top=top, whole=not jsonl)) as documents:
        cut = 0
        for document in documents:  # at least one
            cut += document["cut"]
            if jsonl:
                sys.stdout.write(_lines(document["predictions"]))
                sys.stdout.flush()  # a program that reads along has its answers before the next window is computed
    if cut:
        have, are = ("has", "is") if cut == 1 else ("have", "are")
        told = f"{counted(cut, 'input')} {have} more tokens than max_length and {are} cut there"
        typer.echo(f"s3t: {told}", err=True)
    if jsonl:
        return
    rows = document["predictions"]
    if output is not None:
        _write(output, rows)
        del document["predictions"]
        document |= {"output": str(output), "count": len(rows)}
    yield Output(document)
    if output is not None:
        typer.echo(f"{counted(len(rows), 'answer')} of generation {document['generation']} written to {output}")
    else:
        print_table(f"generation {document['generation']}", [_shown(row, top) for row in rows])


def _refuse_if(*checks: tuple[object, str]) -> None:
    """Problems of options that do not go together, all at once."""
    if problems := [problem for is_wrong, problem in checks if is_wrong]:
        raise InputError("the command", problems)


def _ask_run(
    run: s3t.Run, source: Source, form: str | None, typed: Sequence[Any], *, top: int | None, whole: bool
) -> Generator[dict[str, Any], None, None]:
    """Documents of a run's answers to windows of inputs; of all of them, with `whole`, by one generation."""
    from s3t.run.reporting import outage_of

    for warning in outage_of(run.parts, run.inventory()):
        typer.echo(f"s3t: warning: {warning}", err=True)
    answers: Iterable[Predictions]
    if source is None:
        answers = [run.predict(typed)]
    elif whole and isinstance(source, Path) and form is None:
        answers = [run.predict(source, progress=ProgressBar())]
    else:
        answers = run.predict_windows(source, form=form, whole=whole)
    for window in answers:
        yield window.to_json(top=top)


def _ask_server(
    client: s3t.Client, source: Source, form: str | None, typed: Sequence[Any], *, top: int | None, whole: bool
) -> Generator[dict[str, Any], None, None]:
    """Documents of a server's answers. It gets the rows of a file as they are, for it knows the recipe."""
    windows: Iterable[tuple[Sequence[Any], Sequence[int]]] = [(typed, range(len(typed)))]
    if source is not None:
        from s3t.records.reading import WHOLE, format_of, read_rows

        windows = read_rows(source, format_of(source, form), size=WHOLE if whole else _AT_ONCE)
    for rows, places in windows:
        found = client.predict(list(rows), top=top)
        for row in found["predictions"]:
            if "row" in row:
                row["row"] = places[row["row"]]
            row["generation"] = found["generation"]
        yield found


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def _shown(row: dict[str, Any], top: int | None) -> dict[str, Any]:
    """An answer as a row of a table: with the label's probability, or with the K likeliest labels and theirs."""
    likely, generation = row.pop("probabilities", None), row.pop("generation")
    if isinstance(likely, dict):  # else there are none, or one mapping a word: too much for a table
        if top is not None:
            return row | {f"likeliest {top}": ", ".join(f"{name} {value:.4f}" for name, value in likely.items())}
        if "label" in row:  # of several labels, each has its own probability
            row["probability"] = likely[row["label"]]
    return row | {"generation": generation}


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one row an answer, whole or not at all. In CSV and Parquet each label's probability is a column,
    `probability:LABEL`; in CSV a list is written as JSON.
    """
    import pyarrow as pa  # here, as below: most answers go to stdout
    import pyarrow.csv
    import pyarrow.parquet

    suffix = path.suffix.lower()

    def write(part: Path) -> None:
        if suffix == ".jsonl":
            part.write_text(_lines(rows), encoding="utf-8")
            return
        table = pa.Table.from_pylist([_flat(row, is_text=suffix == ".csv") for row in rows])
        if suffix == ".csv":
            pa.csv.write_csv(table, part)
        else:
            pa.parquet.write_table(table, part)

    with storage_errors(f"writing {path}"):
        write_durably(path, write, tmp=path.parent, mode=None)


def _flat(row: dict[str, Any], *, is_text: bool) -> dict[str, Any]:
    if isinstance(likely := row.get("probabilities"), dict):
        plain = {name: value for name, value in row.items() if name != "probabilities"}
        row = plain | {f"probability:{label}": value for label, value in likely.items()}
    return {name: json.dumps(value) if is_text and isinstance(value, list) else value for name, value in row.items()}


def generate(
    run: RunArgument,
    data: Annotated[
        Path | None,
        Option("--input", metavar="FILE", help="Prompts, with the recipe's columns: .csv, .jsonl or .parquet."),
    ] = None,
    prompt: Annotated[
        list[str] | None, Option(metavar="TEXT", help="A prompt, of a chat a question; repeatable, instead of FILE.")
    ] = None,
    max_new_tokens: Annotated[int, Option(metavar="N", help="Tokens of a text at most.")] = 128,
    temperature: Annotated[
        float, Option(metavar="T", help="0: the likeliest token each time; above: draws, the wilder the larger.")
    ] = 0.0,
    top_p: Annotated[
        float, Option(metavar="P", help="Draw among the likeliest tokens with this probability together.")
    ] = 1.0,
    stop: Annotated[list[str] | None, Option(metavar="TEXT", help="End a text where it has this; repeatable.")] = None,
    seed: Annotated[int | None, Option(metavar="N", help="Seed of the draws; without, another one each time.")] = None,
    n: Annotated[int, Option(metavar="N", help="Texts after each prompt.")] = 1,
    stream: Annotated[bool, Option("--stream", help="Print one prompt's text as it is written.")] = False,
    as_json: JsonOption = False,
) -> Iterator[Output]:
    """Write texts after prompts, by the mean of all shards' next-token probabilities.

    Prompts are filled into the recipe's template, if it has one, and chats into the base model's.
    """
    _refuse_if(
        ((data is None) == (not prompt), "give the prompts as --input FILE or as --prompt TEXT, one of them"),
        (
            stream and (data is not None or len(prompt or ()) > 1 or n > 1),
            "--stream is of one text after one --prompt; leave it out, or ask for one",
        ),
        (stream and as_json, "--stream prints text; leave out --json"),
    )
    settings: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "stop": stop or (),
        "seed": seed,
    }
    with s3t.Run.open(run) as target:
        asked: Any = data
        if prompt:
            chat = target.recipe.columns.messages is not None
            asked = [[{"role": "user", "content": text}] if chat else text for text in prompt]
        if stream:
            for part in target.stream(asked[0], **settings):
                sys.stdout.write(part)
                sys.stdout.flush()
            sys.stdout.write("\n")
            return
        result = target.generate(asked, n=n, progress=ProgressBar(), **settings)
    yield Output(result)
    print_table("texts", result.rows())
    typer.echo(f"{counted(len(result), 'text')} (generation {result.generation})")


def score(
    run: RunArgument,
    data: Annotated[
        Path, Option("--input", metavar="FILE", help="Records as the run was trained on: .csv, .jsonl or .parquet.")
    ],
) -> Iterator[Output]:
    """Tell how likely a language model finds texts: log-likelihood and perplexity of what it learns of each record.

    Tokens of prompts count where the recipe learns them (language.loss: all).
    """
    with s3t.Run.open(run) as target:
        result = target.score(data, progress=ProgressBar())
    yield Output(result)
    print_table("scores", result.rows())
    shown = "undefined" if result.perplexity is None else f"{result.perplexity:.4f}"
    records = counted(len(result.log_probabilities), "record")
    typer.echo(f"perplexity {shown} on {records} (generation {result.generation})")


def evaluate(
    run: RunArgument,
    data: Annotated[Path, Option(metavar="FILE", help="Labelled data: .csv, .jsonl or .parquet.")],
    depths: Annotated[bool, Option(help="Also measure the ensemble cut to each depth: one pass a live block.")] = True,
    write: Annotated[
        int, Option(metavar="N", min=0, help="Language models: also write N texts: exact match, ROUGE-L (extra texts).")
    ] = 0,
    report: Annotated[bool, Option("--report", help="Also precision, recall, F1 and support of every label.")] = False,
    confusion: Annotated[
        Path | None, Option(metavar="FILE", help="Draw the confusion matrix: .png, .svg or .pdf (extra plots).")
    ] = None,
) -> Iterator[Output]:
    """Measure the ensemble on labelled data, as a whole, per shard and per depth.

    Classification: accuracy, F1 and Matthews correlation. Several labels: micro and macro F1, and the share of records
    that are right in all. Words with tags: F1, precision and recall of entities, accuracy of words. Regression: Pearson
    correlation and root mean squared error. Language models: perplexity, and mean loss a token.
    """
    from s3t.drawing import check_picture, draw_confusion

    if confusion is not None:
        check_picture(confusion)
    with s3t.Run.open(run) as target:
        task = target.recipe.task
        if (report or confusion is not None) and not target.labels:
            raise InputError("the command", f"{task} has no labels; leave out --report and --confusion")
        if confusion is not None and not task.target.one_label:
            raise InputError("the command", f"in {task} no label stands for another; leave out --confusion")
        result = target.evaluate(data, per_depth=depths, write=write, progress=ProgressBar())
    if confusion is not None and result.confusion is not None:
        title = f"{counted(result.n, 'record')}, accuracy {result.accuracy:.3f}, generation {result.generation}"
        draw_confusion(result.confusion, result.classes, confusion, title=title)
    yield Output(result.to_json(report=report or confusion is not None))
    typer.echo(result.sentence)
    if report:
        print_table("each label", [*result.per_class, *result.means])
    print_parts(result)
    if confusion is not None:
        typer.echo(f"drawn: {confusion}")


def harness(
    run: RunArgument,
    task: Annotated[list[str] | None, Option(metavar="NAME", help="A task of the harness; repeatable.")] = None,
    paper: Annotated[bool, Option("--paper", help="The eight tasks by which the paper judges Llama.")] = False,
    include: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder with tasks of your own, as YAML files.")
    ] = None,
    shots: Annotated[int | None, Option(metavar="N", min=0, help="Examples before each question.")] = None,
    limit: Annotated[int | None, Option(metavar="N", min=1, help="The first N questions of each task alone.")] = None,
    chat: Annotated[bool, Option("--chat", help="Ask in the base model's chat template.")] = False,
) -> Iterator[Output]:
    """Judge a language model by the lm-evaluation-harness (extra `harness`). Its tasks are downloaded from the hub."""
    installed = importlib.util.find_spec("lm_eval") is not None
    install = how_to_install("harness")
    _refuse_if(
        (not task and not paper, "names no task; give --task NAME or --paper"),
        ((task or paper) and not installed, f"needs the lm-evaluation-harness; install it with: {install}"),
        (
            include is not None and not is_folder(include),
            f"--include {include} is no folder; name one that holds YAML files",
        ),
    )
    from lm_eval.tasks import TaskManager

    from s3t.harness import PAPER, S3TModel

    tasks = [*(task or ()), *(PAPER if paper else ())]
    own = None if include is None else str(include)
    manager = TaskManager(include_path=own, include_defaults=False)
    if any(not manager.match_tasks([name]) for name in tasks):  # to list the harness's own takes half a minute
        manager = TaskManager(include_path=own)
    _refuse_if(*((not manager.match_tasks([name]), f"--task {name}: the harness has no such task") for name in tasks))
    with s3t.Run.open(run) as target:
        generation, measured = S3TModel(target).evaluated(
            tasks=tasks,
            task_manager=manager,
            num_fewshot=shots,
            limit=limit,
            apply_chat_template=chat,
            bootstrap_iters=0,
        )
    rows = []
    for name, measures in measured["results"].items():
        floats = {key.removesuffix(",none"): value for key, value in measures.items() if isinstance(value, float)}
        # Without standard errors, for which nothing was drawn.
        rows.append({"task": name} | {key: value for key, value in floats.items() if "_stderr" not in key})
    yield Output({"generation": generation, "results": rows})
    print_table("harness", rows)
