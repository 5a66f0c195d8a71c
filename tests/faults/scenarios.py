"""What is interrupted: short programs on the public API. Each may be run again after it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import s3t
from tests.faults.world import MORE, ONE, SEVERAL, Request, recipe, table

Acknowledge = Callable[[Request], None]
"""Called when `delete` has returned: from here on the request is promised."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a scenario's function is given."""

    run: Path
    model: Path
    acknowledge: Acknowledge


def delete(program: Program, run: s3t.Run, request: Request) -> None:
    run.delete(records=request.records, subjects=request.subjects)
    program.acknowledge(request)


def init(program: Program) -> None:
    if not program.run.exists():
        s3t.Run.create(program.run, recipe=recipe(program.model), data=table()).close()


def opening(program: Program) -> None:
    s3t.Run.open(program.run).close()


def train(program: Program) -> None:
    with s3t.Run.open(program.run) as run:
        run.train()


def extend(program: Program) -> None:
    with s3t.Run.open(program.run) as run:
        if run.recipe.sequences.budget < MORE:
            run.extend(budget=MORE)
        else:
            run.train()


def deletes(*requests: Request) -> Callable[[Program], None]:
    def act(program: Program) -> None:
        with s3t.Run.open(program.run) as run:
            for request in requests:
                delete(program, run, request)

    return act


def delete_and_repair(program: Program) -> None:
    with s3t.Run.open(program.run) as run:
        delete(program, run, ONE)
        run.repair()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A program, and what it is run on."""

    name: str
    start: str | None
    """The prepared run (stock.py); None: there is no run yet."""
    act: Callable[[Program], None]
    before: tuple[Request, ...] = ()
    """Promised before it begins."""
    requests: tuple[Request, ...] = ()
    """That it makes, in this order."""
    extends: bool = False
    """Whether it adds orders."""
    settings: dict[str, str] = field(default_factory=dict)
    """Of the environment, in the process that is interrupted and in the one that looks: a ledger's URL, say."""
    port: int = 0
    """Of the PostgreSQL server to which connections may be lost."""


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="init", start=None, act=init),
        Scenario(name="train", start="half", act=train),
        Scenario(name="delete-one", start="trained", act=deletes(ONE), requests=(ONE,)),
        Scenario(name="delete-several", start="trained", act=deletes(SEVERAL), requests=(SEVERAL,)),
        Scenario(name="delete-two", start="trained", act=deletes(ONE, SEVERAL), requests=(ONE, SEVERAL)),
        Scenario(
            name="delete-on-unfinished", start="unfinished", act=deletes(SEVERAL), before=(ONE,), requests=(SEVERAL,)
        ),
        Scenario(name="open-unfinished", start="unfinished", act=opening, before=(ONE,)),
        Scenario(name="repair", start="deleted", act=train, before=(ONE,)),
        Scenario(name="delete-and-repair", start="trained", act=delete_and_repair, requests=(ONE,)),
        Scenario(name="extend", start="trained", act=extend, extends=True),
    )
}
