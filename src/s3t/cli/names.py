"""Records and subjects of a command's arguments, one by one or in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from s3t.errors import InputError

STDIN = "-"
"""Stands for names on stdin, one a line. Arguments are visible in `ps` and in the shell's history."""

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="A .csv, .jsonl or .parquet with a column `record`, a column `subject`, or both; empty cells are skipped.",
    ),
]


def names_in(
    record: list[str] | None, subject: list[str] | None, file: Path | None, *, verb: str
) -> tuple[list[str], list[str]]:
    """Record ids and subjects, from options and from a file; `verb` says in messages what is done with them.

    Raises:
        InputError: nothing is named, both are to be read from stdin, or the file cannot be read.
    """

    if not record and not subject and file is None:
        raise InputError("the command", f"name what to {verb}: --record ID, --subject ID or --file FILE")
    if record and subject and STDIN in record and STDIN in subject:
        raise InputError("the command", "--record - and --subject - both read stdin; give one of them in a file")
    record, subject = _with_stdin(record or []), _with_stdin(subject or [])
    if file is None:
        return record, subject
    from s3t.records.requests import read_requests

    records, subjects = read_requests(file)
    return [*record, *records], [*subject, *subjects]


def _with_stdin(names: list[str]) -> list[str]:
    """The names, with those of stdin, one a line, in the place of `-`."""
    if STDIN not in names:
        return names
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
