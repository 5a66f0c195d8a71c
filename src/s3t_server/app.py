"""The application: open runs, their routes, and what concerns all of them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

import s3t
from s3t_server import completions, problems, routes, shapes
from s3t_server.answering import ABORT
from s3t_server.guard import Guard
from s3t_server.metrics import Metrics
from s3t_server.page import routes as page_routes
from s3t_server.problems import Refused
from s3t_server.served import ServedRun
from s3t_server.settings import Settings

BEAT_SECONDS = 10.0
"""Between two words to systemd."""


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    problems: list[str] = []


HEALTH = APIRouter(tags=["health"])
NUMBERS = routes.group("health", "operate")
_PLAIN = "text/plain; version=0.0.4; charset=utf-8"


@HEALTH.head("/healthz", include_in_schema=False)
@HEALTH.get("/health", include_in_schema=False)  # what servers of models have
@HEALTH.get("/healthz", summary="The process runs", responses=routes.refusals(503))
async def healthz(request: Request) -> dict[str, str]:
    """And none of its computations hangs: restart it if this fails."""
    if any(one.hangs for one in request.app.state.runs):
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "a computation does not come to an end; restart the server")
    return {"status": "ok"}


@HEALTH.head("/readyz", include_in_schema=False)
@HEALTH.get("/readyz", summary="The process takes requests")
async def readyz() -> dict[str, str]:
    """Also where a run cannot answer: others can, and the page and a repair are what helps."""
    return {"status": "ready"}


@NUMBERS.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus's text format"}},
)
def page(request: Request, served: routes.Served) -> Response:
    """Numbers of all workers and runs. Needs the scope operate of the first run."""
    return Response(served.metrics.page(request.app.state.runs), media_type=_PLAIN)


class _App(FastAPI):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with what drops its connection: nothing of ours stands between here and uvicorn."""
        scope.setdefault("state", {})["served"] = self.state.runs[0]  # of addresses that name no run
        transport = getattr(getattr(send, "__self__", None), "transport", None)
        if transport is not None:
            scope[ABORT] = transport.abort
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:  # it is made once
            super().openapi()["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        return super().openapi()


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
    app.state.runs = served
    problems.install(app)
    for router in (page_routes.STATIC, _routes_of(served[0]), HEALTH, NUMBERS):
        app.include_router(router)
    for one in served:
        _add_run(app, one)
    app.add_middleware(Guard, settings=settings, metrics=metrics)
    return app


def _routes_of(served: ServedRun) -> APIRouter:
    router, recipe = APIRouter(redirect_slashes=False), served.run.recipe
    task = recipe.task
    parts = [*routes.ROUTERS, shapes.MODELS]
    if "generate" in task.target.verbs:
        parts.append(completions.PROMPTS if recipe.columns.messages is None else completions.CHATS)
    # What other servers answer with: one label of a text, and all probabilities.
    if task.inputs.kind == "text" and task.target.one_label and recipe.prediction.answers != "labels":
        parts.append(shapes.CLASSIFIERS)
    for part in (*parts, page_routes.ROUTER):
        router.include_router(part)
    return router


def _add_run(app: FastAPI, served: ServedRun) -> None:
    own, address = _routes_of(served), f"/runs/{served.name}"

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["served"] = served
        await own(scope, receive, send)

    @app.get(address, include_in_schema=False)
    async def slash() -> Response:  # the link is relative, as all of the page are
        return RedirectResponse(f"./{served.name}/")

    app.mount(address, run)


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
