"""Images: read from regular files alone, within bounds that are looked at before anything is decoded. Where Pillow
would silently show something else than a viewer, the image is refused."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from s3t.errors import DataError
from s3t.files import open_regular
from s3t.records.reading import Table
from s3t.records.requests import CellError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Formats that are opened: Pillow decodes them itself. Of others, EPS starts Ghostscript."""
MAX_BYTES = 256 * 2**20
"""Largest encoded image, in bytes."""
MAX_PIXELS = 89_478_485
"""Largest decoded image, in pixels: Pillow's warning threshold for decompression bombs."""
_TOO_LARGE = f"has more than {MAX_PIXELS:,} pixels; make it smaller"
_BROKEN = "cannot be decoded, perhaps truncated; replace or drop the row"
_MODES = {"1", "L", "P", "RGB", "CMYK", "YCbCr", "LA", "La", "PA", "RGBA", "RGBa"}
"""Pillow's modes of 8 bits a channel that it converts to RGB."""
_RESCALED = {"L;2", "L;4", "RGB;16B"}
"""Pillow's names of PNG pixels that it makes 8 bits, but not their transparent colour."""
_BITS, _PHOTOMETRIC, _EXTRA_SAMPLES, _SAMPLE_FORMAT = 258, 262, 338, 339
"""Tags of TIFF files."""
_settings_of_pillow = threading.Lock()
"""Filters of warnings, and whether half an image will do, are settings of the whole process."""


def image_bytes(table: Table, name: str) -> pa.ChunkedArray:
    """The encoded images of a column's cells, once each has been seen to decode. A cell holds bytes, a path from the
    table's folder, or a mapping with `bytes` or `path`; neither path nor bytes are quoted."""
    with _settings_of_pillow, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        tolerant, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
        try:
            return table.column(name, "image", lambda cell: _encoded(cell, table.folder), pa.binary(), what="the image")
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = tolerant


def _encoded(cell: Any, folder: Path) -> bytes:
    if isinstance(cell, dict):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, str):
        try:
            with open_regular(folder / cell) as file:
                cell = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise CellError(f"cannot be read: {error.strerror}; correct the path") from None
    if not isinstance(cell, bytes):
        raise CellError("is neither bytes nor a path; see docs/recipe.md, columns.image")
    if len(cell) > MAX_BYTES:
        raise CellError(f"has more than {MAX_BYTES // 2**20} MiB; make it smaller")
    try:
        decoded(cell)
    except DataError as error:
        raise CellError(error.problems[0]) from None
    return cell


def decoded(content: bytes) -> Image.Image:
    """The picture of an encoded image, in RGB."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            return picture(image)
    except UnidentifiedImageError:
        problem = f"is none of {', '.join(FORMATS)}; convert it, or drop the row"
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        problem = _TOO_LARGE
    except DataError:
        raise
    except Exception:  # whatever a decoder stumbles over in bytes that may be anything
        problem = _BROKEN
    raise DataError("the image", problem)


def as_png(image: Image.Image) -> bytes:
    """The picture of an image in memory, as a PNG file."""
    content = io.BytesIO()
    try:
        picture(image).save(content, format="png")
    except DataError:
        raise
    except Exception:  # it may be a file that Pillow decodes only now
        raise DataError("the image", _BROKEN) from None
    return content.getvalue()


def picture(image: Image.Image) -> Image.Image:
    """An image in RGB as a viewer shows it: turned as EXIF says, on white; the first frame of a phone's MPO."""
    if (problem := _problem(image)) is not None:
        raise DataError("the image", problem)
    # Grey TIFF files of 16 bits may count from white, which Pillow knows of 8 bits alone.
    from_white = image.format == "TIFF" and getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits: the high byte, as Pillow takes it of colours
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        image = Image.fromarray(255 - grey if from_white else grey)
    elif image.has_transparency_data:
        if image.mode == "La":
            image = image.convert("LA")
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _problem(image: Image.Image) -> str | None:
    if image.format not in (None, *FORMATS, "MPO"):  # an image in memory may be a file that is not decoded yet
        return f"is none of {', '.join(FORMATS)}; convert it"
    if image.width * image.height > MAX_PIXELS:
        return _TOO_LARGE
    if image.format != "MPO" and getattr(image, "is_animated", False):
        return "has several frames or pages; give one"
    tags: Mapping[int, Any] = getattr(image, "tag_v2", {})
    deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM")
    if image.mode == "F" or set(tags.get(_SAMPLE_FORMAT, (1,))) != {1} or (image.mode == "I" and not deep):
        return "has signed, fractional or 32-bit pixels, whose range is not known; make it 8 or 16 bits"
    if 12 in tags.get(_BITS, ()):
        return "has pixels of 12 bits; make it 8 or 16 bits"
    if not deep and image.mode not in _MODES:
        return f"has the colour space {image.mode}; make it RGB or grey"
    if 0 in tags.get(_EXTRA_SAMPLES, ()):
        return "has more channels than its colours; keep grey, RGB or RGBA"
    if "transparency" in image.info and (deep or _raw_mode(image) in _RESCALED):
        return "has a transparent colour, and not 8 bits a channel; make it 8 bits, or give it an alpha channel"
    return None


def _raw_mode(image: Image.Image) -> str | None:
    """Pillow's name of how the file has the pixels; None if it is decoded already."""
    for tile in getattr(image, "tile", ()):
        return str(tile.args if isinstance(tile.args, str) else tile.args[0])
    return None
