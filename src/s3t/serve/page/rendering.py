"""Templates, and the script and style sheet that they name."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from s3t.serve.page.pictures import WORDS, cell_picture
from s3t.wording import counted, numbers

_FOLDER = Path(__file__).parent
_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
HEADERS = {
    # Nothing from elsewhere, and no script or style in the page itself: what gets into it by mistake runs nothing.
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser would not tell where a form comes from
}
"""Headers of every answer of the page."""


class _Asset(NamedTuple):
    content: bytes
    media_type: str
    version: str


def _read(name: str, media_type: str) -> _Asset:
    content = (_FOLDER / "static" / name).read_bytes()
    return _Asset(content, media_type, hashlib.sha256(content).hexdigest()[:12])


_ASSETS = {name: _read(name, media_type) for name, media_type in _TYPES.items()}


def asset_response(name: str) -> Response | None:
    """A file that the page names; None if there is none of that name."""
    if (asset := _ASSETS.get(name)) is None:
        return None
    # Its address holds its version, so it may be kept for good.
    headers = HEADERS | {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(asset.content, media_type=asset.media_type, headers=headers)


def html(template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """An answer that a template renders."""
    return HTMLResponse(_ENVIRONMENT.get_template(template).render(now=time.time(), **context), status, HEADERS)


def _moment(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time, UTC.

    >>> _moment(0.0), _moment(0.0, "%H:%M")
    ('1970-01-01 00:00:00', '00:00')
    """
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.update(
    assets={name: f"/static/{name}?v={asset.version}" for name, asset in _ASSETS.items()},
    cell_picture=cell_picture,
    cell_words=WORDS,
)
_ENVIRONMENT.filters.update(counted=counted, numbers=numbers, moment=_moment)
