"""`s3t destroy-key`."""

from __future__ import annotations

from typing import Annotated

import typer

import s3t
from s3t.cli.options import JsonOption, MovedOption, RunArgument
from s3t.cli.outcome import failures_reported, show

WARNING = (
    "destroying the run's secret cannot be undone: the run goes on answering, but no record can be deleted, located, "
    "trained on or audited any more. A later request can be honoured only by removing the whole run. If that is what "
    "you want, add --yes"
)
OUTLIVES = (
    "a salt that a recipe file of yours declares, or that lies in a vault or a backup, still opens the hashes: remove "
    "it there"
)


def command(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Destroy it. Without this option nothing is changed.")] = False,
    moved: MovedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Destroy the run's secret, so that hashes of deleted records in ledger and manifests can never be tested.

    The ledger keeps keyed hashes of the ids that were deleted. Without the secret nobody can test a guess against
    them. Pending erasures are carried out first. The run goes on answering; it cannot delete, locate, train, repair or
    audit any more. This cannot be undone.
    """
    with failures_reported(as_json):
        from s3t.store.secret import VARIABLE, secret_of_environment

        if not yes:
            raise s3t.InputError("the command", WARNING)
        with s3t.Run.open(run, moved=moved) as opened:
            opened.destroy_key()

        def render() -> None:
            typer.echo("the run's secret is destroyed; the run goes on answering, and does nothing else")
            typer.echo(OUTLIVES)
            if secret_of_environment() is not None:
                typer.echo(f"{VARIABLE} still holds a secret: if it is this run's, remove it wherever it is kept")

        show({"destroyed": True}, as_json, render)
