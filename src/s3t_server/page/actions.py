"""Actions of the page: look names up, delete, repair, decide. They call the functions that the routes of `/v1` call.

Names are in the bodies of requests and answers alone, never in an address, which browsers and proxies keep.
"""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from s3t.errors import InputError
from s3t.wording import counted
from s3t_server.callers import Caller
from s3t_server.deleting import approve, delete, dry_run, refuse
from s3t_server.documents import MAX_NAMES, DeletionRequest, RepairRequest
from s3t_server.page.consequences import consequences, location_in_words
from s3t_server.page.rendering import HEADERS
from s3t_server.page.sections import Desk, Page
from s3t_server.page.visitors import form_of, visitor, wrong_form
from s3t_server.problems import Refused


def add_actions(router: APIRouter, page: Page) -> None:
    """Add the routes of forms."""

    @router.post("/look-up")
    async def look_up(request: Request) -> Response:
        """Say where names are, and what their deletion would do."""
        fields = await form_of(request)
        who = await to_thread.run_sync(visitor, page.served, request, "operate", "delete")
        desk = _desk(page, fields)
        try:
            shown = await _looked_up(page, desk, who)
        except (Refused, InputError) as error:
            return await _shown(
                page, who, request, replace(desk, problems=_problems(error)), HTTPStatus.UNPROCESSABLE_ENTITY
            )
        return await _shown(page, who, request, shown)

    @router.post("/delete")
    async def carry_out(request: Request) -> Response:
        """Delete, as the visitor has confirmed."""
        fields = await form_of(request)
        who = await to_thread.run_sync(visitor, page.served, request, "delete")
        desk = _desk(page, fields)
        if fields.get("confirmed") != "yes":
            raise wrong_form(["confirmed: a deletion is confirmed first"])
        try:
            done = await delete(page.served, _request(page, desk), who, key=fields.get("key") or None)
        except (Refused, InputError) as error:
            return await _shown(
                page, who, request, replace(desk, problems=_problems(error)), HTTPStatus.UNPROCESSABLE_ENTITY
            )
        if done.held is not None:
            return _to_page(f"?held={done.held}#held")
        gone, never = len(done.already or ()), len(done.unknown or ())
        if done.id is not None:
            unknown = f"&unknown={never}" if never else ""
            return _to_page(f"?done={done.id}{unknown}#done")
        said = f"Nothing was deleted: {counted(gone, 'name')} deleted before, {counted(never, 'name')} unknown."
        return await _shown(page, who, request, replace(desk, said=said))

    _add_repair(router, page)
    _add_decisions(router, page)


def _add_repair(router: APIRouter, page: Page) -> None:
    @router.post("/repair")
    async def repair(request: Request) -> Response:
        """Begin a repair."""
        fields = await form_of(request)
        who = await to_thread.run_sync(visitor, page.served, request, "operate")
        hours = _hours(fields.get("hours", "").strip())
        act = partial(page.served.repairs.begin, asked_by=who.ledger_name, hours=hours)
        if await to_thread.run_sync(act) is None:
            raise Refused(HTTPStatus.CONFLICT, "a repair of this run is under way; the page shows its progress")
        return _to_page("#repairs")


def _add_decisions(router: APIRouter, page: Page) -> None:
    @router.post("/approve")
    async def approved(request: Request) -> Response:
        """Carry a held request out."""
        fields = await form_of(request)
        who = await to_thread.run_sync(visitor, page.served, request, "operate")
        done = await approve(page.served, fields.get("id", ""), who)
        return _to_page("#held" if done.generation is None else f"?done={done.generation}#done")

    @router.post("/refuse")
    async def refused(request: Request) -> Response:
        """Refuse a held request, with a reason."""
        fields = await form_of(request)
        who = await to_thread.run_sync(visitor, page.served, request, "operate")
        reason = fields.get("reason", "")
        await to_thread.run_sync(partial(refuse, page.served, fields.get("id", ""), who, reason=reason))
        return _to_page("#held")


def _to_page(where: str) -> Response:
    return RedirectResponse(f"./{where}", HTTPStatus.SEE_OTHER, HEADERS)


async def _shown(page: Page, who: Caller, request: Request, desk: Desk, status: int = HTTPStatus.OK) -> Response:
    return await to_thread.run_sync(page.whole, who, request, status, desk)


def _desk(page: Page, fields: Mapping[str, str]) -> Desk:
    kind = "subjects" if page.has_subjects and fields.get("kind") == "subjects" else "records"
    return Desk(kind=kind, names=fields.get("names", "").replace("\r\n", "\n").strip("\n"))


def _request(page: Page, desk: Desk, *, dry_run: bool = False) -> DeletionRequest:
    """Names that were typed."""
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
    located = await to_thread.run_sync(act, limiter=page.served.deletions)
    desk = replace(desk, found=tuple((each.name, location_in_words(each)) for each in located))
    if not who.may("delete") or not any(each.present or each.unreadable for each in located):
        return desk
    cost = consequences(await dry_run(served, asked, who), name="after")
    return replace(desk, consequences=cost, asks=True, key=secrets.token_urlsafe(16))


def _problems(error: Refused | InputError) -> tuple[str, ...]:
    """Problems of what was typed; no name is quoted."""
    if isinstance(error, Refused) and error.status_code != HTTPStatus.UNPROCESSABLE_ENTITY:
        raise error
    return tuple(error.problems)


def _hours(text: str) -> float | None:
    """Hours that were typed."""
    if not text:
        return None
    try:
        return RepairRequest.model_validate({"hours": float(text)}).hours
    except ValueError:  # pydantic's is one
        raise wrong_form(["hours: give a number above 0, such as 0.5, or nothing"]) from None
