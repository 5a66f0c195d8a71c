"""A worker without a model: it does what its first argument names, in the folder of its second."""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from s3t import errors
from s3t.core import Stage, stages_of
from s3t.engine import run_stages
from s3t.engine.pool import serve
from s3t.events import StageStart, WorkNote, WorkStep

STAGES = stages_of([[(0, 1, 2), (1, 2, 0)], [(2, 1, 0), (2, 0, 1)]])


class PeculiarError(Exception):
    """One that cannot be made again from its message."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def number_in(folder):
    """Which of the workers this one is, from 0."""
    for number in range(100):
        with suppress(FileExistsError):
            (folder / f"{number}.pid").open("x").write(str(os.getpid()))
            return number
    raise AssertionError


def share(folder, progress, number):
    """Stages as files: whoever makes one has it."""

    def work(stage):
        if not all((folder / f"{parent}.done").exists() for parent in stage.parents):
            return None
        try:
            (folder / f"{stage}.claim").open("x").close()
        except FileExistsError:
            return None
        progress(StageStart(stage=stage, records=1, epochs=1))
        time.sleep(0.05)
        progress(WorkStep(count=stage.depth))
        (folder / f"{stage}.done").touch()
        return True

    return run_stages(lambda: [stage for stage in STAGES if not (folder / f"{stage}.done").exists()], work)


def forever(folder, progress, number):
    try:
        while True:
            progress(WorkStep(count=1))
            (folder / f"{number}.begun").touch()
            time.sleep(0.02)
    finally:
        (folder / f"{number}.tidy").touch()


def quiet(folder, progress, number, *deaf):
    """It says nothing, so it does not notice that nobody listens; deaf, it does not stop when it is told to."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / f"{number}.begun").touch()
    while True:
        time.sleep(1)


def first_alone(folder, progress, number):
    """The others go on for ever; the first waits until one is at work."""
    if number > 0:
        forever(folder, progress, number)
    while not (folder / "1.begun").exists():
        time.sleep(0.02)


def fail(folder, progress, number, kind):
    first_alone(folder, progress, number)
    if kind == "RecipeError":
        raise errors.RecipeError("recipe.yaml", ["rank is 0", "epochs is -1"])
    if kind == "Peculiar":
        raise PeculiarError(1, 2)
    raise getattr(errors, kind, ValueError)("it did not work; do something else")


def die(folder, progress, number, how):
    """The first ends without a word."""
    first_alone(folder, progress, number)
    progress(StageStart(stage=Stage(1, (0,)), records=1, epochs=1))
    os._exit(3) if how == "exit" else os.kill(os.getpid(), signal.SIGKILL)


def tell(folder, progress, number):
    print("on stdout")
    cores = sorted(os.sched_getaffinity(0))
    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    progress(WorkNote(what=repr((cores, os.environ.get("OWN"), blocked))))
    return 2 + number


def work(arguments, progress):
    what, place, *more = arguments
    folder = Path(place)
    return globals()[what](folder, progress, number_in(folder), *more)


if __name__ == "__main__":
    sys.modules["tests.engine.small_worker"] = sys.modules["__main__"]  # so that the parent knows what it sends
    serve(work)
