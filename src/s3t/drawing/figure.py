"""Parts of all pictures: the check of their path, colours, saving."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from s3t.disk import storage_errors, write_durably, writing_problems
from s3t.errors import InputError
from s3t.extras import how_to_install

SUFFIXES = (".png", ".svg", ".pdf")

# Okabe and Ito's colours, which people with any colour vision tell apart.
GREEN, BLUE, ORANGE = "#009e73", "#0072b2", "#d55e00"
INK, GREY = "#222222", "#9a9a9a"
SCALE = "YlGnBu"
"""Light to dark: the same order for colour-blind readers, and in grey."""

WIDTH = 8.0
"""Inches; at 100 dots an inch, a picture 800 pixels wide."""
DOTS = 200
_STYLE = {"font.size": 9, "svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "s3t"}
# Without a date, the same picture has the same bytes.
_METADATA = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_picture(path: Path) -> None:
    """Checks that a picture can be drawn and written, before any work is done."""
    problems = writing_problems(path, SUFFIXES)
    if importlib.util.find_spec("matplotlib") is None:
        problems.append(f"pictures need matplotlib, which is not installed; install it with: {how_to_install('plots')}")
    if problems:
        raise InputError(str(path), problems)


@contextmanager
def drawn(path: Path, *, height: float, width: float = WIDTH) -> Iterator[Any]:
    """A figure to draw on, which is written when all went well.

    The path ends in one of `SUFFIXES`; a file that is there is replaced. Height and width are in inches.
    """
    import matplotlib
    from matplotlib.figure import Figure

    suffix = path.suffix.lower()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure

        def write(part: Path) -> None:
            figure.savefig(part, format=suffix[1:], dpi=DOTS, metadata=_METADATA.get(suffix))

        with storage_errors(f"writing {path}"):
            write_durably(path, write, tmp=path.parent, mode=None)
