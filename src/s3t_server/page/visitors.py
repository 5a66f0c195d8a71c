"""Visitors of the page: a cookie of their visit, and forms that were sent from the page itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from fastapi import Request, Response

from s3t_server.page.board import ANY_SCOPE
from s3t_server.page.sections import Visit
from s3t_server.problems import Refused
from s3t_server.routes import note_caller

_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 20


def visit_of(request: Request, *scopes: str) -> Visit:
    """The visit of those who have one of some scopes. The check is that of every other route."""
    served, secret = request.state.served, request.cookies.get(_cookie_of(request))
    token = None if secret is None else served.callers.access.visiting(secret)
    who = served.callers.check(None, scopes) if token is None else served.callers.allowed(token, scopes)
    note_caller(request, who)
    return Visit(served, who, request.query_params)


def sign_in(request: Request, response: Response, secret: str) -> None:
    """Begin a visit by the token of a secret. It ends with the browser. No script can read its cookie, and no other
    site can send it."""
    callers, name, secure = request.state.served.callers, _cookie_of(request), _is_secure(request)
    who, access = callers.allowed(callers.access.find(secret), ANY_SCOPE), callers.access
    note_caller(request, who)
    response.set_cookie(name, access.enter(who.name), httponly=True, samesite="strict", secure=secure, path="/")


def sign_out(request: Request, response: Response) -> None:
    name, secure = _cookie_of(request), _is_secure(request)
    if (secret := request.cookies.get(name)) is not None:
        request.state.served.callers.access.leave(secret)
    response.delete_cookie(name, httponly=True, samesite="strict", secure=secure, path="/")


def _cookie_of(request: Request) -> str:
    """Name of the cookie of a visit: each run has tokens of its own, so visits, too."""
    name = f"s3t-{hashlib.sha256(request.state.served.name.encode()).hexdigest()[:12]}"
    return f"__Host-{name}" if _is_secure(request) else name


def _is_secure(request: Request) -> bool:
    """True if the browser reaches the server, or the proxy before it, by TLS."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").partition(",")[0].strip())


def refuse_other_sites(request: Request) -> None:
    """Refuse a form that another site, or a page of another port, has sent in a visitor's name."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        same = site == "same-origin"
    else:  # browsers tell the first to https and this machine alone
        same = origin is not None and urlsplit(origin).netloc == request.headers.get("host", "")
    if not same:
        raise Refused(HTTPStatus.FORBIDDEN, "the form was not sent by this page; open the page and send it from there")


def wrong_form(problems: Sequence[str]) -> Refused:
    title = "wrong input"
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "the form was not understood", title=title, problems=problems)


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form, each once."""
    refuse_other_sites(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the page's forms are {_FORM}")
    try:
        text = (await request.body()).decode("ascii")
        fields = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:  # UnicodeDecodeError is one; its text holds what was sent
        raise wrong_form(["its fields cannot be read"]) from None
    return {name: values[-1] for name, values in fields.items()}
