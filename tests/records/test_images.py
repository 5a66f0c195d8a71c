"""Images that would hang the reader, fill the memory or break off are refused in words before they are decoded."""

import os
import struct
import zlib

import pytest

from s3t.records import images
from s3t.records.images import image_bytes
from s3t.records.positions import Positions
from s3t.records.problems import Problems
from testing import tiny

IMAGE = [[(row * column) % 251 for column in range(32)] for row in range(32)]


def problems_of(cell, folder):
    problems = Problems(Positions("row"))
    image_bytes([cell], "image", folder, problems)
    return problems.sentences()


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


def test_an_image_whose_pixels_break_off_is_refused(tmp_path):
    whole = tiny.png(IMAGE)
    assert "truncated" in problems_of(whole[: len(whole) // 2], tmp_path)[0]
