"""`s3t harness`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import s3t
from s3t.cli.display import print_table
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.disk import is_folder
from s3t.extras import how_to_install


def command(
    run: RunArgument,
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="NAME", help="A task of the harness; repeatable.")
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The eight tasks by which the paper judges Llama.")] = False,
    include: Annotated[
        Path | None, typer.Option("--include", metavar="FOLDER", help="Folder with tasks of your own, as YAML files.")
    ] = None,
    shots: Annotated[
        int | None, typer.Option("--shots", metavar="N", min=0, help="Examples before each question.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="The first N questions of each task alone.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Ask in the base model's chat template.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Judge a language model by the lm-evaluation-harness (extra `harness`). Its tasks are downloaded from the hub."""
    with failures_reported(as_json):
        tasks = [*(task or ()), *(_paper() if paper else ())]
        if not tasks:
            raise s3t.InputError("the command", "names no task; give --task NAME or --paper")
        measured = _measured(run, tasks, include=include, shots=shots, limit=limit, chat=chat)

        def render() -> None:
            print_table("harness", measured["results"])

        show(measured, as_json, render)


def _paper() -> tuple[str, ...]:
    _check_installed()
    from s3t.harness import PAPER

    return PAPER


def _check_installed() -> None:
    if importlib.util.find_spec("lm_eval") is None:
        problem = f"needs the lm-evaluation-harness; install it with: {how_to_install('harness')}"
        raise s3t.InputError("the command", problem)


def _measured(
    run: Path, tasks: list[str], *, include: Path | None, shots: int | None, limit: int | None, chat: bool
) -> dict[str, Any]:
    """The harness's measures by task, and the generation that answered."""
    _check_installed()
    from lm_eval.tasks import TaskManager

    from s3t.harness import S3TModel

    if include is not None and not is_folder(include):
        raise s3t.InputError("the command", f"--include {include} is no folder; name one that holds YAML files")
    manager = TaskManager(include_path=None if include is None else str(include), include_defaults=False)
    if any(not manager.match_tasks([name]) for name in tasks):  # to list the harness's own takes half a minute
        manager = TaskManager(include_path=None if include is None else str(include))
    unknown = [name for name in tasks if not manager.match_tasks([name])]
    if unknown:
        raise s3t.InputError("the command", [f"--task {name}: the harness has no such task" for name in unknown])
    with s3t.Run.open(run) as opened:
        generation, result = S3TModel(opened).evaluated(
            tasks=tasks,
            task_manager=manager,
            num_fewshot=shots,
            limit=limit,
            apply_chat_template=chat,
            bootstrap_iters=0,
        )
    return {"generation": generation, "results": [_row(name, found) for name, found in result["results"].items()]}


def _row(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a task; without standard errors, for which nothing was drawn."""
    numbers = {measure.removesuffix(",none"): value for measure, value in found.items() if isinstance(value, float)}
    return {"task": name, **{measure: value for measure, value in numbers.items() if "_stderr" not in measure}}
