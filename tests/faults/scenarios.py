"""What is interrupted: short programs on the public API. Each may be run again after it was stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from fastapi.testclient import TestClient

import s3t
from s3t_server.app import create_app
from s3t_server.settings import Settings
from tests.faults.world import KEYED, MORE, ONE, SEVERAL, Request, next_table, recipe, table

Acknowledge = Callable[[str], None]
"""Called when something has returned: from here on it is promised."""
ERASED = "erased"
"""The promise that nothing of what was accepted is left."""
EXPORTS = "exports"
"""The folder of exports, beside the run."""
Beside: TypeAlias = Literal["open", "moved", "replaced", "linked"]
SYNCED = "synced"
"""The promise that the run follows the next table."""
DESTROYED = "destroyed"
"""The promise that the run's secret is nowhere."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a scenario's function is given."""

    run: Path
    model: Path
    acknowledge: Acknowledge
    ledger: str | None = None
    """The URL of a database for the ledger of a new run."""


def delete(program: Program, run: s3t.Run, request: Request) -> None:
    request.ask(run)
    program.acknowledge(request.name)


def opened(act: Callable[[Program, s3t.Run], object]) -> Callable[[Program], None]:
    """What is done to the run, once it is opened."""

    def act_on(program: Program) -> None:
        with s3t.Run.open(program.run) as run:
            act(program, run)

    return act_on


def init(program: Program) -> None:
    if not program.run.exists():
        s3t.Run.create(program.run, recipe=recipe(program.model, ledger=program.ledger), data=table()).close()


opening = opened(lambda _program, _run: None)
train = opened(lambda _program, run: run.train())


@opened
def extend(_program: Program, run: s3t.Run) -> None:
    if run.recipe.sequences.budget < MORE:
        run.extend(budget=MORE)
    else:
        run.train()


def deletes(*requests: Request) -> Callable[[Program], None]:
    return opened(lambda program, run: [delete(program, run, request) for request in requests])


@opened
def delete_and_repair(program: Program, run: s3t.Run) -> None:
    delete(program, run, ONE)
    run.repair()


@opened
def sync(program: Program, run: s3t.Run) -> None:
    run.sync(next_table(), max_deletions=1)
    program.acknowledge(SYNCED)


@opened
def delete_and_erase(program: Program, run: s3t.Run) -> None:
    delete(program, run, ONE)
    run.erase()
    program.acknowledge(ERASED)


@opened
def approve(program: Program, run: s3t.Run) -> None:
    (held,) = run.approvals.all()
    run.approvals.approve(held.id, by="operator")
    program.acknowledge(ONE.name)


def delete_at_a_server(program: Program) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what a failed fsync sends; uvicorn would end in order
    settings = Settings(runs=(program.run,), repair=False, hold_share=None, open_scopes=("delete",))
    with TestClient(create_app(settings)) as client:
        answer = client.post("/v1/deletions", json={"records": ONE.records})
    if not answer.is_success:
        raise s3t.StorageError(answer.text)
    program.acknowledge(ONE.name)


@opened
def export_and_delete(program: Program, run: s3t.Run) -> None:
    run.export(program.run.with_name(EXPORTS))
    delete(program, run, ONE)
    for each in run.status().to_withdraw:
        run.withdraw(each.name)
    program.acknowledge(ERASED)


def clone(program: Program) -> None:
    """Beside the watched folder's run: a clone is another run, which keeps what it holds."""
    if not (place := program.run.with_name("clone")).exists():
        s3t.Run.clone(program.run, place).close()


def reconcile(program: Program) -> None:
    s3t.Run.reconcile(program.run)
    program.acknowledge(ERASED)


@opened
def destroy_key(program: Program, run: s3t.Run) -> None:
    run.destroy_key()
    program.acknowledge(DESTROYED)


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
    waits: bool = False
    """Whether a record may wait in its slice until it is erased on request."""
    restored: bool = False
    """Whether the run is an older state of itself: until it is reconciled, it may refuse to be opened."""
    destroys: bool = False
    """Whether the run's secret may be gone afterwards."""
    postgres: bool = False
    """Whether the ledger is in PostgreSQL."""
    beside: Beside | None = None
    """A process that has the run open from before, and goes on in it: the run stays where it is; it is renamed, another
    folder is put in its place, or the link by which it was opened is switched, before the program begins."""
    follows: bool = False
    """Whether the program makes the run follow another table, whole or not at all."""
    clones: bool = False
    """Whether the program makes a clone, to be removed before the run is looked at."""


_ON_SQLITE = (
    Scenario(name="init", start=None, act=init),
    Scenario(name="train", start="half", act=train),
    Scenario(name="delete-one", start="trained", act=deletes(ONE), requests=(ONE,)),
    Scenario(name="delete-several", start="trained", act=deletes(SEVERAL), requests=(SEVERAL,)),
    Scenario(name="delete-two", start="trained", act=deletes(ONE, SEVERAL), requests=(ONE, SEVERAL)),
    Scenario(name="delete-keyed", start="trained", act=deletes(KEYED), requests=(KEYED,)),
    Scenario(name="delete-on-unfinished", start="unfinished", act=deletes(SEVERAL), before=(ONE,), requests=(SEVERAL,)),
    Scenario(name="open-unfinished", start="unfinished", act=opening, before=(ONE,)),
    Scenario(name="repair", start="deleted", act=train, before=(ONE,)),
    Scenario(name="delete-and-repair", start="trained", act=delete_and_repair, requests=(ONE,)),
    Scenario(name="extend", start="trained", act=extend, extends=True),
    Scenario(name="sync", start="trained", act=sync, follows=True),
    Scenario(name="erase", start="waiting", act=delete_and_erase, before=(ONE,), waits=True),
    Scenario(name="delete-and-erase", start="patient", act=delete_and_erase, requests=(ONE,), waits=True),
    Scenario(name="export-and-delete", start="trained", act=export_and_delete, requests=(ONE,)),
    Scenario(name="reconcile", start="restored", act=reconcile, before=(ONE,), restored=True),
    Scenario(name="reconcile-slices", start="restored_slices", act=reconcile, before=(ONE,), restored=True),
    Scenario(name="clone", start="trained", act=clone, requests=(ONE,), clones=True),
    Scenario(name="approve", start="held", act=approve, requests=(ONE,)),
    Scenario(name="approve-open", start="held", act=approve, requests=(ONE,), beside="open"),
    Scenario(name="serve", start="trained", act=delete_at_a_server, requests=(ONE,)),
    *(
        Scenario(name=f"delete-{beside}", start="trained", act=deletes(ONE), requests=(ONE,), beside=beside)
        for beside in get_args(Beside)
    ),
    Scenario(name="destroy-key", start="waiting", act=destroy_key, before=(ONE,), waits=True, destroys=True),
)
SCENARIOS = {scenario.name: scenario for scenario in _ON_SQLITE}
SCENARIOS |= {
    f"pg-{name}": replace(SCENARIOS[name], name=f"pg-{name}", start=start and f"pg_{start}", postgres=True)
    for name in (
        *("init", "train", "delete-one", "delete-several", "clone"),
        *("delete-moved", "approve", "sync", "repair"),
    )
    for start in [SCENARIOS[name].start]
}
