"""Routes of one run. Annotations are values here, not texts: FastAPI reads them, and some name what is around them."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from anyio import sleep, to_thread
from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPBearer

from s3t.errors import S3TError
from s3t.results.changes import Deletion
from s3t.results.log import Location, LogEntry
from s3t.results.state import Status
from s3t.run.answers import Predictions
from s3t_server.answering import EVENTS, GENERATION_HEADER, ServedRun, answer
from s3t_server.callers import Caller
from s3t_server.deleting import delete as delete_for
from s3t_server.documents import (
    MOST_ID,
    DeletionRequest,
    NamesRequest,
    PredictRequest,
    PredictResponse,
    RepairRequest,
)
from s3t_server.problems import MEDIA_TYPE, Refused, StrictRoute

_BEARER = HTTPBearer(auto_error=False, description="A token of the run, made with `s3t token create`.")
_PROBLEM = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def problem_responses(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Statuses with which a route may refuse a request, for the OpenAPI document."""
    always = (
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
    return {int(status): {"description": status.phrase, **_PROBLEM} for status in (*always, *statuses)}


_EVENT_SECONDS, _STREAM_SECONDS = 0.25, 20.0
OF_A_BODY = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
)
"""Refusals of a request that has a body."""


def requires(served: ServedRun, *scopes: str) -> Callable[..., Awaitable[Caller]]:
    """A dependency: the caller of a route that needs one of some scopes."""

    async def caller(
        request: Request,
        _documented: Annotated[Any, Depends(_BEARER)] = None,
        authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
    ) -> Caller:
        who = await served.callers.admit(authorization, scopes)
        note_caller(served, request, who)
        return who

    return caller


def note_caller(served: ServedRun, request: Request, who: Caller) -> None:
    """Name the caller in the request's line of the log."""
    request.scope["state"].setdefault("log", {}).update(run=served.name, token=who.name)


def router_of(served: ServedRun) -> APIRouter:
    """All routes of a run, below its prefix."""
    router = APIRouter(route_class=StrictRoute)
    _add_answers(router, served)
    _add_deletions(router, served)
    _add_repairs(router, served)
    _add_state(router, served)
    return router


def _add_answers(router: APIRouter, served: ServedRun) -> None:
    @router.post(
        "/predict",
        summary="Answer inputs",
        response_model=PredictResponse,
        responses=problem_responses(*OF_A_BODY),
        dependencies=[Depends(requires(served, "predict"))],
        tags=["answers"],
    )
    async def predict(asked: PredictRequest) -> Response:
        """The ensemble's answer to each input, by the newest generation, which header and body name."""
        return await answer(served, asked.inputs, partial(_plain, run=served.name, top=asked.top))


def _plain(predictions: Predictions, *, run: str, top: int | None) -> dict[str, Any]:
    """The shape of `POST /v1/predict`."""
    document = predictions.to_json(top=top)
    for row in document["predictions"]:
        del row["generation"]  # it is that of all
    return {"run": run, **document}


