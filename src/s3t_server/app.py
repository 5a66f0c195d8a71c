"""The application: open runs, their routes, and what concerns all of them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import RedirectResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

import s3t
from s3t_server import problems
from s3t_server.answering import ABORT
from s3t_server.guard import Guard
from s3t_server.metrics import Metrics
from s3t_server.page.board import Board
from s3t_server.page.routes import page_of, static_files
from s3t_server.page.sections import Page
from s3t_server.problems import Refused
from s3t_server.routes import Requires, group, refusals, router_of
from s3t_server.served import ServedRun
from s3t_server.settings import Settings
from s3t_server.shapes import shapes_of

_PLAIN = "text/plain; version=0.0.4; charset=utf-8"
BEAT_SECONDS = 10.0
"""Between two words to systemd."""


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
    with ExitStack() as opened:  # closes those before one that cannot be opened
        served = []
        for name, path in zip(settings.names, settings.runs, strict=True):
            served.append(ServedRun(name, path, settings, metrics))
            opened.callback(served[-1].close)
        closing = opened.pop_all()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        beating = asyncio.ensure_future(_beat(served))
        try:
            yield
        finally:
            beating.cancel()
            await run_in_threadpool(closing.close)  # all, also if one of them cannot be closed

    app = _App(
        title="s3t",
        version=s3t.__version__,
        summary="Answers that never use a deleted record",
        lifespan=lifespan,
        docs_url=None,  # both pages load scripts from elsewhere
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,  # to an absolute address, which behind a proxy with TLS has the wrong scheme
    )
    problems.install(app)
    app.include_router(static_files())
    for place, one in enumerate(served):
        page = Page(one, Board(one.run), settings.names)
        for address in [*([""] if place == 0 else []), f"/runs/{one.name}"]:  # routes are compared in this order
            in_schema = address == ""  # those of every run are described once
            app.include_router(router_of(one), prefix=f"{address}/v1", include_in_schema=in_schema)
            app.include_router(_readiness_of(one), prefix=f"{address}/v1", include_in_schema=in_schema)
            app.include_router(shapes_of(one), prefix=address, include_in_schema=in_schema)
            app.include_router(page_of(page), prefix=address)
            if address:
                _add_slash(app, address)
    _add_health(app, served, metrics)
    app.add_middleware(Guard, settings=settings, metrics=metrics)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


async def _beat(served: Sequence[ServedRun]) -> None:
    """Tell systemd's watchdog, if there is one, that the process lives, as `/healthz` has it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        notify.send(b"READY=1")
        while True:
            if not any(one.hangs for one in served):
                notify.send(b"WATCHDOG=1")
            await asyncio.sleep(BEAT_SECONDS)


def _add_slash(app: FastAPI, address: str) -> None:
    """Send those who leave a page's last slash out to it, by a relative address: its links are relative, too."""

    @app.get(address, include_in_schema=False)
    async def page() -> Response:
        return RedirectResponse(f"./{address.rpartition('/')[2]}/")


def _add_health(app: FastAPI, served: Sequence[ServedRun], metrics: Metrics) -> None:
    @app.head("/healthz", include_in_schema=False)
    @app.get("/health", include_in_schema=False)  # what servers of models have
    @app.get(
        "/healthz", summary="The process runs", tags=["health"], responses=refusals(HTTPStatus.SERVICE_UNAVAILABLE)
    )
    async def healthz() -> dict[str, str]:
        """And none of its computations hangs: restart it if this fails."""
        if any(one.hangs for one in served):
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "a computation does not come to an end; restart the server")
        return {"status": "ok"}

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", summary="The process takes requests", tags=["health"])
    async def readyz() -> dict[str, str]:
        """Also where a run cannot answer: others can, and the page and a repair are what helps."""
        return {"status": "ready"}

    numbers = group("health", Depends(Requires(served[0], "operate")))
    described = {"content": {"text/plain": {}}, "description": "Prometheus's text format"}

    @numbers.get("/metrics", summary="Numbers for Prometheus", response_class=Response, responses={200: described})
    def page() -> Response:
        """Numbers of all workers and runs. Needs the scope operate of the first run."""
        return Response(metrics.page([(one.name, one.run) for one in served]), media_type=_PLAIN)

    app.include_router(numbers)


def _readiness_of(served: ServedRun) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/readyz", summary="The run can answer", responses=refusals(HTTPStatus.SERVICE_UNAVAILABLE))
    def readyz() -> dict[str, str]:
        """A shard or the base model answers, the ledger can be asked, and an engine, if there is one, answers."""
        if (trouble := served.trouble) is not None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, trouble)
        return {"status": "ready"}

    return router


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        document.setdefault("components", {}).setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        app.openapi_schema = document
    return app.openapi_schema
