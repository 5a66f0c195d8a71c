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
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        answer = _Answer(send)
        began = time.perf_counter()
        try:
            refused = self._too_long(scope)
            if refused is None:
                body = _Body(receive, most=self._settings.max_body_bytes, seconds=self._settings.body_seconds)
                await self._app(scope, body.receive, answer.send)
            else:
                await refused.response(scope["path"])(scope, receive, answer.send)
        except Refused as error:
            if not answer.status:
                await error.response(scope["path"])(scope, receive, answer.send)
        except NotTaken:
            logging.getLogger("s3t_server").info("a client did not take its answer in time; its connection is cut off")
        except Exception as error:  # its text, and Python's traceback, may hold a record's
            log_failure(error, command="serve")
            if not answer.status:
                refused = Refused(
                    HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug of s3t; the server's log has a report"
                )
                await refused.response(scope["path"])(scope, receive, answer.send)
        finally:
            self._note(scope, answer.status or _NO_ANSWER, (answer.begun or time.perf_counter()) - began)

    def _too_long(self, scope: Scope) -> Refused | None:
        length, most = dict(scope["headers"]).get(b"content-length", b"0"), self._settings.max_body_bytes
        return too_long(most) if length.isdigit() and int(length) > most else None

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request: who asked what, without what was in it."""
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in _METHODS else "other"  # a client may send any word
        self._metrics.requested(route, method, status, seconds)
        line: dict[str, Any] = {"method": method, "route": route, "status": status}
        line |= {"ms": round(1000 * seconds, 1)} | scope["state"].get("log", {})
        LOG.info("%s", json.dumps(line))


def too_long(most: int) -> Refused:
    """The refusal of a body that is too large."""
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is longer than {most} bytes; send less at once")


class _Answer:
    """Records an answer's status, and the time at which it began."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.begun = 0.0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.begun = message["status"], time.perf_counter()
        await self._send(message)


class _Body:
    """Passes a request's body on, and refuses one that is too long or too slow."""

    def __init__(self, receive: Receive, *, most: int, seconds: float) -> None:
        self._receive = receive
        self._most, self._left = most, most
        self._until = time.monotonic() + seconds
        self._whole = False

    async def receive(self) -> Message:
        if self._whole:  # what follows is the end of the connection, whenever that comes
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._until - time.monotonic()))
        except TimeoutError:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time; send it faster") from None
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise too_long(self._most)
        self._whole = not message.get("more_body", False)
        return message
