"""Settings of a process that is s3t's own: the program, and its workers. Nothing here changes a result."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from s3t.errors import StorageError

# Options of glibc's mallopt. Larger blocks than 32 MiB are mapped alone: fragments of them would waste too much.
_MALLOPT = {"M_MMAP_THRESHOLD": (-3, 32 * 2**20), "M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 64 * 2**20)}

_IMPORTED_OBJECTS = 200_000
"""Objects with references to others: a short command makes 150,000, nearly all of them by importing, and keeps them."""


def set_up_process() -> None:
    """Forbid core dumps, which would hold records; keep freed memory for the next training step, in large pages; look
    for no garbage among what is imported; import bitsandbytes for quantised bases alone.

    Call it before torch is imported. Processes that import s3t as a library are left alone.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch reads it once
    os.environ.setdefault("PILLOW_BLOCK_SIZE", "512m")  # an image is one block: a large one is mapped alone, see above
    # We use no plugins of pydantic, which looks for them in the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent where the C library is not glibc
    if mallopt is not None:
        for option, value in _MALLOPT.values():
            mallopt(option, value)
    # PEFT imports bitsandbytes wherever it is installed, which takes as long as torch itself. Python takes None for
    # "not there"; `models.quantized` shows it again.
    sys.modules.setdefault("bitsandbytes", None)  # type: ignore[arg-type]
    put_off_collection()


def put_off_collection() -> None:
    """Let Python's first search for cyclic garbage wait for `_IMPORTED_OBJECTS`; the next ones come as ever.

    Python would search 200 times while a short command imports its modules: a tenth of the command's time.
    """
    usual = gc.get_threshold()

    def first(_phase: str, _info: dict[str, Any]) -> None:
        gc.callbacks.remove(first)
        gc.set_threshold(*usual)

    gc.callbacks.append(first)
    gc.set_threshold(_IMPORTED_OBJECTS, *usual[1:])


class StdoutError(StorageError):
    """Standard output is full, or its device fails."""


class _Stream(io.TextIOWrapper):
    """A standard stream. What stdout cannot take is an error of s3t's own: Python would try it again at the end. What
    stderr cannot take is dropped: a message that nobody can read stops no command.
    """

    def write(self, text: str, /) -> int:
        with self._refusals():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._refusals():
            super().flush()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self.fileno() == 2:
                return
            if isinstance(error, BrokenPipeError):  # a reader that has enough, such as head
                raise
            raise StdoutError(f"the result could not be written to stdout: {error.strerror or error}") from error


def set_up_streams() -> None:
    """Give the process its three standard streams, whatever it was started with.

    A closed one (`>&-`, some daemons) leads to the null device; else the next file that is opened, such as a slice,
    would take its number, and messages would be written into it. A name that a stream cannot show is shown escaped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for name, number in (("stdout", 1), ("stderr", 2)):
        found = getattr(sys, name)
        if found is None or isinstance(found, io.TextIOWrapper):  # nobody has put another in its place
            raw = open(number, "wb", closefd=False) if found is None else found.detach()  # noqa: SIM115
            encoding, live = ("utf-8", False) if found is None else (found.encoding, found.line_buffering)
            setattr(sys, name, _Stream(raw, encoding=encoding, errors="backslashreplace", line_buffering=live))


def exit_on_sigterm() -> None:
    """End on SIGTERM as on an error: what is half written is removed on the way out."""

    def stop(_number: int, _frame: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    sys.unraisablehook = _signal_again


def _signal_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Send a signal again, once the finaliser has ended in which its exception was raised: Python swallows it there."""
    number = _SIGNALS.get(unraisable.exc_type)
    if number is None:
        sys.__unraisablehook__(unraisable)
        return
    timer = threading.Timer(_FINALISER_SECONDS, os.kill, [os.getpid(), number])
    timer.daemon = True
    timer.start()


_SIGNALS: Mapping[type[BaseException], int] = {SystemExit: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}
_FINALISER_SECONDS = 0.05
