"""Images: read from regular files alone, within bounds that are looked at before anything is decoded."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image

from s3t.disk import open_regular
from s3t.records.columns import converted
from s3t.records.problems import Problems

MAX_BYTES = 256 * 2**20
"""Largest encoded image, in bytes."""
MAX_PIXELS = 89_478_485
"""Largest decoded image, in pixels: Pillow's warning threshold for decompression bombs."""
_warnings_as_errors = threading.Lock()
"""Filters of warnings belong to the whole process."""


def image_bytes(cells: Iterable[Any], name: str, folder: Path, problems: Problems) -> pa.ChunkedArray:
    """The encoded images of a column's cells, once each has been seen to decode.

    A cell holds bytes, a path from `folder`, or a mapping with `bytes` or `path`. Of one that is no image, neither
    path nor bytes are quoted.
    """
    return converted(_decoded(cells, name, folder, problems), pa.binary())


def _decoded(cells: Iterable[Any], name: str, folder: Path, problems: Problems) -> Iterator[bytes | None]:
    with _warnings_as_errors, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for row, cell in enumerate(cells):
            content, problem = _encoded(cell, folder)
            if content is not None:
                problem = _decoding_problem(content)
            if problem is not None:
                problems.add_row(row, f"the image (column {name!r}) {problem}")
            yield content


def _encoded(cell: Any, folder: Path) -> tuple[bytes | None, str | None]:
    """The bytes that a cell holds or names, or what is wrong with the cell."""
    if isinstance(cell, dict):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, str):
        try:
            with open_regular(folder / cell) as file:
                cell = file.read(MAX_BYTES + 1)
        except OSError as error:
            return None, f"cannot be read: {error.strerror}; correct the path"
    if not isinstance(cell, bytes):
        return None, "is neither bytes nor a path; see docs/recipe.md, columns.image"
    if len(cell) > MAX_BYTES:
        return None, f"has more than {MAX_BYTES // 2**20} MiB; make it smaller"
    return cell, None


def _decoding_problem(content: bytes) -> str | None:
    """Problem of decoding the bytes, in our words: Pillow's messages may quote them."""
    too_large = f"has more than {MAX_PIXELS:,} pixels; make it smaller"
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > MAX_PIXELS:
                return too_large
            image.load()
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        return too_large
    except Exception:  # whatever a decoder stumbles over in bytes that may be anything
        return "cannot be decoded, perhaps truncated; replace or drop the row"
    return None
