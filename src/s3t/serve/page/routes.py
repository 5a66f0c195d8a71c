"""Routes of a run's page that show something; `actions` has those that do something.

Annotations are values here, as in `s3t.serve.routes`. Addresses in the page are relative, so that it works for the first
run and for each by its name.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from anyio import sleep, to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute

from s3t.errors import S3TError
from s3t.serve.answering import ServedRun
from s3t.serve.callers import HOW, Caller
from s3t.serve.page import views
from s3t.serve.page.board import ANY_SCOPE, SCOPES, Board
from s3t.serve.page.rendering import HEADERS, asset_response, html
from s3t.serve.page.visitors import caller_with, form_of, sign_in, sign_out, visitor
from s3t.serve.problems import Refused, refusal_to

_EVENTS = "text/event-stream"
_LOOK_SECONDS, _STREAM_SECONDS, _AGAIN_MILLISECONDS = 0.5, 20.0, 500
_ROWS = 15
"""Deletions on a page of them."""


@dataclass(frozen=True)
class Page:
    """The page of one run."""

    served: ServedRun
    board: Board
    runs: tuple[str, ...]
    """Names of all runs of the server."""

    def whole(self, who: Caller, request: Request, status: int = 200, **more: Any) -> Response:
        """The whole page, with all sections that a visitor may see."""
        sections = {name: self.section(name, request) for name in sections_for(who)}
        context = {"page": self, "who": who, "sections": sections, "desk": None, "done": None, **more}
        return html("page.html", status, **context)

    def section(self, name: str, request: Request) -> dict[str, Any]:
        """What a section's template shows."""
        version, query = self.board.versions()[name], request.query_params
        return {"name": name, "version": version, **_SHOWN[name](self, query)}


def sections_for(who: Caller) -> list[str]:
    """Sections that a visitor may see, in the page's order."""
    return [name for name, scopes in SCOPES.items() if any(map(who.may, scopes))]


def _summary(page: Page, _query: Mapping[str, str]) -> dict[str, Any]:
    return {"view": views.summary(page.board.status(), page.board.forecasts()[0])}


def _shards(page: Page, _query: Mapping[str, str]) -> dict[str, Any]:
    return {"view": views.shards(page.board.status(), page.board.training())}


def _depths(page: Page, query: Mapping[str, str]) -> dict[str, Any]:
    status, span = page.board.status(), query.get("span", "all")
    view = views.depths_over_time(
        page.served.run.watch.depths(),
        status.inventory.depths(),
        now=time.time(),
        span=span if span in views.SPANS else "all",
        most=views.wanted_depth(status.inventory),
    )
    return {"view": view, "spans": tuple(views.SPANS), "query": f"span={view.span}"}


def _forecast(page: Page, _query: Mapping[str, str]) -> dict[str, Any]:
    return {"view": views.ahead(page.board.forecasts()[0])}


def _repairs(page: Page, _query: Mapping[str, str]) -> dict[str, Any]:
    ahead, after, _ = page.board.forecasts()
    return {"view": views.repairing(page.board.status(), page.board.repairs(), ahead=ahead, ahead_after=after)}


def _deletions(page: Page, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of the log, the newest first; generations have gaps at most where a backup was put back."""
    newest, asked = page.board.status().generation, query.get("until", "")
    until = min(int(asked), newest) if asked.isdecimal() and len(asked) < 16 else newest
    first = max(1, until - _ROWS + 1)
    entries = page.served.run.log(range(first, until + 1)) if until else ()
    return {
        "view": views.deletions(reversed(entries)),
        "newer": min(newest, until + _ROWS) if until < newest else None,
        "older": first - 1 if first > 1 else None,
        "query": f"until={until}" if until < newest else "",
    }


def _notes(page: Page, _query: Mapping[str, str]) -> dict[str, Any]:
    status = page.board.status()
    withdraw = [f"export {export.label} holds deleted records: withdraw it" for export in status.to_withdraw]
    return {"warnings": (*withdraw, *status.warnings, *status.advice), "gaps": status.gaps}


_SHOWN: Mapping[str, Callable[[Page, Mapping[str, str]], dict[str, Any]]] = {
    "summary": _summary,
    "shards": _shards,
    "depths": _depths,
    "forecast": _forecast,
    "repairs": _repairs,
    "deletions": _deletions,
    "notes": _notes,
}


class PageRoute(APIRoute):
    """A route whose refusals are pages, too: of 401 the form to sign in."""

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
    """A refusal as a page."""
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
    _add_signing_in(router, page)

    @router.get("/")
    def whole(request: Request) -> Response:
        """The page; without a token the form to sign in."""
        return page.whole(visitor(page.served, request, *ANY_SCOPE), request)

    @router.get("/sections/{name}")
    def section(name: str, request: Request) -> Response:
        """A section of the page, as it is now."""
        visitor(page.served, request, *SCOPES.get(name, ANY_SCOPE))
        if name not in SCOPES:
            raise Refused(HTTPStatus.NOT_FOUND, "the page has no such section")
        return html(f"sections/{name}.html", section=page.section(name, request))

    @router.get("/changes")
    def changes(request: Request) -> Response:
        """Events: which sections have changed. A stream ends after 20 seconds; browsers connect again."""
        who = visitor(page.served, request, *ANY_SCOPE)
        seen = request.headers.get("last-event-id") or request.query_params.get("seen", "")
        events = _changes(page, sections_for(who), seen)
        return StreamingResponse(events, media_type=_EVENTS, headers=HEADERS)

    return router


async def _changes(page: Page, names: list[str], seen: str) -> AsyncIterator[str]:
    """Server-sent events with the names of sections that have changed. The time is bounded: else no server could stop.

    Args:
        page: of the run.
        names: of the sections.
        seen: their versions that the browser has, as an event's id has them.
    """
    yield f"retry: {_AGAIN_MILLISECONDS}\n\n"
    last = dict(zip(names, seen.split("."), strict=False))
    until = time.monotonic() + _STREAM_SECONDS
    while time.monotonic() < until:
        try:
            versions = await to_thread.run_sync(page.board.versions)
        except S3TError:  # the stream ends; the next request is answered with the reason
            return
        now = {name: versions[name] for name in names}
        if changed := [name for name in names if now[name] != last.get(name)]:
            last = now
            yield f"id: {'.'.join(now.values())}\nevent: changed\ndata: {json.dumps(changed)}\n\n"
        await sleep(_LOOK_SECONDS)


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
    async def static(name: str) -> Response:
        if (response := asset_response(name)) is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such file")
        return response

    return router
