"""Templates, and the script and style sheet that they name."""

from __future__ import annotations

import hashlib
import time
from datetime import datetime
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from s3t.results.base import utc
from s3t.wording import counted, hours_in_words, numbers
from s3t_server.page import views
from s3t_server.page.pictures import MOST_CHAINS, WORDS, cell_picture, chains_picture, range_picture

_FOLDER = Path(__file__).parent
TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
HEADERS = {
    # Nothing from elsewhere, and no script or style in the page itself: what gets into it by mistake runs nothing.
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser would not tell where a form comes from
}
"""Headers of every answer of the page."""


@cache
def asset(name: str) -> tuple[bytes, str]:
    """A file's content, and its version."""
    content = (_FOLDER / "static" / name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


def html(template: str, status: int = 200, **context: Any) -> HTMLResponse:
    return HTMLResponse(_environment().get_template(template).render(now=time.time(), **context), status, HEADERS)


def _moment(time: datetime | float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time, or seconds since the epoch, in UTC.

    >>> _moment(0.0), _moment(utc(0.0), "%H:%M")
    ('1970-01-01 00:00:00', '00:00')
    """
    return (time if isinstance(time, datetime) else utc(time)).strftime(form)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        assets={name: f"/static/{name}?v={asset(name)[1]}" for name in TYPES},
        cell_picture=cell_picture,
        cell_words=WORDS,
        chains_picture=chains_picture,
        range_picture=range_picture,
        most_chains=MOST_CHAINS,
    )
    environment.filters.update(counted=counted, numbers=numbers, moment=_moment, mean=fmean)
    environment.filters.update(at_a_glance=views.at_a_glance, steps=views.steps_of, longest=views.longest_of)
    environment.filters.update(in_hours=hours_in_words, in_words=views.location_in_words)
    return environment
