"""The local engine: asks what is missing, works through it, and asks again until nothing is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from s3t.stages import Stage


@dataclass(frozen=True, kw_only=True)
class EngineReport:
    """What was done."""

    trained: tuple[Stage, ...]
    discarded: int
    """Stages thrown away because one of their slices lost a record while they were trained."""


def run_stages(missing: Callable[[], Sequence[Stage]], work: Callable[[Stage], bool | None]) -> EngineReport:
    """Do `work` on every missing stage, parents first.

    Args:
        missing: the stages that are missing now, parents before children.
        work: trains and commits one stage; False if a deletion came between, and the list has to be
            asked for again; None if there was nothing left to do.
    """
    trained: list[Stage] = []
    discarded = 0
    while stages := missing():
        for stage in stages:
            done = work(stage)
            if done is False:
                discarded += 1
                break
            if done:
                trained.append(stage)
    return EngineReport(trained=tuple(trained), discarded=discarded)
