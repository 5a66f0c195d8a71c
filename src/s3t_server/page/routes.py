"""Routes of a run's page. Those that do something call the functions that the routes of `/v1` call.

Annotations are values here, as in `s3t_server.routes`. Addresses in the page are relative: the first run has it at two
addresses. Names are in the bodies of requests and answers alone, never in an address, which browsers and proxies keep.
"""

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from anyio import CapacityLimiter, sleep, to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute

from s3t.errors import InputError, S3TError
from s3t.wording import counted
from s3t_server.answering import EVENTS
from s3t_server.callers import HOW, Caller
from s3t_server.deleting import approve, delete, refuse
from s3t_server.documents import MAX_NAMES, DeletionRequest, RepairRequest
from s3t_server.page.board import ANY_SCOPE, SCOPES
from s3t_server.page.rendering import HEADERS, asset_response, html
from s3t_server.page.sections import Desk, Page, sections_for
from s3t_server.page.visitors import form_of, sign_in, sign_out, visitor, wrong_form
from s3t_server.problems import Refused, refusal_of

_LOOK_SECONDS, _STREAM_SECONDS = 0.5, 20.0
_LOOKING_THREADS = 4
"""Threads of all streams of a run: while one computes a forecast, they must not keep the threads that answer."""
_Form = Annotated[Mapping[str, str], Depends(form_of)]


