"""Routes of a run's page. Those that do something call the functions that the routes of `/v1` call.

Addresses in the page are relative: the first run has it at two addresses. Names are in the bodies of requests and
answers alone, never in an address, which browsers and proxies keep.
"""

import json
import secrets
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute

from s3t.errors import InputError, S3TError
from s3t.wording import counted
from s3t_server import deleting
from s3t_server.answering import EVENTS
from s3t_server.callers import HOW
from s3t_server.documents import MAX_NAMES, DeletionRequest, RepairRequest
from s3t_server.page.board import ANY_SCOPE, SCOPES, Board
from s3t_server.page.rendering import HEADERS, TYPES, asset, html
from s3t_server.page.sections import Desk, Visit, sections_for
from s3t_server.page.visitors import form_of, sign_in, sign_out, visit_of, wrong_form
from s3t_server.problems import Refused, refusal_of
from s3t_server.routes import event_stream

_LOOK_SECONDS = 0.5


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


ROUTER = APIRouter(route_class=PageRoute, include_in_schema=False)
STATIC = APIRouter(include_in_schema=False)
_Form = Annotated[Mapping[str, str], Depends(form_of)]


def _allowed(*scopes: str) -> Any:
    """A dependency: the visit to a route that needs one of some scopes."""

    def visit(request: Request) -> Visit:
        return visit_of(request, *scopes)

    return Depends(visit)


_Anybody = Annotated[Visit, _allowed(*ANY_SCOPE)]
_Operator = Annotated[Visit, _allowed("operate")]


@STATIC.get("/static/{name}")
async def static(name: str, v: str = "") -> Response:
    """Script, style sheet and icon, which hold nothing of a run. `v` may be that of another release."""
    if name not in TYPES:
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such file")
    content, newest = asset(name)
    kept = {"Cache-Control": "public, max-age=31536000, immutable"} if v == newest else {}
    return Response(content, media_type=TYPES[name], headers=HEADERS | kept)


@ROUTER.get("/")
def whole(visit: _Anybody) -> Response:
    """The page; without a token the form to sign in."""
    return visit.page()


@ROUTER.get("/sections/{name}")
def section(name: str, request: Request) -> Response:
    visit = visit_of(request, *SCOPES.get(name, ANY_SCOPE))
    if name not in SCOPES:
        raise Refused(HTTPStatus.NOT_FOUND, "the page has no such section")
    return visit.part(name)


@ROUTER.get("/changes")
def changes(visit: _Anybody, seen: str = "") -> Response:
    """Events: sections that have changed since `seen`. A stream ends after 20 s; the script opens another."""
    shown = {name: version for name, version in _of_text(seen).items() if name in sections_for(visit.who)}
    looks, limiter = _changes(visit.served.board, shown), visit.served.looking
    events = event_stream(looks, pause=_LOOK_SECONDS, limiter=limiter)
    return StreamingResponse(events, media_type=EVENTS, headers=HEADERS)


def _changes(board: Board, seen: dict[str, str]) -> Iterator[str]:
    """Events with the names of sections that have changed."""
    while True:
        versions = board.versions(board.last_look())
        changed = [name for name, version in seen.items() if versions[name] != version]
        seen = {name: versions[name] for name in seen}
        yield f"event: changed\ndata: {json.dumps(changed)}\n\n" if changed else ""


def _of_text(text: str) -> dict[str, str]:
    """Versions of sections, as the script sends them.

    >>> _of_text("shards-a1.notes-b2")
    {'shards': 'a1', 'notes': 'b2'}
    """
    pairs = (each.partition("-") for each in text.split("."))
    return {name: version for name, _, version in pairs if name in SCOPES}


@ROUTER.post("/sign-in")
def enter(request: Request, form: _Form) -> Response:
    response = _to_page("")
    sign_in(request, response, form.get("token", "").strip())
    return response


@ROUTER.post("/sign-out")
def leave(request: Request, _form: _Form) -> Response:
    response = _to_page("")
    sign_out(request, response)
    return response


@ROUTER.post("/look-up")
async def look_up(form: _Form, visit: Annotated[Visit, _allowed("operate", "delete")]) -> Response:
    """Say where names are, and what their deletion would do."""
    desk = _desk(visit, form)
    try:
        return await _shown(visit, await _looked_up(visit, desk))
    except (Refused, InputError) as error:
        return await _shown(visit, desk, error)


