"""A process that has the run open while another is stopped, and goes on in it, without an opening that would mend.

Its run stays where it is; or its folder is renamed, replaced by a copy, or linked elsewhere. Then it must refuse.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import s3t
from tests.faults.scenarios import Scenario
from tests.faults.verify import Check, Expected
from tests.faults.victim import SECONDS_AT_MOST, Notes
from tests.faults.world import enter

_LOOK_SECONDS = 0.01
TEXTS = ["w1 w2"]


@contextmanager
def companion(scenario: Scenario, *, watched: Path, stock: Expected, found: Notes) -> Iterator[None]:
    """Such a process, from before what is within until after it; it notes what is wrong.

    Args:
        scenario: says what happens to the folder.
        watched: the folder of the run.
        stock: what must hold.
        found: takes the problems.
    """
    run, place = watched / "run", watched.with_name("beside")
    place.mkdir()
    opened = {"moved": place / "before", "linked": place / "link"}.get(scenario.beside or "", run)
    if scenario.beside == "moved":
        run.rename(opened)
    elif scenario.beside == "linked":
        opened.symlink_to(run)
    elif scenario.beside == "replaced":
        shutil.copytree(run, place / "backup")
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(SECONDS_AT_MOST)
            enter(watched)
            _be_beside(scenario, opened, watched=watched, stock=stock, found=found, place=place)
        except BaseException:
            found.add("problem", f"the process beside: {traceback.format_exc()}")
        finally:
            os._exit(0)
    _wait_for(place / "ready", child)
    if scenario.beside == "moved":
        opened.rename(run)
    elif scenario.beside == "linked":
        opened.unlink()
        opened.symlink_to(place)
    elif scenario.beside == "replaced":
        run.rename(place / "aside")
        (place / "backup").rename(run)
    try:
        yield
    finally:
        (place / "go on").touch()
        os.waitpid(child, 0)


def _be_beside(scenario: Scenario, opened: Path, *, watched: Path, stock: Expected, found: Notes, place: Path) -> None:
    with s3t.Run.open(opened) as run:
        run.predict(TEXTS)
        (place / "ready").touch()
        while not (place / "go on").exists():
            time.sleep(_LOOK_SECONDS)
        if scenario.beside in ("moved", "replaced"):
            for act in (lambda: run.predict(TEXTS), run.erase):
                try:
                    act()
                except s3t.MovedError:
                    continue
                found.add("problem", "the process beside goes on with a folder that it did not open")
            if scenario.beside == "moved" and opened.exists():
                found.add("problem", f"the process beside made the old folder anew: {[*opened.rglob('*')]}")
            return
        run.erase()
        gone = frozenset[str]()
        if any(entry.records for entry in run.log()[1:]):
            gone = scenario.requests[0].gone
        check = Check(scenario, watched=watched, stock=stock, promised=set())
        for problem in (*check._forgotten(gone), *check._artifacts(gone)):
            found.add("problem", f"beside, without an opening: {problem}")
        if left := run.status().unfinished:
            found.add("problem", f"beside, without an opening: not erased: {left}")
        if any(held.state == "approved" for held in run.approvals.all()):
            found.add("problem", "beside, without an opening: approved, and not carried out")


def _wait_for(path: Path, child: int) -> None:
    end = time.monotonic() + SECONDS_AT_MOST
    while not path.exists():
        if os.waitpid(child, os.WNOHANG)[0] or time.monotonic() > end:
            raise RuntimeError("the process beside does not begin")
        time.sleep(_LOOK_SECONDS)