class PageRoute(APIRoute):
    """Route that answers refusals with pages: 401 with the form to sign in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except (Refused, S3TError) as error:
                refused = refusal_of(error)
            if refused.status_code == HTTPStatus.UNAUTHORIZED:
                reason = str(refused.detail).removesuffix(HOW).removesuffix("; ")
                return html("sign_in.html", refused.status_code, problem=reason)
            response = html("refused.html", refused.status_code, refused=refused)
            response.headers.update(refused.headers or {})
            return response

        return handle


def page_of(page: Page) -> APIRouter:
    router = APIRouter(route_class=PageRoute, include_in_schema=False)
    _add_views(router, page)
    _add_signing_in(router, page)
    _add_deletion(router, page)
    _add_operations(router, page)
    return router


def _allowed(page: Page, *scopes: str) -> Any:
    """A dependency: the visitor of a route that needs one of some scopes."""

    def who(request: Request) -> Caller:
        return visitor(page.served, request, *scopes)

    return Depends(who)


def _add_views(router: APIRouter, page: Page) -> None:
    looking = CapacityLimiter(_LOOKING_THREADS)

    @router.get("/")
    def whole(request: Request, who: Annotated[Caller, _allowed(page, *ANY_SCOPE)]) -> Response:
        """The page; without a token the form to sign in."""
        return page.whole(who, request)

    @router.get("/sections/{name}")
    def section(name: str, request: Request) -> Response:
        who = visitor(page.served, request, *SCOPES.get(name, ANY_SCOPE))
        if name not in SCOPES:
            raise Refused(HTTPStatus.NOT_FOUND, "the page has no such section")
        return page.part(name, who, request)

    @router.get("/changes")
    def changes(who: Annotated[Caller, _allowed(page, *ANY_SCOPE)], seen: str = "") -> Response:
        """Events: sections that have changed since `seen`. A stream ends after 20 s; the script opens another."""
        shown = {name: version for name, version in _of_text(seen).items() if name in sections_for(who)}
        return StreamingResponse(_changes(page, shown, looking), media_type=EVENTS, headers=HEADERS)


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
    def enter(request: Request, form: _Form) -> Response:
        response = _to_page("")
        sign_in(page.served, request, response, form.get("token", "").strip(), *ANY_SCOPE)
        return response

    @router.post("/sign-out")
    def leave(request: Request, _form: _Form) -> Response:
        response = _to_page("")
        sign_out(page.served, request, response)
        return response


def _add_deletion(router: APIRouter, page: Page) -> None:
    @router.post("/look-up")
    async def look_up(
        request: Request, form: _Form, who: Annotated[Caller, _allowed(page, "operate", "delete")]
    ) -> Response:
        """Say where names are, and what their deletion would do."""
        desk = _desk(page, form)
        try:
            return await _shown(page, who, request, await _looked_up(page, desk, who))
        except (Refused, InputError) as error:
            return await _shown(page, who, request, desk, error)

    @router.post("/delete")
    async def carry_out(request: Request, form: _Form, who: Annotated[Caller, _allowed(page, "delete")]) -> Response:
        desk = _desk(page, form)
        if form.get("confirmed") != "yes":
            raise wrong_form(["confirmed: a deletion is confirmed first"])
        try:
            done = await delete(page.served, _request(page, desk), who, key=form.get("key") or None)
        except (Refused, InputError) as error:
            return await _shown(page, who, request, desk, error)
        if done.held is not None:
            return _to_page(f"?held={done.held}#held")
        gone, never = len(done.already or ()), len(done.unknown or ())
        if done.id is not None:
            unknown = f"&unknown={never}" if never else ""
            return _to_page(f"?done={done.id}{unknown}#done")
        said = f"Nothing was deleted: {counted(gone, 'name')} deleted before, {counted(never, 'name')} unknown."
        return await _shown(page, who, request, replace(desk, said=said))


def _add_operations(router: APIRouter, page: Page) -> None:
    operator = Annotated[Caller, _allowed(page, "operate")]

    @router.post("/repair")
    def repair(form: _Form, who: operator) -> Response:
        hours = _hours(form.get("hours", "").strip())
        if page.served.repairs.begin(asked_by=who.ledger_name, hours=hours) is None:
            raise Refused(HTTPStatus.CONFLICT, "a repair of this run is under way; the page shows its progress")
        return _to_page("#repairs")

    @router.post("/approve")
    async def approved(form: _Form, who: operator) -> Response:
        done = await approve(page.served, form.get("id", ""), who)
        return _to_page("#held" if done.deletion is None else f"?done={done.deletion}#done")

    @router.post("/refuse")
    def refused(form: _Form, who: operator) -> Response:
        refuse(page.served, form.get("id", ""), who, reason=form.get("reason", ""))
        return _to_page("#held")

    @router.post("/refuse-all")
    def all_refused(form: _Form, who: operator) -> Response:
        reason = form.get("reason", "")
        page.served.run.approvals.refuse_all(form.get("asked_by", ""), by=who.ledger_name, reason=reason)
        return _to_page("#held")


def _to_page(where: str) -> Response:
    return RedirectResponse(f"./{where}", HTTPStatus.SEE_OTHER, HEADERS)


async def _shown(
    page: Page, who: Caller, request: Request, desk: Desk, error: Refused | InputError | None = None
) -> Response:
    """The page with a desk, and perhaps with the problems of what was typed; no name is quoted."""
    if isinstance(error, Refused) and error.status_code != HTTPStatus.UNPROCESSABLE_ENTITY:
        raise error
    status = HTTPStatus.OK if error is None else HTTPStatus.UNPROCESSABLE_ENTITY
    desk = desk if error is None else replace(desk, problems=tuple(error.problems))
    return await to_thread.run_sync(page.whole, who, request, status, desk)


def _desk(page: Page, form: Mapping[str, str]) -> Desk:
    kind = "subjects" if page.has_subjects and form.get("kind") == "subjects" else "records"
    return Desk(kind=kind, names=form.get("names", "").replace("\r\n", "\n").strip("\n"))


def _request(page: Page, desk: Desk, *, dry_run: bool = False) -> DeletionRequest:
    names, most = len(desk.lines), min(page.served.settings.max_names, MAX_NAMES)
    if not 0 < names <= most:
        raise wrong_form([f"{counted(names, 'name')}; give 1 to {most:,}"])
    return DeletionRequest.model_validate({desk.kind: desk.lines, "dry_run": dry_run})


async def _looked_up(page: Page, desk: Desk, who: Caller) -> Desk:
    """Places of names and consequences of their deletion, as far as the visitor may know them."""
    asked, served = _request(page, desk, dry_run=True), page.served
    if not who.may("operate"):  # where records lie, and what a deletion costs, is told to operators alone
        return replace(desk, asks=True, key=secrets.token_urlsafe(16))
    act = partial(served.run.locate, records=asked.records, subjects=asked.subjects)
    located = await to_thread.run_sync(act, limiter=served.deletions)
    desk = replace(desk, found=located)
    if not who.may("delete") or not any(each.present or each.unreadable for each in located):
        return desk
    return replace(desk, forecast=await delete(served, asked, who), asks=True, key=secrets.token_urlsafe(16))


def _hours(text: str) -> float | None:
    if not text:
        return None
    try:
        return RepairRequest.model_validate({"hours": float(text)}).hours
    except ValueError:  # pydantic's is one
        raise wrong_form(["hours: give a number above 0, such as 0.5, or nothing"]) from None


def static_files() -> APIRouter:
    """Script, style sheet and icon, which hold nothing of a run."""
    router = APIRouter(include_in_schema=False)

    @router.get("/static/{name}")
    async def static(name: str, v: str = "") -> Response:
        if (response := asset_response(name, v)) is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such file")
        return response

    return router
