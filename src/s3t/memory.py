"""How a process that is s3t's own takes memory: in large pages, and without giving back what it needs again at once.

A step of training asks for the same hundreds of megabytes as the step before. By default much of it goes back to the
system after each step, and comes again as empty pages of 4 KiB, each on a page fault.
"""

from __future__ import annotations

import ctypes
import os

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_NEVER = 2**31 - 1
_LARGEST = 32 * 2**20
"""What is larger is always mapped by itself, and goes back at once: fragments of it would waste too much."""
_AT_A_TIME = 64 * 2**20


def keep_freed_memory() -> None:
    """For the rest of the process: freed memory stays for the next step, and torch's large tensors get large pages.

    Call it before torch is imported. Changes no result. For a process that others own, a notebook or a server, it is
    for them to decide. Does nothing where the C library is not glibc.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's switch; read once
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        for option, value in (
            (_M_MMAP_THRESHOLD, _LARGEST),
            (_M_TRIM_THRESHOLD, _NEVER),
            (_M_TOP_PAD, _AT_A_TIME),
        ):
            mallopt(option, value)
