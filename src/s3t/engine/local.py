"""The local engine: asks what is missing, works through it, and asks again until nothing is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from s3t.stages import Stage


@dataclass(frozen=True, kw_only=True)
class EngineReport:
    """Stages trained and discarded."""

    trained: tuple[Stage, ...]
    discarded: int
    """Stages discarded because one of their slices lost a record during their training."""


POLL_SECONDS = 0.1


def run_stages(
    missing: Callable[[], Sequence[Stage]], work: Callable[[Stage], bool | None], *, until: float = math.inf
) -> EngineReport:
    """Do `work` on every missing stage, parents first, until none is missing or the time is over.

    Several engines may work on one run: each takes what no other has taken, and at the end waits for the others.

    Args:
        work: trains and commits one stage. False: a deletion intervened, so the list must be read again. None: nothing
            was done, since another engine has stored the stage, or trains it or its parent.
        until: time, in seconds since the epoch, after which no stage is begun.
    """
    trained: list[Stage] = []
    discarded = 0
    while stages := missing():
        idle = True
        for stage in stages:
            if time.time() >= until:
                return EngineReport(trained=tuple(trained), discarded=discarded)
            done = work(stage)
            idle = idle and done is None
            if done is False:
                discarded += 1
                break
            if done:
                trained.append(stage)
        if idle:
            time.sleep(POLL_SECONDS)
    return EngineReport(trained=tuple(trained), discarded=discarded)
