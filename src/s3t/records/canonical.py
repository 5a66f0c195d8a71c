"""Canonical bytes of rows, from which digests and content ids are computed. No two rows share them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from s3t.records.cells import Cells

if TYPE_CHECKING:
    import pyarrow as pa

Value: TypeAlias = "str | bytes | float | Sequence[str] | None"


def canonical_bytes(values: Iterable[Value]) -> bytes:
    """Each value as a tag, its length and its bytes, so that no value runs into the next; of a list, its values'.

    >>> canonical_bytes(["ab", "c"]) == canonical_bytes(["a", "bc"])
    False
    >>> canonical_bytes([["a"], ["b"]]) == canonical_bytes([["a", "b"], []])
    False
    """
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(b"n")
            continue
        if isinstance(value, str):
            tag, content = b"s", value.encode()
        elif isinstance(value, bytes):
            tag, content = b"b", value
        elif isinstance(value, list | tuple):
            tag, content = b"l", canonical_bytes(value)
        else:
            tag, content = b"f", struct.pack(">d", value)
        parts += (tag, struct.pack(">Q", len(content)), content)
    return b"".join(parts)


def contents(rows: pa.Table, names: Iterable[str]) -> Iterator[bytes]:
    """The canonical bytes of some columns of each row."""
    return map(canonical_bytes, zip(*(Cells(rows[name]) for name in names), strict=True))
