"""The processor cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""A container's share of the cores (control groups, version 2): microseconds of time, and the period."""


def usable_cores() -> tuple[int, ...]:
    """Numbers of the cores that the system lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cores_worth() -> int:
    """Cores whose time this process may take, at least 1: a container may be given less than it sees."""
    try:
        quota, period = CGROUP_LIMIT.read_text().split()
        return max(1, min(len(usable_cores()), int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or it says max
        return len(usable_cores())
