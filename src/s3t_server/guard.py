"""Around every request: bounds of size and time, metrics, a line in the log, and bug reports without record texts."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from s3t.bugs import log_failure
from s3t_server.metrics import Metrics
from s3t_server.problems import Refused
from s3t_server.settings import Settings

LOG = logging.getLogger("s3t.requests")
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_NO_ANSWER = 499
"""Status in log and metrics of a request that was not answered, as nginx has it."""


class NotTaken(Exception):  # noqa: N818
    """A client does not take its answer; its connection is cut off, and what it has not taken is lost."""


class Guard:
    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, answered = time.perf_counter(), 0, 0.0

        async def answer(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], time.perf_counter()
                if all(name.lower() != b"cache-control" for name, _ in message["headers"]):
                    message = {**message, "headers": [*message["headers"], (b"cache-control", b"no-store")]}
            await send(message)

        try:
            refused = await self._refused(scope, receive, answer)
            if refused is not None and not status:
                await refused.response(scope["path"])(scope, receive, answer)
        finally:
            self._note(scope, status or _NO_ANSWER, (answered or time.perf_counter()) - began)

    async def _refused(self, scope: Scope, receive: Receive, send: Send) -> Refused | None:
        """Pass a request on; why it is refused, if it is."""
        length, most = dict(scope["headers"]).get(b"content-length", b"0"), self._settings.max_body_bytes
        if length.isdigit() and int(length) > most:
            return _too_long(most)
        try:
            await self._app(scope, _bounded(receive, most=most, seconds=self._settings.body_seconds), send)
        except Refused as error:
            return error
        except NotTaken:
            logging.getLogger("s3t_server").info("a client did not take its answer in time; its connection is cut off")
        except Exception as error:  # its text, and Python's traceback, may hold a record's
            log_failure(error, command="serve")
            return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug of s3t; the server's log has a report")
        return None

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request: who asked what, without what was in it."""
        found = scope.get("route")  # without the values in its path, but with the run's name
        route = "unknown" if found is None else scope.get("root_path", "") + found.path
        method = scope["method"] if scope["method"] in _METHODS else "other"  # a client may send any word
        self._metrics.requested(route, method, status, seconds)
        client = (scope.get("client") or ["unknown"])[0]
        line: dict[str, Any] = {"client": client, "method": method, "route": route, "status": status}
        line |= {"ms": round(1000 * seconds, 1)} | scope["state"].get("log", {})
        LOG.info("%s", json.dumps(line))


def _too_long(most: int) -> Refused:
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is longer than {most} bytes; send less at once")


def _bounded(receive: Receive, *, most: int, seconds: float) -> Receive:
    """Pass a request's body on, and refuse one that is too long or too slow."""
    left, until, whole = most, time.monotonic() + seconds, False

    async def bounded() -> Message:
        nonlocal left, whole
        if whole:  # what follows is the end of the connection, whenever that comes
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time; send it faster") from None
        left -= len(message.get("body", b""))
        if left < 0:
            raise _too_long(most)
        whole = not message.get("more_body", False)
        return message

    return bounded
