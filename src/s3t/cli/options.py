"""Arguments and options that several commands share: name, type, bounds and help of each stand here once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import s3t
from s3t.errors import InputError

if TYPE_CHECKING:
    from s3t.records.reading import Data
    from s3t.run.training import WorkerCount

TOKEN = "S3T_TOKEN"  # noqa: S105
"""Environment variable with a server's token: arguments are seen by all users of a machine."""
STDIN = "-"
"""Stands for names on stdin, one a line. Arguments are visible in `ps` and in the shell's history."""

RunArgument = Annotated[Path, Argument(metavar="RUN", help="The run's folder.")]
RunOrServerArgument = Annotated[Path | None, Argument(metavar="RUN", help="The run's folder; without it, --url.")]
UrlOption = Annotated[
    str | None,
    Option(
        metavar="URL",
        help=f"Ask a server (s3t serve) instead of opening RUN, with the token in ${TOKEN}; with /runs/NAME after it, "
        "for one of its several runs.",
    ),
]
MovedOption = Annotated[
    bool, Option("--moved", help="The folder is the run itself, which was moved here, and no copy of it.")
]
WorkersOption = Annotated[
    str | None,
    Option(
        metavar="N",
        help="Workers that share the training, or auto: one a GPU, or as many as the cores have room for, each with "
        "training.threads. Each has the base model, a shard's encoded slices and the optimiser in memory.",
    ),
]
OnOption = Annotated[
    str | None,
    Option(metavar="ENGINE", help="Where they are: local (processes here), ray or slurm; else as the recipe says."),
]
AddressOption = Annotated[
    str | None,
    Option(metavar="ADDRESS", help="ray: the cluster's address; else one that runs here, or one is started."),
]
CpusOption = Annotated[
    int | None, Option(metavar="N", help="ray, slurm: cores that each reserves; else training.threads.")
]
GpusOption = Annotated[int | None, Option(metavar="N", help="ray, slurm: GPUs that each reserves.")]
SbatchOption = Annotated[
    list[str] | None, Option(metavar="NAME=VALUE", help="slurm: an option of sbatch, as partition=gpu. Repeatable.")
]
QueryOption = Annotated[
    str | None,
    Option(metavar="SQL", help="A SELECT for a database, whose URL (as SQLAlchemy writes it) is --data."),
]
ReadmitOption = Annotated[
    bool, Option("--readmit", help="Also take in ids and people that were deleted: they came back.")
]
NewLabelsOption = Annotated[
    list[str] | None,
    Option("--new-labels", metavar="LABEL", help="method ridge: a label that the run has from now on. Repeatable."),
]
DryRunOption = Annotated[bool, Option("--dry-run", help="Say what it would cost, and change nothing.")]
RecordOption = Annotated[
    list[str] | None, Option(metavar="ID", help="A record; may be repeated; - reads them from stdin, one a line.")
]
SubjectOption = Annotated[
    list[str] | None,
    Option(metavar="ID", help="A person, for all their records; may be repeated; - reads them from stdin, one a line."),
]
FileOption = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="A .csv, .jsonl or .parquet with a column `record`, a column `subject`, or both; empty cells are skipped.",
    ),
]


def opened(run: Path | None, url: str | None, *, moved: bool = False) -> Any:
    """The `Run` of a folder, or the `Client` of a server: one of them is given."""
    if (run is None) == (url is None):
        raise InputError("the command", "give the run's folder or a server's --url, one of them")
    if run is not None:
        return s3t.Run.open(run, moved=moved)
    if moved:
        raise InputError("the command", "--moved is of a run's folder; leave it out")
    from s3t.client import Client

    return Client(str(url), os.environ.get(TOKEN) or None)


def data_of(data: str, query: str | None) -> Data:
    """Records of a command: of a file, or what a database answers."""
    if ("://" in data) != (query is not None):
        raise InputError("the command", "a database is asked by --data URL and --query SQL together")
    return Path(data) if query is None else s3t.Query(data, query)


def share_of(text: str, option: str) -> float:
    """A share as people write it.

    >>> share_of("1%", "--max-deletions"), share_of("0.01", "--max-deletions")
    (0.01, 0.01)
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(option, f"{text!r} is no share; give 5%, say, or 0.05")
    return share


def number_of(workers: str | None) -> WorkerCount | None:
    """The option's value as `Run.train` takes it, which says what is wrong with it."""
    if workers is None or not workers.isdecimal() or len(workers) >= 20:
        return workers  # type: ignore[return-value]
    return int(workers)


def engine_of(
    on: str | None, address: str | None, cpus: int | None, gpus: int | None, sbatch: Sequence[str] | None
) -> dict[str, Any]:
    """The fields that were given, as `Run.train` takes them."""
    if wrong := [option for option in sbatch or () if "=" not in option]:
        raise InputError("--sbatch", f"{wrong[0]!r} is not of the form NAME=VALUE, as partition=gpu")
    options = dict(option.split("=", 1) for option in sbatch or ()) or None
    given = {"on": on, "address": address, "cpus_per_worker": cpus, "gpus_per_worker": gpus, "options": options}
    return {name: value for name, value in given.items() if value is not None}


def names_in(
    record: Sequence[str] | None, subject: Sequence[str] | None, file: Path | None, *, verb: str
) -> tuple[list[str], list[str]]:
    """Record ids and subjects, from options and from a file; `verb` says in messages what is done with them."""
    if not record and not subject and file is None:
        raise InputError("the command", f"name what to {verb}: --record ID, --subject ID or --file FILE")
    if record and subject and STDIN in record and STDIN in subject:
        raise InputError("the command", "--record - and --subject - both read stdin; give one of them in a file")
    records, subjects = _with_stdin(record or ()), _with_stdin(subject or ())
    if file is None:
        return records, subjects
    from s3t.records.requests import read_requests

    more_records, more_subjects = read_requests(file)
    return [*records, *more_records], [*subjects, *more_subjects]


def _with_stdin(names: Sequence[str]) -> list[str]:
    """The names, with those of stdin, one a line, in the place of `-`."""
    if STDIN not in names:
        return list(names)
    wrong_byte = None
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong_byte = error.start
    if wrong_byte is not None:  # raised here, where no error is handled that quotes what it could not read
        raise InputError("stdin", f"is not UTF-8 text at byte {wrong_byte}; save it as UTF-8")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    ids = [line for line in lines if line]
    if not ids:
        raise InputError("stdin", "holds no names; give one a line")
    return [*(name for name in names if name != STDIN), *ids]
