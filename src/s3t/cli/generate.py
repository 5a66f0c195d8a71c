"""`s3t generate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import s3t
from s3t.cli.display import print_table
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.progress import ProgressBar
from s3t.wording import counted


def command(
    run: RunArgument,
    data: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Prompts, with the recipe's columns: .csv, .jsonl or .parquet."),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option("--prompt", metavar="TEXT", help="A prompt; repeatable, instead of FILE. For a chat, a question."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(metavar="N", help="Tokens of a text at most.")] = 128,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="0: the likeliest token each time; above: draws, the wilder the larger.")
    ] = 0.0,
    top_p: Annotated[
        float, typer.Option(metavar="P", help="Draw among the likeliest tokens with this probability together.")
    ] = 1.0,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", metavar="TEXT", help="End a text where it has this; repeatable.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of the draws. Without it, another one each time.")
    ] = None,
    n: Annotated[int, typer.Option("--n", metavar="N", help="Texts after each prompt.")] = 1,
    stream: Annotated[bool, typer.Option("--stream", help="Print one prompt's text as it is written.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write texts after prompts, by the mean of all shards' next-token probabilities.

    Prompts are filled into the recipe's template, if it has one, and chats into the base model's.
    """
    with failures_reported(as_json):
        _check(data, prompt, n, stream=stream, as_json=as_json)
        settings: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "stop": stop or (),
            "seed": seed,
        }
        with s3t.Run.open(run) as opened:
            asked: Any = data
            if prompt:
                chat = opened.recipe.columns.messages is not None
                asked = [[{"role": "user", "content": text}] if chat else text for text in prompt]
            if stream:
                for part in opened.stream(asked[0], **settings):
                    sys.stdout.write(part)
                    sys.stdout.flush()
                sys.stdout.write("\n")
                return
            result = opened.generate(asked, n=n, progress=ProgressBar(), **settings)

        def render() -> None:
            print_table("texts", result.rows())
            typer.echo(f"{counted(len(result), 'text')} (generation {result.generation})")

        show(result.to_json(), as_json, render)


def _check(data: Path | None, prompt: list[str] | None, n: int, *, stream: bool, as_json: bool) -> None:
    """Check that the options are compatible; all problems at once."""
    problems = []
    if (data is None) == (not prompt):
        problems.append("give the prompts as --input FILE or as --prompt TEXT, one of them")
    if stream and (data is not None or len(prompt or ()) > 1 or n > 1):
        problems.append("--stream is of one text after one --prompt; leave it out, or ask for one")
    if stream and as_json:
        problems.append("--stream prints text; leave out --json")
    if problems:
        raise s3t.InputError("the command", problems)
