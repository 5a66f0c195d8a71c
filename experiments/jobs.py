"""Points of an experiment measured, one after another in this process, or several at once in processes of their own."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from rich.console import Console

from experiments.noted import taken

Row = dict[str, Any]
"""A point and what was found there: names and numbers."""


def measured(name: str, config: Any, points: Sequence[Row], *, jobs: int = 1) -> Iterator[tuple[Row, Row, float]]:
    """Each point, what is found there, and the seconds that took; in the order in which they come.

    Args:
        name: of the experiment.
        config: its settings.
        points: where to look.
        jobs: processes. Several that need one kept system train it together, as any processes share a run.
    """
    if jobs == 1:
        for point in points:
            yield point, *_timed(name, config, point)
        return
    # Spawned, not forked: torch does not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent) as pool:
        begun = {pool.submit(_timed, name, config, point): point for point in points}
        try:
            for future in as_completed(begun):
                yield begun[future], *future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def told(name: str, points: Sequence[Row], found: Iterator[tuple[Row, Row, float]]) -> Iterator[tuple[Row, Row, float]]:
    """The same, with a line for each that is found."""
    console = Console(stderr=True)
    for number, (point, row, seconds) in enumerate(found, start=1):
        console.print(
            f"{name}, {number} of {len(points)} in {seconds:.0f} s: {json.dumps(point)}",
            highlight=False,
            soft_wrap=True,
        )
        yield point, row, seconds


def _timed(name: str, config: Any, point: Row) -> tuple[Row, float]:
    taken()  # what an interrupted point has left
    started = time.perf_counter()
    found = importlib.import_module(f"experiments.{name}.experiment").measure(config, point)
    seconds, recipes = time.perf_counter() - started, taken()
    return found | ({"recipes": recipes} if recipes else {}), seconds


def _end_with_parent() -> None:
    """In a process of several: no bar of its own, which would overwrite the others'; and it ends when its parent does,
    however that ended, without a word."""
    os.environ["TERM"] = "dumb"
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what it says is the parent's to say
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()
