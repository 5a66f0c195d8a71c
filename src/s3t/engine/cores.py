"""The processor cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

OWN_GROUPS, ALL_GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def usable_cores() -> tuple[int, ...]:
    """Their numbers, where the system gives a process cores; else of all cores there are."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cores_worth(*, own: Path = OWN_GROUPS, groups: Path = ALL_GROUPS) -> int:
    """How many cores' time this process may take, at least 1: a container may be given less than it sees.

    Args:
        own: names the process's control group (version 2; limits of version 1 are not looked at).
        groups: the folder of all control groups.
    """
    return max(1, min([len(usable_cores()), *_limits(own, groups)]))


def _limits(own: Path, groups: Path) -> list[int]:
    """Whole cores that the process's control group, and each above it, may take."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    found = []
    for name in [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]:
        folder = groups / name
        for group in [folder, *folder.parents]:
            if group.is_relative_to(groups):
                found += _limit(group / "cpu.max")
    return found


def _limit(path: Path) -> list[int]:
    try:
        quota, period = path.read_text().split()
        return [int(quota) // int(period)]
    except (OSError, ValueError):  # none is declared: there is no such file, or it says max
        return []
