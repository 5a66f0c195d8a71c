"""Who is who among processes that share a folder or a database: on which machine, and still running or not."""

from __future__ import annotations

import hashlib
import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

_CLOCK_SECONDS = 30.0
"""How far a clock may have been set, or clocks of two machines differ, before a process is taken for another."""


@cache
def this_machine() -> str:
    """Processes that say the same can see each other by number.

    A host's name is not enough: containers may share one and number their processes apart, and so does a machine that
    was started anew.
    """
    apart = ""
    with suppress(OSError):  # no Linux: a name and a number are all there is
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        apart = hashlib.sha256(f"{boot} {Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:12]
    host = re.sub(r"[^\w.]", "_", platform.node()) or "host"
    return f"{host}_{apart}" if apart else host


def is_running(process: int, *, seen_at: float | None = None) -> bool:
    """Whether a process of this machine still runs.

    Args:
        process: its number.
        seen_at: when it was seen, in seconds since the epoch: one that began later has only the same number.
    """
    try:
        found = psutil.Process(process)
        if found.status() == psutil.STATUS_ZOMBIE:
            return False
        return seen_at is None or found.create_time() <= seen_at + _CLOCK_SECONDS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
