"""Routes of a run, below its address."""

import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar, cast

from anyio import CapacityLimiter, sleep, to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from s3t.errors import S3TError
from s3t.json_text import JsonError, read_json
from s3t.results.answers import Predictions
from s3t.results.changes import Added, Deletion
from s3t.results.log import AdditionEntry, Location, LogEntry
from s3t.results.serving import Approved, Held, Repair
from s3t.results.state import Forecast, Status
from s3t_server import deleting
from s3t_server.answering import EVENTS, GENERATION_HEADER, answer
from s3t_server.callers import Caller
from s3t_server.documents import (
    MOST_ID,
    AdditionRequest,
    DeletionRequest,
    NamesRequest,
    PlannedRequest,
    PredictRequest,
    PredictResponse,
    RefusalRequest,
    RefusalsRequest,
    RepairRequest,
    rows_of,
)
from s3t_server.problems import MEDIA_TYPE, Refused, wrong_input
from s3t_server.served import ServedRun

_BEARER = HTTPBearer(auto_error=False, description="A token of the run, made with `s3t token create`.")
_PROBLEM = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_EVENT_SECONDS, STREAM_SECONDS = 0.25, 20.0
T = TypeVar("T")


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Statuses with which a route may refuse a request, for the OpenAPI document."""
    return {status: {"description": HTTPStatus(status).phrase, **_PROBLEM} for status in statuses}


SHAPES = "shapes of other servers"
"""Title of the routes that answer as other servers do."""
OF_A_BODY = (400, 408, 413)
"""Refusals of a request that has a body."""
_OF_ALL = refusals(401, 403, 422, 429, 503)


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
        handle = super().get_route_handler()
        admissions = [each.call for each in self.dependant.dependencies if isinstance(each.call, Requires)]

        async def strict(request: Request) -> Response:
            for admission in admissions:
                await admission.admit(request)
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


class Requires:
    """A dependency: the caller of a route that needs one of some scopes, admitted before the body is read."""

    def __init__(self, *scopes: str) -> None:
        self._scopes = scopes

    async def admit(self, request: Request) -> None:
        callers = request.state.served.callers
        request.state.caller = await callers.admit(request.headers.get("authorization"), self._scopes)
        note_caller(request, request.state.caller)

    async def __call__(self, request: Request, _documented: Annotated[Any, Depends(_BEARER)] = None) -> Caller:
        return cast(Caller, request.state.caller)


def note_caller(request: Request, who: Caller) -> None:
    """Name the caller in the request's line of the log."""
    request.scope["state"].setdefault("log", {}).update(run=request.state.served.name, token=who.name)


async def _served(request: Request) -> ServedRun:
    return cast(ServedRun, request.state.served)


Served = Annotated[ServedRun, Depends(_served)]
"""The run that is asked, by its address."""
_Operator = Annotated[Caller, Depends(Requires("operate"))]
_Reader = Annotated[Caller, Depends(Requires("delete", "operate", "audit"))]


def group(tag: str, *scopes: str, prefix: str = "") -> APIRouter:
    """A router for some routes of a run, which all need one of some scopes. Their bodies are read strictly."""
    needed = [Depends(Requires(*scopes))] if scopes else []
    return APIRouter(route_class=_StrictRoute, prefix=prefix, tags=[tag], responses=_OF_ALL, dependencies=needed)


ANSWERS = group("answers", "predict", prefix="/v1")


@ANSWERS.post("/predict", summary="Answer inputs", response_model=PredictResponse, responses=refusals(*OF_A_BODY))
async def predict(asked: PredictRequest, served: Served) -> Response:
    """The ensemble's answer to each input, by the newest generation, which header and body name."""
    return await answer(served, asked.inputs, partial(_plain, run=served.name, top=asked.top))


def _plain(predictions: Predictions, *, run: str, top: int | None) -> dict[str, Any]:
    """The shape of `POST /v1/predict`."""
    document = predictions.to_json(top=top)
    for row in document["predictions"]:
        del row["generation"]  # it is that of all
    return {"run": run, **document}


_Limit = Annotated[int | None, Query(ge=1, le=10_000, description="List at most this number.")]
_After = Annotated[str | None, Query(max_length=200, description="Begin after the entry with this id.")]


def _part(entries: Sequence[T], ids: Sequence[str], after: str | None, limit: int | None) -> list[T]:
    if after is not None and after not in ids:
        raise Refused(HTTPStatus.NOT_FOUND, "after: the list has no entry of that id")
    first = 0 if after is None else ids.index(after) + 1
    return list(entries[first : None if limit is None else first + limit])


RECORDS = group("records", prefix="/v1/records")