@ROUTER.post("/delete")
async def carry_out(form: _Form, visit: Annotated[Visit, _allowed("delete")]) -> Response:
    desk = _desk(visit, form)
    if form.get("confirmed") != "yes":
        raise wrong_form(["confirmed: a deletion is confirmed first"])
    try:
        done = await deleting.delete(visit.served, _request(visit, desk), visit.who, key=form.get("key") or None)
    except (Refused, InputError) as error:
        return await _shown(visit, desk, error)
    if done.held is not None:
        return _to_page(f"?held={done.held}#held")
    gone, never = len(done.already or ()), len(done.unknown or ())
    if done.id is not None:
        unknown = f"&unknown={never}" if never else ""
        return _to_page(f"?done={done.id}{unknown}#done")
    said = f"Nothing was deleted: {counted(gone, 'name')} deleted before, {counted(never, 'name')} unknown."
    return await _shown(visit, replace(desk, said=said))


@ROUTER.post("/repair")
def repair(form: _Form, visit: _Operator) -> Response:
    hours = _hours(form.get("hours", "").strip())
    if visit.served.repairs.begin(asked_by=visit.who.ledger_name, hours=hours) is None:
        raise Refused(HTTPStatus.CONFLICT, "a repair of this run is under way; the page shows its progress")
    return _to_page("#repairs")


@ROUTER.post("/approve")
async def approve(form: _Form, visit: _Operator) -> Response:
    done = await deleting.approve(visit.served, form.get("id", ""), visit.who)
    return _to_page("#held" if done.deletion is None else f"?done={done.deletion}#done")


@ROUTER.post("/refuse")
def refuse(form: _Form, visit: _Operator) -> Response:
    deleting.refuse(visit.served, form.get("id", ""), visit.who, reason=form.get("reason", ""))
    return _to_page("#held")


@ROUTER.post("/refuse-all")
def refuse_all(form: _Form, visit: _Operator) -> Response:
    approvals, reason = visit.served.run.approvals, form.get("reason", "")
    approvals.refuse_all(form.get("asked_by", ""), by=visit.who.ledger_name, reason=reason)
    return _to_page("#held")


def _to_page(where: str) -> Response:
    return RedirectResponse(f"./{where}", HTTPStatus.SEE_OTHER, HEADERS)


async def _shown(visit: Visit, desk: Desk, error: Refused | InputError | None = None) -> Response:
    """The page with a desk, and perhaps with the problems of what was typed; no name is quoted."""
    if error is None:
        return await to_thread.run_sync(visit.page, HTTPStatus.OK, desk)
    if isinstance(error, Refused) and error.status_code != HTTPStatus.UNPROCESSABLE_ENTITY:
        raise error
    desk = replace(desk, problems=tuple(error.problems))
    return await to_thread.run_sync(visit.page, HTTPStatus.UNPROCESSABLE_ENTITY, desk)


def _desk(visit: Visit, form: Mapping[str, str]) -> Desk:
    kind = "subjects" if visit.served.has_subjects and form.get("kind") == "subjects" else "records"
    return Desk(kind=kind, names=form.get("names", "").replace("\r\n", "\n").strip("\n"))


def _request(visit: Visit, desk: Desk, *, dry_run: bool = False) -> DeletionRequest:
    names, most = len(desk.lines), min(visit.served.settings.max_names, MAX_NAMES)
    if not 0 < names <= most:
        raise wrong_form([f"{counted(names, 'name')}; give 1 to {most:,}"])
    return DeletionRequest.model_validate({desk.kind: desk.lines, "dry_run": dry_run})


async def _looked_up(visit: Visit, desk: Desk) -> Desk:
    """Places of names and consequences of their deletion, as far as the visitor may know them."""
    asked, served, who = _request(visit, desk, dry_run=True), visit.served, visit.who
    if not who.may("operate"):  # where records lie, and what a deletion costs, is told to operators alone
        return replace(desk, asks=True, key=secrets.token_urlsafe(16))
    act = partial(served.run.locate, records=asked.records, subjects=asked.subjects)
    located = await to_thread.run_sync(act, limiter=served.deletions)
    desk = replace(desk, found=located)
    if not who.may("delete") or not any(each.present or each.unreadable for each in located):
        return desk
    forecast = await deleting.delete(served, asked, who)
    return replace(desk, forecast=forecast, asks=True, key=secrets.token_urlsafe(16))


def _hours(text: str) -> float | None:
    if not text:
        return None
    try:
        return RepairRequest.model_validate({"hours": float(text)}).hours
    except ValueError:  # pydantic's is one
        raise wrong_form(["hours: give a number above 0, such as 0.5, or nothing"]) from None
