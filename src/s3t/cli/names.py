"""Records and subjects that a command is told, one by one or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FileOption = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="A .csv, .jsonl or .parquet with a column `record` or `subject`."),
]


def names_in(
    record: list[str] | None, subject: list[str] | None, file: Path | None, *, verb: str
) -> tuple[list[str], list[str]]:
    """Record ids and subjects, from options and from a file.

    Args:
        record: of --record.
        subject: of --subject.
        file: of --file.
        verb: what is to be done with them, for the message.

    Raises:
        InputError: nothing is named, or the file cannot be read.
    """
    from s3t.errors import InputError
    from s3t.records import read_requests

    if not record and not subject and file is None:
        raise InputError("the command", [f"name what to {verb}: --record ID, --subject ID or --file FILE"])
    listed = ((), ()) if file is None else read_requests(file)
    return [*(record or ()), *listed[0]], [*(subject or ()), *listed[1]]