@RECORDS.post("", status_code=HTTPStatus.CREATED, summary="Add records", responses=refusals(*OF_A_BODY))
def add(asked: AdditionRequest, served: Served, caller: Annotated[Caller, Depends(Requires("add"))]) -> Added:
    """All of them, or, if anything is wrong, none. They are learned when the recipe says so, or by `s3t train`."""
    if (asked.replace or asked.readmit or asked.new_labels) and not caller.may("operate"):
        raise Refused(HTTPStatus.FORBIDDEN, "to replace, to readmit or to add labels needs the scope operate, too")
    most = served.settings.hold_records
    if asked.replace and most is not None and len(asked.records) > most:
        detail = f"replace deletes, and more than {most} records at once would need an approval; send fewer"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    rows = rows_of(asked.records, served.run.recipe, served.settings)
    options: dict[str, Any] = asked.model_dump(exclude={"records"})
    done = served.run.add(rows, **options, train=False, wait=False)
    if done.deletion is not None:
        served.metrics.deleted(served.name, done.deletion.deleted)
    return done


ADDITIONS = group("records", "add", "delete", "operate", "audit", prefix="/v1/additions")


@ADDITIONS.get("", summary="List additions", responses=refusals(404))
def additions(served: Served, limit: _Limit = None, after: _After = None) -> dict[str, list[AdditionEntry]]:
    """Every addition with its time, without names, the oldest first."""
    found = served.run.additions()
    return {"additions": _part(found, [str(entry.addition) for entry in found], after, limit)}


DELETIONS = group("deletions", prefix="/v1/deletions")


