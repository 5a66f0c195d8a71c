"""The local engine: asks what is missing, works through it, and asks again until nothing is."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from s3t.core import Stage

POLL_SECONDS = 0.1


def run_stages(
    missing: Callable[[], Sequence[Stage]], work: Callable[[Stage], bool | None], *, until: float = math.inf
) -> int:
    """Do `work` on every missing stage, parents first, until none is missing or the time is over.

    Several engines may work on one run: each takes what no other has taken, and at the end waits for the others.

    Args:
        work: trains and commits one stage. False: a deletion intervened, so the list must be read again. None: nothing
            was done, since another engine has stored the stage, or trains it or its parent, or the list is outdated.
        until: time, in seconds since the epoch, after which no stage is begun.

    Returns the number of stages that were thrown away, since one of their slices lost a record meanwhile.
    """
    discarded = 0
    while stages := missing():
        idle = True
        for stage in stages:
            if time.time() >= until:
                return discarded
            done = work(stage)
            idle = idle and done is None
            if done is False:
                discarded += 1
                break
        if idle:
            time.sleep(POLL_SECONDS)
    return discarded


CONTROL_GROUPS = Path("/sys/fs/cgroup")
"""Folder of Linux's control groups."""
GROUPS_OF_PROCESS = Path("/proc/self/cgroup")
"""File with a line for each hierarchy of control groups, NUMBER:CONTROLLERS:PATH; no controllers: version 2."""


def usable_cores() -> tuple[int, ...]:
    """Numbers of the cores that the system lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cores_worth() -> int:
    """Cores whose time this process may take, at least 1: a container may be given less than it sees."""
    return max(1, min([len(usable_cores()), *_quotas()]))


def _quotas() -> Iterator[int]:
    """Whole cores that each control group of this process may use, where it is limited."""
    with suppress(OSError):  # no Linux
        for line in GROUPS_OF_PROCESS.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers:
                hierarchy, files = CONTROL_GROUPS, ["cpu.max"]
            elif "cpu" in controllers.split(","):
                hierarchy, files = CONTROL_GROUPS / "cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
            else:
                continue
            # A container may show its own group as the root, and here its name outside: what is not there is passed by.
            for path in (PurePosixPath(group), *PurePosixPath(group).parents):
                folder = hierarchy / path.relative_to("/")
                # A group without a limit says max or -1, the root has no file.
                with suppress(OSError, ValueError):
                    quota, period = " ".join((folder / name).read_text() for name in files).split()
                    if int(quota) > 0:
                        yield int(quota) // int(period)
