"""Make, list and revoke the bearer tokens of those who call the servers of a run (s3t serve)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import s3t
from s3t.cli.display import moment, print_table
from s3t.cli.options import RunArgument
from s3t.cli.output import Output

if TYPE_CHECKING:
    from s3t.results.serving import Token

NameArgument = Annotated[str, Argument(metavar="NAME", help="The token's holder.", show_default=False)]


def create(
    run: RunArgument,
    name: NameArgument,
    scope: Annotated[
        list[str] | None,
        Option(
            metavar="SCOPE",
            help="A right of the holder; repeatable. predict: answers. delete: deletions, and their states. operate: "
            "status, forecast, metrics, repairs; with delete, dry runs. audit: the log of deletions.",
        ),
    ] = None,
    days: Annotated[
        float | None, Option(metavar="N", help="Days after which it expires; without, it does not.")
    ] = None,
    per_minute: Annotated[
        int | None, Option(metavar="N", help="Requests in a minute, at each server process; without, any.")
    ] = None,
) -> Iterator[Output]:
    """Make a token and print it. It cannot be shown again: the run keeps its hash alone.

    A program sends it as `Authorization: Bearer TOKEN`. Replicas that share the run's ledger know it at once.
    """
    from s3t_server.tokens import Access

    with s3t.Run.open(run) as opened:
        made, secret = Access(opened).create(name, scopes=scope or (), days=days, per_minute=per_minute)
    yield Output({"token": secret, **made.to_json()})
    typer.echo(secret)
    typer.echo(f"{_in_words(made)}; keep it now, it is not shown again", err=True)


def list_(run: RunArgument) -> Iterator[Output]:
    """List tokens with their scopes and times, and not the tokens themselves."""
    from s3t_server.tokens import Access

    with s3t.Run.open(run) as opened:
        tokens = Access(opened).all()
    yield Output({"tokens": tokens})
    if not tokens:
        typer.echo("there are no tokens; s3t token create RUN NAME --scope predict makes one")
    print_table(
        "tokens",
        [
            {
                "name": token.name,
                "scopes": " ".join(token.scopes),
                "a minute": token.per_minute or "any number",
                "created (UTC)": moment(token.created_at),
                "expires": "never" if token.expires_at is None else moment(token.expires_at),
                "revoked": "" if token.revoked_at is None else moment(token.revoked_at),
            }
            for token in tokens
        ],
    )


def revoke(run: RunArgument, name: NameArgument) -> Iterator[Output]:
    """Accept a token no more, from the next request on, at every replica."""
    from s3t_server.tokens import Access

    with s3t.Run.open(run) as opened:
        revoked = Access(opened).revoke(name)
    yield Output(revoked)
    typer.echo(_in_words(revoked))


COMMANDS = {"create": create, "list": list_, "revoke": revoke}


def _in_words(token: Token) -> str:
    end = "does not expire" if token.expires_at is None else f"expires {moment(token.expires_at)} UTC"
    if token.revoked_at is not None:
        end = f"was revoked {moment(token.revoked_at)} UTC"
    return f"token of {token.name}, for {', '.join(token.scopes)}: {end}"
