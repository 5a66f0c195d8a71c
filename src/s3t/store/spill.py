"""Bytes that have no room in memory, in a file without a name, which the system takes back by itself.

So a process that ends, or is killed, leaves nothing of them under any name.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO


class Spill(AbstractContextManager["Spill"]):
    """Chunks of bytes by key, each key's in the order in which they came. Takes 16 bytes of memory a chunk.

    The file is made with the first chunk, in the folder or the first one above it that exists, and given back at the
    end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._file: IO[bytes] | None = None
        self._end = 0
        self._chunks: dict[int, array[int]] = {}
        """By key, the start and the length of each chunk."""

    def add(self, key: int, content: bytes | bytearray) -> None:
        if self._file is None:
            folder = next(path for path in (self._folder, *self._folder.parents) if path.is_dir())
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - `close` closes it
        rest = memoryview(content)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._chunks.setdefault(key, array("Q")).extend((self._end, len(content)))
        self._end += len(content)

    def chunks(self, key: int) -> Iterator[bytes]:
        """Yields a key's chunks; nothing is added meanwhile."""
        if self._file is None:
            return
        places = self._chunks.get(key, array("Q"))
        for start, length in zip(places[::2], places[1::2], strict=True):
            content = os.pread(self._file.fileno(), length, start)
            if len(content) != length:
                raise OSError(f"a temporary file gave {len(content)} bytes of {length}")
            yield content

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._chunks = None, {}
