"""`s3t serve`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import s3t
from s3t.cli.output import Output
from s3t.errors import InputError
from s3t.extras import how_to_install
from s3t.wording import problem_lines

if TYPE_CHECKING:
    from s3t_server.settings import Settings


def serve(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders.", show_default=False)],
    host: Annotated[
        str, Option(metavar="ADDRESS", help="Address to listen at; by default this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(metavar="N", help="Port to listen at; 0: any free one.")] = 8080,
    workers: Annotated[int, Option(metavar="N", help="Processes that answer, each with the models in memory.")] = 1,
    open_scope: Annotated[
        list[str] | None,
        Option(
            "--open",
            metavar="SCOPE",
            help="Needs no token: predict, operate, audit or delete; repeatable. Without, everything needs one.",
        ),
    ] = None,
    repair: Annotated[bool, Option(help="Begin repairs by the run's policy (deletion.repair).")] = True,
    repair_hours_a_day: Annotated[
        float | None, Option(metavar="H", help="Hours of repairs in 24, at most; without, any.")
    ] = None,
    hold_records: Annotated[
        int,
        Option(
            metavar="N",
            help="Records that a token may delete within an hour; a request for more is held until an operator "
            "approves it (s3t deletions). 0: each is held.",
        ),
    ] = 1_000,
    hold_share: Annotated[
        float, Option(metavar="F", help="Share of a shard that may be deleted within an hour, 0 to 1.")
    ] = 0.25,
    no_hold: Annotated[bool, Option("--no-hold", help="Hold no request.")] = False,
    exact: Annotated[
        bool, Option("--exact", help="Answer each request alone, so that its last bits do not depend on others.")
    ] = False,
    wait_ms: Annotated[float, Option(metavar="MS", help="Longest wait for requests to be answered together.")] = 2.0,
    engine: Annotated[
        str | None, Option(metavar="URL", help="An engine with LoRA adapters (vLLM) that computes the answers.")
    ] = None,
    engine_adapters: Annotated[
        Path | None, Option(metavar="DIR", help="Folder for adapters, at the same path for the engine.")
    ] = None,
) -> Iterator[Output]:
    """Answer over HTTP, and delete people while it answers; no answer uses a deleted record.

    Every route but health needs a token of the run, made with s3t token create. /v1/openapi.json describes them, and /
    is a page to operate the run from.
    Repairs run in processes of their own; repaired stages answer from the next request on. Stop it with Ctrl-C.
    """
    settings = _settings(
        runs=tuple(runs),
        host=host,
        port=port,
        workers=workers,
        open_scopes=tuple(open_scope or ()),
        repair=repair,
        repair_hours_a_day=repair_hours_a_day,
        hold_records=None if no_hold else hold_records,
        hold_share=None if no_hold else hold_share,
        exact=exact,
        wait=wait_ms / 1000,
        engine=engine,
        engine_adapters=engine_adapters,
    )
    from s3t_server.server import serve as answer
    from s3t_server.tokens import Access

    for run in runs:
        with s3t.Run.open(run) as opened:
            if not Access(opened).all() and not open_scope:
                typer.echo(f"{run} has no token yet: s3t token create {run} NAME --scope predict", err=True)
    answer(settings)
    yield Output({"stopped": True})
    typer.echo("stopped")


def _settings(**values: object) -> Settings:
    import importlib.util

    from pydantic import ValidationError

    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError("the command", f"serve needs {', '.join(missing)}; install with: {how_to_install('serve')}")
    from s3t_server.settings import Settings

    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        fields = ((".".join(map(str, each["loc"])) or "options", each["msg"]) for each in error.errors())
        raise InputError("the command", [line for each in fields for line in problem_lines(*each)]) from None
