"""The processor cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

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
