"""The application: open runs, their routes, and what concerns all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

import s3t
from s3t_server import problems
from s3t_server.answering import ABORT, ServedRun
from s3t_server.batching import Batcher
from s3t_server.callers import Callers
from s3t_server.guard import Guard
from s3t_server.holding import held_of
from s3t_server.metrics import Metrics
from s3t_server.page.board import Board
from s3t_server.page.routes import page_of, static_files
from s3t_server.page.sections import Page
from s3t_server.problems import Refused
from s3t_server.repairs import Repairer, Repairs
from s3t_server.routes import problem_responses, requires, router_of
from s3t_server.settings import Settings
from s3t_server.shapes import shapes_of
from s3t_server.tokens import Access
from s3t_server.watch import Watch
from s3t_server.writing import Scribe

if TYPE_CHECKING:
    from s3t_server.gateway.gateway import Gateway

LOOK_SECONDS = 0.01
"""Between two looks at the ledger: how soon a deletion that another process accepts is effective here."""
_PLAIN = "text/plain; version=0.0.4; charset=utf-8"


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    problems: list[str] = []


class _App(FastAPI):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with what drops its connection: nothing of ours stands between here and uvicorn."""
        transport = getattr(getattr(send, "__self__", None), "transport", None)
        if transport is not None:
            scope[ABORT] = transport.abort
        await super().__call__(scope, receive, send)


def create_app(settings: Settings) -> FastAPI:
    """The application of some settings, with its runs open. They are closed when it ends.

    Raises:
        S3TError: a run cannot be opened, or its base model cannot be loaded; none is left open.
    """
    metrics = Metrics()
    served = _opened(settings, metrics)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as closing:  # also if one of them cannot be closed
            for one in served:
                closing.push_async_callback(run_in_threadpool, close, one)
            yield

    app = _App(
        title="s3t",
        version=s3t.__version__,
        summary="Answers that never use a deleted record",
        lifespan=lifespan,
        docs_url=None,  # both pages load scripts from elsewhere
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    problems.install(app)
    pages = [Page(one, Board(one.run, one.repairs, Watch(one.run)), settings.names) for one in served]
    app.include_router(static_files())
    for place, one in enumerate(served):
        addresses = [*([""] if place == 0 else []), f"/runs/{one.name}"]  # routes are compared in this order
        for address in addresses:
            in_schema = address == ""  # those of every run are described once
            app.include_router(router_of(one), prefix=f"{address}/v1", include_in_schema=in_schema)
            app.include_router(held_of(one), prefix=f"{address}/v1", include_in_schema=in_schema)
            app.include_router(shapes_of(one), prefix=address, include_in_schema=in_schema)
            app.include_router(page_of(pages[place]), prefix=address)
    _add_health(app, served, metrics)
    app.add_middleware(Guard, settings=settings, metrics=metrics)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


def close(served: ServedRun) -> None:
    """Answer what waits, end texts and repairs, and close a run."""
    served.batcher.close()
    served.scribe.close()
    if served.gateway is not None:
        served.gateway.close()
    served.repairer.close()
    served.run.close()


def _opened(settings: Settings, metrics: Metrics) -> list[ServedRun]:
    served: list[ServedRun] = []
    try:
        for name, path in zip(settings.names, settings.runs, strict=True):
            served.append(_open(name, path, settings, metrics))
    except BaseException:
        for one in served:
            close(one)
        raise
    return served


def _open(name: str, path: Path, settings: Settings, metrics: Metrics) -> ServedRun:
    run = s3t.Run.open(path)
    try:
        if settings.engine is None:
            run.prepare(look_seconds=LOOK_SECONDS)
        run.parts.presence.start()  # also while nothing is asked, it finishes what other processes leave undone
        gateway = _gateway(run, settings)
    except BaseException:
        run.close()
        raise
    most = 0 if settings.exact else run.recipe.prediction.batch_size
    repairs = Repairs(run)
    return ServedRun(
        name=name,
        run=run,
        writer=run.parts.writer,
        callers=Callers(Access(run), frozenset(settings.open_scopes)),
        batcher=Batcher(
            gateway or run,
            most=most,
            wait=settings.wait,
            max_queued=settings.max_queued_inputs,
            max_queued_bytes=settings.max_queued_bytes,
        ),
        scribe=Scribe(run.parts.writer, most=settings.max_texts, max_queued=settings.max_queued_texts),
        metrics=metrics,
        settings=settings,
        repairs=repairs,
        repairer=Repairer(repairs, by_policy=settings.repair, hours_a_day=settings.repair_hours_a_day),
        gateway=gateway,
    )


def _gateway(run: s3t.Run, settings: Settings) -> Gateway | None:
    if settings.engine is None or settings.engine_adapters is None:
        return None
    from s3t_server.gateway.gateway import Gateway  # here: most servers have none

    return Gateway(
        run,
        url=settings.engine,
        folder=settings.engine_adapters,
        patience=settings.engine_seconds,
        look_seconds=LOOK_SECONDS,
    )


def _add_health(app: FastAPI, served: Sequence[ServedRun], metrics: Metrics) -> None:
    @app.get("/healthz", summary="The process runs", tags=["health"])
    async def healthz() -> dict[str, str]:
        """Also where nothing can be answered."""
        return {"status": "ok"}

    @app.get("/readyz", summary="Every run can answer", tags=["health"], responses={503: {"description": "not ready"}})
    def readyz() -> dict[str, Any]:
        """Each run has a live shard, and its ledger can be asked."""
        for one in served:
            inventory, settings = one.run.inventory(), one.run.recipe.prediction
            if not inventory.answering(prototypes_alone=settings.prototypes_alone):
                remedy = "it needs a repair" if any(inventory.records.values()) else "it holds no record"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"no shard of a run can answer; {remedy}")
        for one in served:
            if one.gateway is not None and (trouble := one.gateway.trouble) is not None:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{trouble}; the server's log has more")
        return {"status": "ready"}

    @app.get(
        "/metrics",
        summary="Numbers for Prometheus",
        dependencies=[Depends(requires(served[0], "operate"))],
        response_class=Response,
        responses={
            **problem_responses(),
            200: {"content": {"text/plain": {}}, "description": "Prometheus's text format"},
        },
        tags=["health"],
    )
    def page() -> Response:
        """Numbers of all workers and runs. Needs the scope operate of the first run."""
        return Response(metrics.page([(one.name, one.run) for one in served]), media_type=_PLAIN)


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        document.setdefault("components", {}).setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        app.openapi_schema = document
    return app.openapi_schema