def _add_deletions(router: APIRouter, served: ServedRun) -> None:
    reader = Annotated[Caller, Depends(requires(served, "delete", "operate", "audit"))]

    @router.post(
        "/deletions",
        status_code=HTTPStatus.ACCEPTED,
        summary="Delete records and people",
        response_model=Deletion,
        responses=problem_responses(*OF_A_BODY, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
        tags=["deletions"],
    )
    async def delete(
        asked: DeletionRequest,
        caller: Annotated[Caller, Depends(requires(served, "delete"))],
        idempotency_key: Annotated[
            str | None, Header(max_length=200, description="A request that is made again with it does nothing more.")
        ] = None,
    ) -> Any:
        """Once it is answered, the records are durably out of use. `GET /deletions/{id}` says when they are erased."""
        done = await delete_for(served, asked, caller, key=idempotency_key)
        if caller.may("operate"):
            return done
        told = done.model_copy(update={"log": tuple(_entry(entry, caller) for entry in done.log)})
        return JSONResponse(told.model_dump(mode="json", exclude=Deletion.PLACES), HTTPStatus.ACCEPTED)

    @router.get(
        "/deletions",
        summary="List deletions",
        responses=problem_responses(),
        tags=["deletions"],
    )
    def deletions(caller: reader) -> dict[str, list[LogEntry]]:
        """Every deletion with its times, without names; entry 0 is the making of the run."""
        return {"deletions": [_entry(entry, caller) for entry in served.run.log()]}

    @router.get(
        "/deletions/{id}",
        summary="Follow a deletion",
        responses=problem_responses(HTTPStatus.NOT_FOUND),
        tags=["deletions"],
    )
    def deletion(
        id: Annotated[int, Path(ge=1, le=MOST_ID, description="The deletion's id.")], caller: reader
    ) -> LogEntry:
        """When it was received, accepted, effective (no answer uses it) and erased (no byte is left)."""
        for entry in served.run.log([id]):
            return _entry(entry, caller)
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no deletion {id}")


def _entry(entry: LogEntry, caller: Caller) -> LogEntry:
    """A deletion in the log. Names of exports tell in which shard its records lay, so operators alone get them."""
    return entry if caller.may("operate") else entry.model_copy(update={"to_withdraw": None})


def _add_repairs(router: APIRouter, served: ServedRun) -> None:
    operators = [Depends(requires(served, "operate"))]

    @router.post(
        "/repairs",
        status_code=HTTPStatus.ACCEPTED,
        summary="Begin a repair",
        responses=problem_responses(*OF_A_BODY, HTTPStatus.CONFLICT),
        tags=["repairs"],
    )
    def repair(asked: RepairRequest, caller: Annotated[Caller, Depends(requires(served, "operate"))]) -> dict[str, Any]:
        """Train what deletions cost, in a process of its own, while the server goes on answering."""
        begun = served.repairs.begin(asked_by=caller.ledger_name, hours=asked.hours)
        if begun is None:
            raise Refused(HTTPStatus.CONFLICT, "a repair of this run is under way; GET /v1/repairs lists it")
        return begun.to_json()

    @router.get(
        "/repairs", summary="List repairs", responses=problem_responses(), dependencies=operators, tags=["repairs"]
    )
    def repairs() -> dict[str, Any]:
        """The newest first."""
        return {"repairs": [one.to_json() for one in served.repairs.all()]}

    @router.get(
        "/repairs/{id}",
        summary="Follow a repair",
        responses={
            **problem_responses(HTTPStatus.NOT_FOUND),
            200: {"description": "The repair, or events", "content": {"application/json": {}, EVENTS: {}}},
        },
        dependencies=operators,
        tags=["repairs"],
    )
    def one_repair(id: str, accept: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
        """Its state; with `Accept: text/event-stream` an event whenever that changes, until it has ended.

        A stream ends after 20 seconds; browsers then ask again by themselves.
        """
        repair = served.repairs.find(id)
        if repair is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such repair")
        if EVENTS in accept:
            return StreamingResponse(_events(served, id), media_type=EVENTS, headers={"Cache-Control": "no-store"})
        return JSONResponse(repair.to_json())


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


def _add_state(router: APIRouter, served: ServedRun) -> None:
    operators = [Depends(requires(served, "operate"))]

    @router.get(
        "/status", summary="What is alive", responses=problem_responses(), dependencies=operators, tags=["state"]
    )
    def status(response: Response) -> Status:
        """The document of `s3t status --json`."""
        now = served.run.status(full=True)
        response.headers[GENERATION_HEADER] = str(now.generation)
        return now

    @router.post(
        "/locate",
        summary="Look records and people up",
        responses=problem_responses(*OF_A_BODY),
        dependencies=operators,
        tags=["state"],
    )
    def locate(asked: NamesRequest) -> dict[str, list[Location]]:
        """Each name: present and where, deleted and when, or never held. Names are in the body, so in no log."""
        asked.check_count(served.settings.max_names)
        return {"located": list(served.run.locate(**asked.model_dump()))}

    @router.get(
        "/forecast", summary="How long it lasts", responses=problem_responses(), dependencies=operators, tags=["state"]
    )
    def forecast() -> dict[str, Any]:
        """Expected numbers of deletions, without repair, until shards lose depth and die."""
        expected = served.run.forecast()
        return {"forecast": None if expected is None else expected.to_json()}
