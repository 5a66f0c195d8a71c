"""The shim as Python sees it, in a process that was started with it in LD_PRELOAD, and the log it writes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

_HEADER = Path(__file__).with_name("points.h").read_text()
TYPES = tuple(_HEADER.partition("enum type { ")[2].partition(" };")[0].lower().split(", "))
"""Of points."""
_HEAD = struct.Struct("=cBIqIII")


class Shim:
    """The shim of this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)  # it is loaded already
        try:
            self._arm = self._library.s3t_fault_arm
        except AttributeError as error:
            raise RuntimeError("this process was started without the shim in LD_PRELOAD") from error
        text, number = ctypes.c_char_p, ctypes.c_uint
        self._arm.argtypes = [text, number, text, ctypes.c_uint64, number, text, ctypes.c_int]
        self._library.s3t_fault_count.restype = ctypes.c_uint
        self._library.s3t_log_start.argtypes = [ctypes.c_char_p]

    def arm(
        self,
        watched: Sequence[Path],
        *,
        log: Path,
        point: int = 0,
        kind: str = "count",
        seed: int = 0,
        last: int = 0,
        port: int = 0,
    ) -> None:
        """From now on count what changes the watched folders; at `point` let the fault happen.

        Args:
            watched: folders.
            log: where every point is noted; outside the watched.
            point: from 1, or the next one that can fail so; 0 counts alone.
            kind: of the fault, or "count".
            seed: decides how much of a write is done.
            last: the point at which the process is killed, if it lives on so far; 0 for never.
            port: of a PostgreSQL server, whose connections count, too.
        """
        prefixes = "\n".join(str(folder.resolve()) for folder in watched)
        if self._arm(prefixes.encode(), point, kind.encode(), seed, last, str(log).encode(), port):
            raise RuntimeError(f"the shim refuses the kind {kind} or the log {log}")

    def disarm(self) -> None:
        """Count no more, and let what has failed work again."""
        self._library.s3t_fault_disarm()

    def count(self) -> int:
        """Points met since arming."""
        return int(self._library.s3t_fault_count())

    def log_changes(self, path: Path) -> None:
        """Note in a file, a line each, all that is opened for writing, made or renamed anywhere: `what\\tpath`."""
        if self._library.s3t_log_start(str(path).encode()):
            raise RuntimeError(f"the shim cannot write {path}")

    def log_no_more(self) -> None:
        """End `log_changes`."""
        self._library.s3t_log_stop()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of the log of points."""

    mark: str
    """P: met; D: done, with success; F: made to fail, or done in part; K: killed here."""
    type: str
    number: int
    """Of the point, from 1."""
    offset: int
    """Where it wrote; of truncate and allocate the size that the file has then."""
    path: str
    other: str
    """The new name."""
    data: bytes


def read_log(path: Path) -> Iterator[Entry]:
    """The log of points, in order."""
    content = path.read_bytes() if path.exists() else b""
    at = 0
    while at + _HEAD.size <= len(content):
        mark, kind, number, offset, *lengths = _HEAD.unpack_from(content, at)
        ends = [*accumulate(lengths, initial=at + _HEAD.size)]
        named, other, data = (content[start:end] for start, end in pairwise(ends))
        at = ends[-1]
        yield Entry(
            mark=mark.decode(),
            type=TYPES[kind],
            number=number,
            offset=offset,
            path=named.decode(),
            other=other.decode(),
            data=data,
        )
