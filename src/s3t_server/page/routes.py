"""Routes of a run's page that show something; `actions` has those that do something.

Annotations are values here, as in `s3t_server.routes`. Addresses in the page are relative: the first run has it at two
addresses.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from http import HTTPStatus
from typing import Any

from anyio import CapacityLimiter, sleep, to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute

from s3t.errors import S3TError
from s3t_server.answering import EVENTS
from s3t_server.callers import HOW
from s3t_server.page.actions import add_actions
from s3t_server.page.board import ANY_SCOPE, SCOPES
from s3t_server.page.rendering import HEADERS, asset_response, html
from s3t_server.page.sections import Page, sections_for
from s3t_server.page.visitors import caller_with, form_of, sign_in, sign_out, visitor
from s3t_server.problems import Refused, refusal_to

_LOOK_SECONDS, _STREAM_SECONDS = 0.5, 20.0
_LOOKING_THREADS = 4
"""Threads of all streams of a run: while one computes a forecast, they must not keep the threads that answer."""


class PageRoute(APIRoute):
    """Route that answers refusals with pages: 401 with the form to sign in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its errors answered."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except Refused as refused:
                return refusal_page(refused)
            except S3TError as error:
                return refusal_page(refusal_to(error))

        return handle


def refusal_page(refused: Refused) -> Response:
    if refused.status_code == HTTPStatus.UNAUTHORIZED:
        reason = str(refused.detail).removesuffix(HOW).removesuffix("; ")
        return html("sign_in.html", refused.status_code, problem=reason)
    headers = {} if refused.headers is None else refused.headers
    response = html("refused.html", refused.status_code, refused=refused)
    response.headers.update(headers)
    return response


def page_of(page: Page) -> APIRouter:
    """Routes of a run's page, below its address."""
    router = APIRouter(route_class=PageRoute, include_in_schema=False)
    looking = CapacityLimiter(_LOOKING_THREADS)
    _add_signing_in(router, page)
    add_actions(router, page)

    @router.get("/")
    def whole(request: Request) -> Response:
        """The page; without a token the form to sign in."""
        return page.whole(visitor(page.served, request, *ANY_SCOPE), request)

    @router.get("/sections/{name}")
    def section(name: str, request: Request) -> Response:
        """A section of the page, as it is now."""
        who = visitor(page.served, request, *SCOPES.get(name, ANY_SCOPE))
        if name not in SCOPES:
            raise Refused(HTTPStatus.NOT_FOUND, "the page has no such section")
        return page.part(name, who, request)

    @router.get("/changes")
    def changes(request: Request) -> Response:
        """Events: sections that have changed since `seen`. A stream ends after 20 s; the script opens another."""
        who = visitor(page.served, request, *ANY_SCOPE)
        seen = request.query_params.get("seen", "")
        shown = {name: version for name, version in _of_text(seen).items() if name in sections_for(who)}
        events = _changes(page, shown, looking)
        return StreamingResponse(events, media_type=EVENTS, headers=HEADERS)

    return router


async def _changes(page: Page, seen: dict[str, str], looking: CapacityLimiter) -> AsyncIterator[str]:
    """Server-sent events with the names of sections that have changed. Its time is bounded, or no server could stop."""
    yield ": open\n\n"
    board, until = page.board, time.monotonic() + _STREAM_SECONDS
    while time.monotonic() < until:
        try:
            versions = await to_thread.run_sync(lambda: board.versions(board.last_look()), limiter=looking)
        except S3TError:  # the stream ends; the next request is answered with the reason
            return
        if changed := [name for name, version in seen.items() if versions[name] != version]:
            seen = {name: versions[name] for name in seen}
            yield f"event: changed\ndata: {json.dumps(changed)}\n\n"
        await sleep(_LOOK_SECONDS)


def _of_text(text: str) -> dict[str, str]:
    """Versions of sections, as the script sends them.

    >>> _of_text("shards-a1.notes-b2")
    {'shards': 'a1', 'notes': 'b2'}
    """
    pairs = (each.partition("-") for each in text.split("."))
    return {name: version for name, _, version in pairs if name in SCOPES}


def _add_signing_in(router: APIRouter, page: Page) -> None:
    @router.post("/sign-in")
    async def enter(request: Request) -> Response:
        """Keep a token in a cookie."""
        token = (await form_of(request)).get("token", "").strip()
        await to_thread.run_sync(lambda: caller_with(page.served, request, token, *ANY_SCOPE))
        response = RedirectResponse("./", HTTPStatus.SEE_OTHER, HEADERS)
        sign_in(page.served, request, response, token)
        return response

    @router.post("/sign-out")
    async def leave(request: Request) -> Response:
        """Forget the token."""
        await form_of(request)
        response = RedirectResponse("./", HTTPStatus.SEE_OTHER, HEADERS)
        sign_out(page.served, request, response)
        return response


def static_files() -> APIRouter:
    """Script, style sheet and icon, which hold nothing of a run."""
    router = APIRouter(include_in_schema=False)

    @router.get("/static/{name}")
    async def static(name: str, v: str = "") -> Response:
        if (response := asset_response(name, v)) is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such file")
        return response

    return router