@DELETIONS.post(
    "",
    status_code=HTTPStatus.ACCEPTED,
    summary="Delete records and people",
    response_model=Deletion,
    responses=refusals(*OF_A_BODY, 404, 409),
)
async def delete(
    asked: DeletionRequest,
    served: Served,
    caller: Annotated[Caller, Depends(Requires("delete"))],
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


@DELETIONS.get("", summary="List deletions", responses=refusals(404))
def deletions(served: Served, caller: _Reader, limit: _Limit = None, after: _After = None) -> dict[str, list[LogEntry]]:
    """Every deletion with its times, without names; entry 0 is the making of the run."""
    found = [_entry(entry, caller) for entry in served.run.log()]
    return {"deletions": _part(found, [str(entry.generation) for entry in found], after, limit)}


@DELETIONS.get("/{id}", summary="Follow a deletion", responses=refusals(404))
def deletion(
    id: Annotated[int, Path(ge=1, le=MOST_ID, description="The deletion's id.")], served: Served, caller: _Reader
) -> LogEntry:
    """When it was received, accepted, effective (no answer uses it) and erased (no byte is left)."""
    for entry in served.run.log([id]):
        return _entry(entry, caller)
    raise Refused(HTTPStatus.NOT_FOUND, f"there is no deletion {id}")


def _entry(entry: LogEntry, caller: Caller) -> LogEntry:
    """A deletion in the log. Names of exports tell in which shard its records lay, so operators alone get them."""
    return entry if caller.may("operate") else entry.model_copy(update={"to_withdraw": None})


HELD = group("held deletions", prefix="/v1/held")


@HELD.get("", summary="List held deletions", responses=refusals(404))
def all_held(
    served: Served,
    _caller: _Reader,
    limit: _Limit = None,
    after: _After = None,
    state: Annotated[
        Literal["held", "approved", "done", "refused"] | None, Query(description="Only those in this state.")
    ] = None,
    asked_by: Annotated[str | None, Query(max_length=200, description="Only those of the token of this name.")] = None,
) -> dict[str, list[Held]]:
    """Requests that waited for an operator, or still do, the newest first; without names."""
    every = served.run.approvals.all() if state != "held" else served.run.approvals.waiting()
    found = [held for held in every if state in (None, held.state) and asked_by in (None, held.asked_by)]
    return {"held": _part(found, [held.id for held in found], after, limit)}


@HELD.post("/refuse", summary="Refuse all that wait of one caller", responses=refusals(*OF_A_BODY))
def refuse_all(asked: RefusalsRequest, served: Served, caller: _Operator) -> dict[str, list[Held]]:
    """Refuse each of them, as the route for one request does. Answers those that were refused."""
    refused = served.run.approvals.refuse_all(asked.asked_by, by=caller.ledger_name, reason=asked.reason)
    return {"held": list(refused)}


@HELD.get("/{id}", summary="Follow a held deletion", responses=refusals(404))
def one(id: str, served: Served, caller: _Reader) -> PlannedRequest:
    """Its state, and the deletion that it became. For operators, while it waits, what it would do."""
    held = deleting.held_request(served, id)
    shown = held.state == "held" and caller.may("operate")
    return PlannedRequest(**dict(held), plan=served.run.approvals.impact(held) if shown else None)


@HELD.post("/{id}/approve", summary="Approve a held deletion", responses=refusals(404, 409))
async def approve(id: str, served: Served, caller: _Operator) -> Approved:
    """Carry it out. Not with the token that asked for it."""
    return await deleting.approve(served, id, caller)


@HELD.post("/{id}/refuse", summary="Refuse a held deletion", responses=refusals(*OF_A_BODY, 404, 409))
def refuse(id: str, asked: RefusalRequest, served: Served, caller: _Operator) -> Held:
    """Delete nothing, and forget its names. The reason is kept, and shown to the caller that asked."""
    return deleting.refuse(served, id, caller, reason=asked.reason)


REPAIRS = group("repairs", prefix="/v1/repairs")
_REPAIR = {"description": "The repair, or events", "model": Repair, "content": {EVENTS: {}}}


@REPAIRS.post("", status_code=HTTPStatus.ACCEPTED, summary="Begin a repair", responses=refusals(*OF_A_BODY, 409))
def repair(asked: RepairRequest, served: Served, caller: _Operator) -> Repair:
    """Train what is missing, in a process of its own, while the server goes on answering."""
    begun = served.repairs.begin(asked_by=caller.ledger_name, hours=asked.hours, learn=asked.learn)
    if begun is None:
        raise Refused(HTTPStatus.CONFLICT, "a repair of this run is under way; GET /v1/repairs lists it")
    return begun


@REPAIRS.get("", summary="List repairs", responses=refusals(404))
def repairs(served: Served, _caller: _Operator, limit: _Limit = None, after: _After = None) -> dict[str, list[Repair]]:
    """The newest first."""
    found = served.repairs.all()
    return {"repairs": _part(found, [repair.id for repair in found], after, limit)}


@REPAIRS.get("/{id}", summary="Follow a repair", responses=refusals(404) | {200: _REPAIR})
def one_repair(
    id: str, served: Served, _caller: _Operator, accept: Annotated[str, Header(include_in_schema=False)] = ""
) -> Response:
    """Its state; with `Accept: text/event-stream` an event whenever that changes, until it has ended.

    A stream ends after 20 seconds; browsers then ask again by themselves.
    """
    repair = served.repairs.find(id)
    if repair is None:
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such repair")
    if EVENTS in accept:
        events = event_stream(_progress(served, id), pause=_EVENT_SECONDS)
        return StreamingResponse(events, media_type=EVENTS)
    return JSONResponse(repair.to_json())


def _progress(served: ServedRun, id: str) -> Iterator[str]:
    """An event whenever a repair has changed, until it has ended."""
    last = None
    while (repair := served.repairs.find(id)) is not None:
        yield "" if repair == last else f"event: progress\ndata: {json.dumps(repair.to_json())}\n\n"
        if repair.ended_at is not None:
            return
        last = repair


async def event_stream(
    looks: Iterator[str], *, pause: float, limiter: CapacityLimiter | None = None
) -> AsyncIterator[str]:
    """Server-sent events: what each look finds, "" for nothing. A bounded time: else no server could stop."""
    yield ": open\n\n"
    until = time.monotonic() + STREAM_SECONDS
    while time.monotonic() < until:
        try:
            event = await to_thread.run_sync(next, looks, None, limiter=limiter)
        except S3TError:  # the stream ends; who asks again gets a problem document
            return
        if event is None:
            return
        if event:
            yield event
        await sleep(pause)


STATE = group("state", "operate", prefix="/v1")


@STATE.get("/status", summary="What is alive")
def status(served: Served, response: Response) -> Status:
    """The document of `s3t status --json`."""
    now = served.run.status(full=True)
    response.headers[GENERATION_HEADER] = str(now.generation)
    return now


@STATE.post("/locate", summary="Look records and people up", responses=refusals(*OF_A_BODY))
def locate(asked: NamesRequest, served: Served) -> dict[str, list[Location]]:
    """Each name: present and where, deleted and when, or never held. Names are in the body, so in no log."""
    asked.check_count(served.settings.max_names)
    return {"located": list(served.run.locate(**asked.model_dump()))}


@STATE.get("/forecast", summary="How long it lasts")
def forecast(served: Served) -> dict[str, Forecast | None]:
    """Expected numbers of deletions, without repair, until shards lose depth and die."""
    return {"forecast": served.run.forecast()}


READINESS = APIRouter(prefix="/v1", tags=["health"])


@READINESS.get("/readyz", summary="The run can answer", responses=refusals(503))
def readyz(served: Served) -> dict[str, str]:
    """A shard or the base model answers, the ledger can be asked, and an engine, if there is one, answers."""
    if (trouble := served.trouble) is not None:
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, trouble)
    return {"status": "ready"}


ROUTERS = (ANSWERS, RECORDS, ADDITIONS, DELETIONS, HELD, REPAIRS, STATE, READINESS)
"""All of them, in the order of the OpenAPI document."""
