"""Routes of one run. Annotations are values here, not texts: FastAPI reads them, and some name what is around them."""

import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar, cast

from anyio import sleep, to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from s3t.errors import S3TError
from s3t.json_text import JsonError, read_json
from s3t.results.answers import Predictions
from s3t.results.changes import Deletion
from s3t.results.log import Location, LogEntry
from s3t.results.serving import Held, Repair
from s3t.results.state import Forecast, Status
from s3t_server import deleting
from s3t_server.answering import EVENTS, GENERATION_HEADER, answer
from s3t_server.callers import Caller
from s3t_server.documents import (
    MOST_ID,
    DeletionRequest,
    NamesRequest,
    PlannedRequest,
    PredictRequest,
    PredictResponse,
    RefusalRequest,
    RefusalsRequest,
    RepairRequest,
)
from s3t_server.problems import MEDIA_TYPE, Refused, wrong_input
from s3t_server.served import ServedRun

_BEARER = HTTPBearer(auto_error=False, description="A token of the run, made with `s3t token create`.")
_PROBLEM = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


_EVENT_SECONDS, _STREAM_SECONDS = 0.25, 20.0
T = TypeVar("T")


def refusals(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Statuses with which a route may refuse a request, for the OpenAPI document."""
    return {int(status): {"description": status.phrase, **_PROBLEM} for status in statuses}


OF_A_BODY = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
"""Refusals of a request that has a body."""
_OF_ALL = refusals(
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_NOT_FOUND, _CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT


class _StrictRequest(Request):
    async def json(self) -> Any:
        try:
            return read_json(await self.body())
        except JsonError as error:
            problem = f"body: {error}"
        raise wrong_input([problem])


class _StrictRoute(APIRoute):
    """A route that looks at the token before it reads the body, and refuses JSON that gives a key twice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with both around it."""
        handle = super().get_route_handler()
        admissions = [each.call for each in self.dependant.dependencies if isinstance(each.call, Requires)]

        async def strict(request: Request) -> Response:
            for admission in admissions:
                await admission.admit(request)
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def group(tag: str, *dependencies: Any) -> APIRouter:
    """A router for some routes of a run. Their bodies are read strictly."""
    return APIRouter(route_class=_StrictRoute, tags=[tag], responses=_OF_ALL, dependencies=dependencies)


class Requires:
    """A dependency: the caller of a route that needs one of some scopes, admitted before the body is read."""

    def __init__(self, served: ServedRun, *scopes: str) -> None:
        self._served, self._scopes = served, scopes

    async def admit(self, request: Request) -> None:
        who = await self._served.callers.admit(request.headers.get("authorization"), self._scopes)
        note_caller(self._served, request, who)
        request.state.caller = who

    async def __call__(self, request: Request, _documented: Annotated[Any, Depends(_BEARER)] = None) -> Caller:
        return cast(Caller, request.state.caller)


def note_caller(served: ServedRun, request: Request, who: Caller) -> None:
    """Name the caller in the request's line of the log."""
    request.scope["state"].setdefault("log", {}).update(run=served.name, token=who.name)


def router_of(served: ServedRun) -> APIRouter:
    """All routes of a run, below its prefix."""
    router = APIRouter()
    for part in (_answers, _deletions, _held, _repairs, _state):
        router.include_router(part(served))
    return router


def _answers(served: ServedRun) -> APIRouter:
    router = group("answers", Depends(Requires(served, "predict")))

    @router.post("/predict", summary="Answer inputs", response_model=PredictResponse, responses=refusals(*OF_A_BODY))
    async def predict(asked: PredictRequest) -> Response:
        """The ensemble's answer to each input, by the newest generation, which header and body name."""
        return await answer(served, asked.inputs, partial(_plain, run=served.name, top=asked.top))

    return router


def _plain(predictions: Predictions, *, run: str, top: int | None) -> dict[str, Any]:
    """The shape of `POST /v1/predict`."""
    document = predictions.to_json(top=top)
    for row in document["predictions"]:
        del row["generation"]  # it is that of all
    return {"run": run, **document}


_Limit = Annotated[int | None, Query(ge=1, le=10_000, description="List at most this number.")]
_After = Annotated[str | None, Query(max_length=200, description="Begin after the entry with this id.")]


def _part(entries: Sequence[T], ids: Sequence[str], after: str | None, limit: int | None) -> list[T]:
    """A page of a list."""
    if after is not None and after not in ids:
        raise Refused(_NOT_FOUND, "after: the list has no entry of that id")
    first = 0 if after is None else ids.index(after) + 1
    return list(entries[first : None if limit is None else first + limit])


def _deletions(served: ServedRun) -> APIRouter:
    router = group("deletions")
    reader = Annotated[Caller, Depends(Requires(served, "delete", "operate", "audit"))]

    @router.post(
        "/deletions",
        status_code=HTTPStatus.ACCEPTED,
        summary="Delete records and people",
        response_model=Deletion,
        responses=refusals(*OF_A_BODY, _NOT_FOUND, _CONFLICT),
    )
    async def delete(
        asked: DeletionRequest,
        caller: Annotated[Caller, Depends(Requires(served, "delete"))],
        idempotency_key: Annotated[
            str | None, Header(max_length=200, description="A request that is made again with it does nothing more.")
        ] = None,
    ) -> Any:
        """Once it is answered, the records are durably out of use. `GET /deletions/{id}` says when they are erased."""
        done = await deleting.delete(served, asked, caller, key=idempotency_key)
        if caller.may("operate"):
            return done
        told = done.model_copy(update={"log": tuple(_entry(entry, caller) for entry in done.log)})
        return JSONResponse(told.model_dump(mode="json", exclude=Deletion.PLACES), HTTPStatus.ACCEPTED)

    @router.get("/deletions", summary="List deletions", responses=refusals(_NOT_FOUND))
    def deletions(caller: reader, limit: _Limit = None, after: _After = None) -> dict[str, list[LogEntry]]:
        """Every deletion with its times, without names; entry 0 is the making of the run."""
        found = [_entry(entry, caller) for entry in served.run.log()]
        return {"deletions": _part(found, [str(entry.generation) for entry in found], after, limit)}

    @router.get("/deletions/{id}", summary="Follow a deletion", responses=refusals(_NOT_FOUND))
    def deletion(
        id: Annotated[int, Path(ge=1, le=MOST_ID, description="The deletion's id.")], caller: reader
    ) -> LogEntry:
        """When it was received, accepted, effective (no answer uses it) and erased (no byte is left)."""
        for entry in served.run.log([id]):
            return _entry(entry, caller)
        raise Refused(_NOT_FOUND, f"there is no deletion {id}")

    return router


def _entry(entry: LogEntry, caller: Caller) -> LogEntry:
    """A deletion in the log. Names of exports tell in which shard its records lay, so operators alone get them."""
    return entry if caller.may("operate") else entry.model_copy(update={"to_withdraw": None})


def _held(served: ServedRun) -> APIRouter:
    router = group("held deletions")
    operator = Annotated[Caller, Depends(Requires(served, "operate"))]
    reader = Annotated[Caller, Depends(Requires(served, "delete", "operate", "audit"))]

    @router.get("/held", summary="List held deletions", responses=refusals(_NOT_FOUND))
    def all_held(
        _caller: reader,
        limit: _Limit = None,
        after: _After = None,
        state: Annotated[
            Literal["held", "approved", "done", "refused"] | None,
            Query(description="Only those in this state."),
        ] = None,
        asked_by: Annotated[
            str | None, Query(max_length=200, description="Only those of the token of this name.")
        ] = None,
    ) -> dict[str, list[Held]]:
        """Requests that waited for an operator, or still do, the newest first; without names."""
        every = served.run.approvals.all() if state != "held" else served.run.approvals.waiting()
        found = [held for held in every if state in (None, held.state) and asked_by in (None, held.asked_by)]
        return {"held": _part(found, [held.id for held in found], after, limit)}

    @router.post("/held/refuse", summary="Refuse all that wait of one caller", responses=refusals(*OF_A_BODY))
    def refuse_all(asked: RefusalsRequest, caller: operator) -> dict[str, list[Held]]:
        """Refuse each of them, as the route for one request does. Answers those that were refused."""
        refused = served.run.approvals.refuse_all(asked.asked_by, by=caller.ledger_name, reason=asked.reason)
        return {"held": list(refused)}

    @router.get("/held/{id}", summary="Follow a held deletion", responses=refusals(_NOT_FOUND))
    def one(id: str, caller: reader) -> PlannedRequest:
        """Its state, and the deletion that it became. For operators, while it waits, what it would do."""
        held, plan = deleting.held_request(served, id), None
        if held.state == "held" and caller.may("operate"):
            plan = served.run.approvals.impact(held)
        return PlannedRequest(**dict(held), plan=plan)

    @router.post("/held/{id}/approve", summary="Approve a held deletion", responses=refusals(_NOT_FOUND, _CONFLICT))
    async def approve(id: str, caller: operator) -> Held:
        """Carry it out. Not with the token that asked for it."""
        return await deleting.approve(served, id, caller)

    @router.post(
        "/held/{id}/refuse",
        summary="Refuse a held deletion",
        responses=refusals(*OF_A_BODY, _NOT_FOUND, _CONFLICT),
    )
    def refuse(id: str, asked: RefusalRequest, caller: operator) -> Held:
        """Delete nothing, and forget its names. The reason is kept, and shown to the caller that asked."""
        return deleting.refuse(served, id, caller, reason=asked.reason)

    return router


def _repairs(served: ServedRun) -> APIRouter:
    router = group("repairs")
    operator = Annotated[Caller, Depends(Requires(served, "operate"))]

    @router.post(
        "/repairs",
        status_code=HTTPStatus.ACCEPTED,
        summary="Begin a repair",
        responses=refusals(*OF_A_BODY, _CONFLICT),
    )
    def repair(asked: RepairRequest, caller: operator) -> Repair:
        """Train what deletions cost, in a process of its own, while the server goes on answering."""
        begun = served.repairs.begin(asked_by=caller.ledger_name, hours=asked.hours)
        if begun is None:
            raise Refused(_CONFLICT, "a repair of this run is under way; GET /v1/repairs lists it")
        return begun

    @router.get("/repairs", summary="List repairs", responses=refusals(_NOT_FOUND))
    def repairs(_caller: operator, limit: _Limit = None, after: _After = None) -> dict[str, list[Repair]]:
        """The newest first."""
        found = served.repairs.all()
        return {"repairs": _part(found, [repair.id for repair in found], after, limit)}

    described = {"description": "The repair, or events", "model": Repair, "content": {EVENTS: {}}}

    @router.get("/repairs/{id}", summary="Follow a repair", responses=refusals(_NOT_FOUND) | {200: described})
    def one_repair(
        id: str, _caller: operator, accept: Annotated[str, Header(include_in_schema=False)] = ""
    ) -> Response:
        """Its state; with `Accept: text/event-stream` an event whenever that changes, until it has ended.

        A stream ends after 20 seconds; browsers then ask again by themselves.
        """
        repair = served.repairs.find(id)
        if repair is None:
            raise Refused(_NOT_FOUND, "there is no such repair")
        if EVENTS in accept:
            return StreamingResponse(_events(served, id), media_type=EVENTS, headers={"Cache-Control": "no-store"})
        return JSONResponse(repair.to_json())

    return router


async def _events(served: ServedRun, id: str) -> AsyncIterator[str]:
    """Server-sent events of a repair: `progress` whenever it changes. A bounded time: else no server could stop."""
    last, until = "", time.monotonic() + _STREAM_SECONDS
    while time.monotonic() < until:
        try:
            repair = await to_thread.run_sync(served.repairs.find, id)
        except S3TError:  # the stream ends; who asks again gets a problem document
            return
        if repair is None:
            return
        text = json.dumps(repair.to_json())
        if text != last:
            last = text
            yield f"event: progress\ndata: {text}\n\n"
        if repair.ended_at is not None:
            return
        await sleep(_EVENT_SECONDS)


def _state(served: ServedRun) -> APIRouter:
    router = group("state", Depends(Requires(served, "operate")))

    @router.get("/status", summary="What is alive")
    def status(response: Response) -> Status:
        """The document of `s3t status --json`."""
        now = served.run.status(full=True)
        response.headers[GENERATION_HEADER] = str(now.generation)
        return now

    @router.post("/locate", summary="Look records and people up", responses=refusals(*OF_A_BODY))
    def locate(asked: NamesRequest) -> dict[str, list[Location]]:
        """Each name: present and where, deleted and when, or never held. Names are in the body, so in no log."""
        asked.check_count(served.settings.max_names)
        return {"located": list(served.run.locate(**asked.model_dump()))}

    @router.get("/forecast", summary="How long it lasts")
    def forecast() -> dict[str, Forecast | None]:
        """Expected numbers of deletions, without repair, until shards lose depth and die."""
        return {"forecast": served.run.forecast()}

    return router
