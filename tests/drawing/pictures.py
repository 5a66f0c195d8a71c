"""What a picture's file must be."""

import re

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


def assert_is_picture(path):
    content = path.read_bytes()
    assert content.startswith(MAGIC[path.suffix.lower()])
    assert len(content) > 2000


def texts(path):
    """All that is written in an SVG picture."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text())
