"""Processes that share a folder or a database: their machines, and whether they still run."""

from __future__ import annotations

import platform
import re
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_FORGOTTEN_SECONDS = 86_400.0
"""Time without a sign after which another machine's process counts as gone, in seconds."""
_CLOCK_SECONDS = 30.0
"""Tolerated change of a clock, or difference of two machines' clocks: beyond, a process counts as another."""


@cache
def this_machine() -> str:
    """Name of this machine, HOST_BOOT_NAMESPACE: processes with the same name see each other by process number.

    A host's name is not enough: containers may share one and number their processes apart, and so does a machine that
    was started anew.
    """
    boot, namespace = "", ""
    with suppress(OSError):  # no Linux: a name and a number are all there is
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:12]
        namespace = "".join(re.findall(r"\d", str(Path("/proc/self/ns/pid").readlink())))
    host = re.sub(r"[^\w.]", "_", platform.node()) or "host"
    return f"{host}_{boot}_{namespace}"


def boot_clock() -> float:
    """Seconds on a clock that goes on while a process is stopped or the machine sleeps (on Linux)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def may_be_at_work(name: str, *, seen_at: float) -> bool:
    """True if the process that drew a temporary name, MACHINE-PROCESS-NUMBER, may still be running."""
    machine, _, rest = name.partition("-")
    process = rest.partition("-")[0]
    if machine == this_machine() and process.isdecimal():
        return is_running(int(process), seen_at=seen_at)
    here, there = this_machine().rsplit("_", 2), machine.rsplit("_", 2)
    if len(there) == 3 and there[0] == here[0] and there[1] != here[1]:  # this machine, before its last start
        return False
    return seen_at > time.time() - _FORGOTTEN_SECONDS


def is_running(process: int, *, seen_at: float | None = None) -> bool:
    """True if a process of this machine runs, and did not start after `seen_at` (seconds since the epoch)."""
    import psutil

    try:
        running = psutil.Process(process)
        if running.status() == psutil.STATUS_ZOMBIE:
            return False
        return seen_at is None or running.create_time() <= seen_at + _CLOCK_SECONDS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
