"""Core dumps: where the system writes the memory of a process that crashed, and with it the records of its run.

The kernel says where in `/proc/sys/kernel/core_pattern`. If it hands dumps to a program (`|` or `@` in front), that
program alone knows where they are, and none is found here.
"""

from __future__ import annotations

import glob
import mmap
import os
import re
import resource
import stat
import struct
from collections.abc import Collection
from pathlib import Path

from s3t.disk import remove_durably

CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
ELF_CORE = 4
"""`ET_CORE`, the type of an ELF file that is a core dump."""
NAME_BYTE = re.compile(rb"[\w.\x80-\xff-]")
"""What goes on with a file's name: /runs/a is not in /runs/ab."""


def no_core_dumps() -> None:
    """From here on this process, and those that it starts, leave no core dump when they crash.

    A program that the kernel hands dumps to is told so, but need not obey.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def core_dumps(run: Path) -> list[Path]:
    """Core dumps of this user whose memory names the run folder, sorted.

    Looked for where the kernel writes them; where that is the crashed process's folder, in ours and in the run's.

    Raises:
        OSError: a dump cannot be read.
    """
    names = {os.fsencode(run.absolute()), os.fsencode(run.resolve())}  # a process knows it as it was given, or followed
    found = {Path(path) for place in _places(run) for path in glob.glob(place, include_hidden=True)}  # noqa: PTH207
    return sorted(path for path in found if _is_core_of(path, names))


def remove_core_dumps(run: Path) -> list[Path]:
    """Remove those core dumps, durably, and name them.

    Raises:
        OSError: the disk refused.
    """
    found = core_dumps(run)
    remove_durably(found)
    return found


def _places(run: Path) -> list[str]:
    """Shell patterns of the files that the kernel may have written."""
    try:
        pattern = CORE_PATTERN.read_text().rstrip("\n")
    except FileNotFoundError:  # no Linux
        return []
    if pattern.startswith(("|", "@")):
        return []
    wanted = re.sub(r"%(.?)|[^%]+", _as_shell, pattern)
    # A relative name is one in the crashed process's folder.
    folders = [""] if pattern.startswith("/") else [f"{glob.escape(str(at))}/" for at in (Path.cwd(), run.resolve())]
    names = (wanted, f"{wanted}.[0-9]*")  # core_uses_pid adds the number of the process
    return [folder + name for folder in folders for name in names]


def _as_shell(part: re.Match[str]) -> str:
    """A specifier as a wildcard, other text as itself."""
    specifier = part.group(1)
    if specifier is None:
        return glob.escape(part.group())
    return {"%": "%", "": ""}.get(specifier, "*")


def _is_core_of(path: Path, names: Collection[bytes]) -> bool:
    try:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid():
            return False
        with path.open("rb") as file:
            if not _is_core(file.read(18)):
                return False
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
                return any(_holds(memory, name) for name in names)
    except FileNotFoundError:  # somebody else has removed it
        return False


def _is_core(head: bytes) -> bool:
    if len(head) < 18 or head[:4] != b"\x7fELF":
        return False
    kind: int = struct.unpack_from(">H" if head[5] == 2 else "<H", head, 16)[0]
    return kind == ELF_CORE


def _holds(memory: mmap.mmap, name: bytes) -> bool:
    at = memory.find(name)
    while at >= 0:
        after = at + len(name)
        if not NAME_BYTE.match(memory[after : after + 1]):
            return True
        at = memory.find(name, after)
    return False
