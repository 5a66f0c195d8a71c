"""Images that would hang the reader, fill the memory or break off are refused in words before they are decoded."""

import io
import os
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageFile

from s3t.errors import DataError
from s3t.records import images
from s3t.records.images import as_png, decoded, image_bytes
from s3t.records.reading import Positions, Problems, Table
from testing import tiny

IMAGE = [[(row * column) % 251 for column in range(32)] for row in range(32)]


def problems_of(cell, folder):
    rows, problems = pa.table({"image": pa.array([cell])}), Problems("the images", Positions("row"))
    image_bytes(Table(rows=rows, folder=folder, first=0, problems=problems), "image")
    try:
        problems.refuse()
    except DataError as error:
        return list(error.problems)
    return []


def head_of_png(width, height):
    """An image's file that breaks off where its pixels begin: no more may be looked at before its size is known."""
    size, pixels = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0), b"none"
    chunks = [
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in ((b"IHDR", size), (b"IDAT", pixels))
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_an_image_passes_by_its_bytes_by_its_path_and_in_a_mapping(tmp_path):
    (tmp_path / "a.png").write_bytes(tiny.png(IMAGE))
    for cell in (tiny.png(IMAGE), "a.png", {"bytes": tiny.png(IMAGE)}, {"bytes": None, "path": "a.png"}):
        assert problems_of(cell, tmp_path) == []


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "folder"])
def test_a_path_to_what_is_no_regular_file_is_refused_and_not_waited_for(name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (problem,) = problems_of(name, tmp_path)
    assert "regular file" in problem or "irectory" in problem
    assert name not in problem


def test_more_bytes_than_an_image_may_have_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_BYTES", 2**20)
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(2**20 + 1)
    assert problems_of("large.png", tmp_path) == [
        "row 0: the image (column 'image') has more than 1 MiB; make it smaller"
    ]


@pytest.mark.parametrize("bound_of_pillow", [images.MAX_PIXELS, None])
def test_an_image_of_more_pixels_than_the_bound_is_refused_by_its_size(bound_of_pillow, tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", bound_of_pillow)  # a program may have raised it
    side = int(images.MAX_PIXELS**0.5)
    assert "pixels" not in problems_of(head_of_png(side, side), tmp_path)[0]
    assert problems_of(head_of_png(side + 1, side + 1), tmp_path) == [
        "row 0: the image (column 'image') has more than 89,478,485 pixels; make it smaller"
    ]


@pytest.mark.parametrize("tolerant", [False, True])
def test_an_image_whose_pixels_break_off_is_refused(tolerant, tmp_path, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", tolerant)  # many training scripts set it
    whole = tiny.png(IMAGE)
    assert "truncated" in problems_of(whole[: len(whole) // 2], tmp_path)[0]
    assert ImageFile.LOAD_TRUNCATED_IMAGES is tolerant


def encoded(image, form="png", **options):
    content = io.BytesIO()
    image.save(content, format=form, **options)
    return content.getvalue()


def in_frames(form):
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    return encoded(frames[0], form, save_all=True, append_images=frames[1:])


RAMP = np.tile(np.linspace(0, 255, 32).astype("uint8"), (32, 1))
DEEP = RAMP.astype("uint16") * 257
GREY = np.stack([RAMP] * 3, axis=2)
SIGN = np.zeros((24, 32, 3), "uint8")
SIGN[:12] = 255
GLASS = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
GLASS.paste((200, 10, 10, 255), (8, 8, 24, 24))
ON_WHITE = Image.new("RGB", (32, 32), "white")
ON_WHITE.paste((200, 10, 10), (8, 8, 24, 24))
RED = np.full((8, 8, 3), (255, 0, 0), "uint8")
EXIF = Image.Exif()
EXIF[274] = 6
SHOWN = {
    "16-bit PNG": (encoded(Image.fromarray(DEEP)), GREY),
    "16-bit TIFF": (encoded(Image.fromarray(DEEP), "tiff"), GREY),
    "16-bit TIFF from white": (encoded(Image.fromarray(DEEP), "tiff", tiffinfo={262: 0}), 255 - GREY),
    "16-bit TIFF, high byte first": (
        encoded(Image.frombytes("I;16B", (32, 32), DEEP.astype(">u2").tobytes()), "tiff"),
        GREY,
    ),
    "16-bit PGM": (b"P5 32 32 65535\n" + DEEP.astype(">u2").tobytes(), GREY),
    "turned PNG": (encoded(Image.fromarray(np.rot90(SIGN)), exif=EXIF), SIGN),
    "turned TIFF": (encoded(Image.fromarray(np.rot90(SIGN)), "tiff", exif=EXIF), SIGN),
    "turned WebP": (encoded(Image.fromarray(np.rot90(SIGN)), "webp", exif=EXIF, lossless=True), SIGN),
    "turned JPEG": (encoded(Image.fromarray(np.rot90(SIGN)), "jpeg", exif=EXIF, subsampling=0, quality=95), SIGN),
    "RGBA": (encoded(GLASS), ON_WHITE),
    "RGBA WebP": (encoded(GLASS, "webp", lossless=True), ON_WHITE),
    "RGBA TIFF": (encoded(GLASS, "tiff"), ON_WHITE),
    "LA": (encoded(GLASS.convert("LA")), ON_WHITE.convert("L").convert("RGB")),
    "palette with a transparent colour": (encoded(GLASS.convert("P"), transparency=0), ON_WHITE),
    "transparent GIF": (encoded(GLASS, "gif"), ON_WHITE),
    "RGB with a transparent colour": (encoded(Image.new("RGB", (4, 4), (1, 2, 3)), transparency=(1, 2, 3)), 255),
    "1 bit": (
        encoded(Image.fromarray(GREY).convert("1")),
        np.asarray(Image.fromarray(GREY).convert("1").convert("RGB")),
    ),
    "CMYK JPEG": (encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "jpeg"), RED),
    "phone's MPO": (in_frames("mpo"), RED),
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_image_is_what_a_viewer_shows(name):
    content, shown = SHOWN[name]
    assert np.abs(np.asarray(decoded(content)).astype(int) - np.asarray(shown)).max() <= 3  # JPEG loses a little
    again = decoded(as_png(Image.open(io.BytesIO(content))))
    assert again.tobytes() == decoded(content).tobytes()


REFUSED = {
    "float TIFF": (encoded(Image.fromarray(RAMP / np.float32(255)), "tiff"), "fractional"),
    "32-bit TIFF": (encoded(Image.fromarray(DEEP.astype("int32")), "tiff"), "32-bit"),
    "signed TIFF": (encoded(Image.fromarray(RAMP), "tiff", tiffinfo={339: 2}), "signed"),
    "LAB TIFF": (encoded(Image.new("LAB", (8, 8)), "tiff"), "colour space LAB"),
    "four channels": (encoded(Image.new("RGBX", (8, 8)), "tiff"), "more channels"),
    "16-bit PNG with a transparent colour": (encoded(Image.fromarray(DEEP), transparency=0), "transparent colour"),
    **{f"frames of {form}": (in_frames(form), "several frames") for form in ("gif", "webp", "png", "tiff")},
    **{form: (encoded(ON_WHITE, form), "none of PNG") for form in ("eps", "ico", "tga")},
    "text": (b"w1", "none of PNG"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_image_without_one_meaning_is_refused(name, tmp_path):
    content, reason = REFUSED[name]
    (problem,) = problems_of(content, tmp_path)
    assert problem.startswith("row 0: the image (column 'image') ")
    assert reason in problem
    if content != b"w1":
        with pytest.raises(DataError, match=reason):
            as_png(Image.open(io.BytesIO(content)))
