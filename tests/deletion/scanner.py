"""Reads a file as whoever wants a record back would: raw and decoded, for words in every usual spelling."""

from __future__ import annotations

import base64
import hashlib
import io
import lzma
import os
import sqlite3
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import safetensors.numpy
from PIL import Image

COMPRESSED = {b"\x1f\x8b\x08": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
DEEPEST = 4
"""Of things in things: an image in a Parquet file in a database in a ZIP file."""


def spellings(word: str) -> set[bytes]:
    """A word, as text or not, as files may hold it, its plain hashes with it: who guesses the word can test them."""
    plain = word.encode()
    found = {word.encode(code) for code in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")}
    found |= {word.upper().encode(), plain.hex().encode(), plain.hex().upper().encode(), plain[::-1]}
    found |= _base64(plain)
    for name in ("sha256", "sha1", "md5"):
        digest = hashlib.new(name, plain).digest()
        found |= {digest, digest.hex().encode()}
    return found


def token_spellings(tokens: list[int]) -> set[bytes]:
    """The ids of a text's tokens, as an encoded record may be kept."""
    found = {np.array(tokens, kind).tobytes() for kind in ("<i8", "<i4", "<u2", "<f4")}
    return found | {separator.join(map(str, tokens)).encode() for separator in (", ", ",", " ")}


def image_spellings(content: bytes) -> set[bytes]:
    """An image's file, and its pixels as bytes and as floats, scaled as models take them."""
    pixels = _pixels(content)
    unit = pixels.astype(np.float64) / 255
    found = {content, pixels.tobytes(), content.hex().encode(), *_base64(content)}
    for scaled in (pixels, unit, unit * 2 - 1):
        found |= {scaled.astype(kind).tobytes() for kind in ("<f4", "<f8", "<f2")}
    return found | {hashlib.sha256(content).digest(), hashlib.sha256(content).hexdigest().encode()}


def found_in(path: Path, words: Mapping[str, Collection[bytes]]) -> set[str]:
    """Names of the words that a file holds in a spelling, or that are in its own path."""
    contents = [os.fsencode(path), *readings(path.read_bytes())]
    return {
        name for name, forms in words.items() if any(form in content for content in contents for form in forms if form)
    }


def readings(content: bytes, depth: int = 0) -> Iterator[bytes]:
    """The bytes, and what they decode to where they are of a known format.

    Raises:
        ValueError: the bytes say that they are of a format, and are not: what is in them cannot be known.
    """
    yield content
    if depth == DEEPEST:
        return
    try:
        inner = list(_decoded(content))
    except Exception as error:
        raise ValueError(f"cannot be decoded: {content[:16]!r}... ({error})") from error
    for value in inner:
        yield from readings(value, depth + 1)


def _decoded(content: bytes) -> Iterator[bytes]:
    codec = next((codec for magic, codec in COMPRESSED.items() if content.startswith(magic)), None)
    if codec is not None:
        yield pa.CompressedInputStream(pa.BufferReader(content), codec).read()
    elif content.startswith(b"\xfd7zXZ"):
        yield lzma.decompress(content)
    elif content.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from (name.encode(), archive.read(name))
    elif content.startswith(b"PAR1"):
        yield from _of_parquet(content)
    elif content.startswith(b"ARROW1"):
        yield from _of_table(pa.ipc.open_file(pa.BufferReader(content)).read_all())
    elif content.startswith(b"\xff\xff\xff\xff"):
        yield from _of_table(pa.ipc.open_stream(pa.BufferReader(content)).read_all())
    elif content.startswith(b"SQLite format 3\x00"):
        yield from _of_database(content)
    elif content.startswith((b"\x89PNG", b"\xff\xd8\xff")):
        yield _pixels(content).tobytes()
    elif content[8:10] == b'{"' and int.from_bytes(content[:8], "little") < len(content):
        yield from _of_tensors(content)


def _of_parquet(content: bytes) -> Iterator[bytes]:
    file = pa.parquet.ParquetFile(io.BytesIO(content))
    groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
    for column in (group.column(index) for group in groups for index in range(group.num_columns)):
        if column.is_stats_set and column.statistics.has_min_max:
            yield from map(_as_bytes, (column.statistics.min, column.statistics.max))
    yield from _of_table(file.read())


def _of_table(table: pa.Table) -> Iterator[bytes]:
    yield from (part for pair in (table.schema.metadata or {}).items() for part in pair)
    for column in table.columns:
        yield from map(_as_bytes, column.to_pylist())


def _of_database(content: bytes) -> Iterator[bytes]:
    # As if without a write-ahead log, which is a file of its own: one in memory cannot have one.
    connection = sqlite3.connect(":memory:")
    connection.deserialize(content[:18] + b"\x01\x01" + content[20:])
    connection.text_factory = bytes
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        quoted = name.decode().replace('"', '""')
        for row in connection.execute(f'SELECT * FROM "{quoted}"'):
            yield from map(_as_bytes, row)
    connection.close()


def _of_tensors(content: bytes) -> Iterator[bytes]:
    """As numbers of other types: pixels in a tensor of whole numbers, say."""
    for tensor in safetensors.numpy.load(content).values():
        for kind in ("<i8", "<i4", "<u1", "<f4"):
            with np.errstate(invalid="ignore"):
                yield tensor.astype(kind).tobytes()


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _pixels(content: bytes) -> Any:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image)


def _base64(content: bytes) -> set[bytes]:
    """As it stands in a longer text: at any of three offsets, without the letters that the neighbours decide."""
    found = set()
    for shift in range(3):
        letters = base64.b64encode(bytes(shift) + content)
        kept = letters[-(-shift * 8 // 6) : (shift + len(content)) * 8 // 6]
        found |= {kept, kept.translate(bytes.maketrans(b"+/", b"-_"))}
    return found
