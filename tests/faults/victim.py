"""What the interrupted process does, and what it notes outside the watched folder before it dies."""

from __future__ import annotations

import json
import os
import traceback
from pathlib import Path
from typing import Any
from unittest import mock

import s3t
from s3t.ledger import presence
from testing.postgres import PORT
from tests.faults.plants import planted
from tests.faults.scenarios import SCENARIOS, Program, Scenario
from tests.faults.shim import Shim
from tests.faults.trial import Trial
from tests.faults.world import recipe, table

SECONDS_AT_MOST = 120
"""For one process of a trial."""


class Notes:
    """A file that a killed process leaves: one JSON document a line, each written by one call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, what: str, detail: str = "") -> None:
        line = json.dumps([what, detail]) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    def read(self) -> list[tuple[str, str]]:
        if not self.path.exists():
            return []
        return [(what, detail) for what, detail in map(json.loads, self.path.read_text().splitlines())]

    def details(self, what: str) -> list[str]:
        return [detail for found, detail in self.read() if found == what]


def be_victim(
    trial: Trial, *, watched: Path, model: Path, ledger: str | None, notes: Notes, log: Path, shim: Shim
) -> None:
    """Run the scenario and let the fault happen. Returns if the process lives on."""
    scenario = SCENARIOS[trial.scenario]
    acknowledge = lambda promise: notes.add("acknowledged", promise)  # noqa: E731
    program = Program(run=watched / "run", model=model, acknowledge=acknowledge, ledger=ledger)
    # The thread that looks at the ledger would count points by the clock; a trial could not be repeated.
    with planted(trial.plant), mock.patch.object(presence, "POLL_SECONDS", SECONDS_AT_MOST):
        shim.arm(
            [watched],
            log=log,
            point=trial.point,
            kind=trial.shim_kind,
            seed=trial.seed,
            last=trial.last,
            port=PORT if scenario.postgres else 0,
        )
        refused = _attempt(scenario.act, program, notes)
        if trial.kind == "fsync-power":
            return  # the power is lost now: what else the process did would only mend what it shall not have to
        shim.disarm()
        if trial.kind == "fsync" and refused:
            _refuses_everything(program, notes)
        elif trial.kind in ("short", "full", "eio", "connection") and refused:
            if not scenario.restored and not scenario.destroys and program.run.exists():
                _told_the_truth(scenario, program, notes)
            if _attempt(scenario.act, program, notes):
                notes.add("broke", "all is well again, but the same process still refuses")


def _attempt(act: Any, program: Program, notes: Notes) -> bool:
    """Run a scenario; whether it was refused with an error of s3t's own."""
    try:
        act(program)
    except s3t.S3TError as error:
        notes.add("refused", f"{type(error).__name__}: {error}")
        return True
    except BaseException:
        notes.add("broke", f"not an error of s3t:\n{traceback.format_exc()}")
        return False
    notes.add("finished")
    return False


def _told_the_truth(scenario: Scenario, program: Program, notes: Notes) -> None:
    """A refusal that does not say that records are out of use says that nothing has changed."""
    (told,) = notes.details("refused")
    if any(said in told for said in ("out of use", "is unknown whether", "is approved already")):
        return
    promised = notes.details("acknowledged")
    known = [request for request in scenario.requests if request.name in promised]
    with s3t.Run.open(program.run) as run:
        accepted = sum(entry.records for entry in run.log())
    if accepted != sum(len(request.gone) for request in (*scenario.before, *known)):
        notes.add("broke", f"{accepted} records are accepted; promised was {promised}, and then was told: {told}")


def _refuses_everything(program: Program, notes: Notes) -> None:
    """After a failed fsync nobody knows what is on the disk: this process must touch no run any more."""
    run = program.run
    elsewhere = run.parent.with_name("elsewhere")  # where nobody checks what it left

    def on_run(name: str, **arguments: Any) -> Any:
        def call() -> None:
            with s3t.Run.open(run) as opened:
                getattr(opened, name)(**arguments)

        return call

    calls = {"create": lambda: s3t.Run.create(elsewhere, recipe=recipe(program.model), data=table()).close()}
    if run.exists():
        calls |= {
            "open": lambda: s3t.Run.open(run).close(),
            "train": on_run("train"),
            "delete": on_run("delete", records=["id00w"]),
        }
    for name, call in calls.items():
        try:
            call()
        except s3t.errors.FsyncError:
            continue
        except Exception as error:
            notes.add("broke", f"after a failed fsync {name} raised {type(error).__name__}: {error}")
        else:
            notes.add("broke", f"after a failed fsync {name} went on")
