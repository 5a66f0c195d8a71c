"""`--url`: a command asks a server for a run instead of opening its folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s3t.errors import InputError

if TYPE_CHECKING:
    from s3t.client import Client

TOKEN = "S3T_TOKEN"  # noqa: S105
"""Environment variable with the token: arguments are seen by all users of a machine."""

RunOrServerArgument = Annotated[
    Path | None, typer.Argument(metavar="RUN", help="The run's folder; without it, --url.", show_default=False)
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=f"Ask a server (s3t serve) instead of opening RUN, with the token in ${TOKEN}; with /runs/NAME after it, "
        "for one of its several runs.",
    ),
]


def server(run: Path | None, url: str | None, *, local: Sequence[str] = ()) -> Client | None:
    """A client of the server; None if the run's folder is given.

    Args:
        local: options that were given and do not go with a server.
    """
    if (run is None) == (url is None):
        raise InputError("the command", "give the run's folder or a server's --url, one of them")
    if url is None:
        return None
    if local:
        raise InputError("the command", [f"{option} is of a run's folder; leave it out" for option in local])
    from s3t.client import Client

    return Client(url, os.environ.get(TOKEN) or None)


def folder(run: Path | None) -> Path:
    """The folder of a command that was given no server."""
    if run is None:
        raise InputError("the command", "give the run's folder")
    return run
