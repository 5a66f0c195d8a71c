"""A run that is served, and its answers on their way to a client: they leave only while no deletion overtakes them."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from anyio import CapacityLimiter, to_thread
from fastapi.responses import Response
from starlette.types import Message, Receive, Scope, Send

from s3t.ledger.presence import TRUSTED_SECONDS
from s3t.ledger.sessions import LEASE_SECONDS
from s3t_server.batching import AnswerShare, Batcher
from s3t_server.callers import Callers
from s3t_server.documents import inputs_of
from s3t_server.guard import NotTaken
from s3t_server.metrics import Metrics
from s3t_server.problems import Refused
from s3t_server.repairs import Repairer, Repairs
from s3t_server.settings import Settings
from s3t_server.writing import Scribe

if TYPE_CHECKING:
    from s3t.records.ingest import IngestedInputs
    from s3t.run import Run
    from s3t.run.answers import Predictions
    from s3t.run.writer import Writer
    from s3t_server.gateway.gateway import Gateway

GENERATION_HEADER = "S3T-Generation"
EVENTS = "text/event-stream"
"""Media type of server-sent events."""
DELETING_THREADS = 32
"""Deletions of a run that a worker accepts at once. They share transactions."""
ABORT = "s3t.abort"
"""Key in a request's scope of what drops its connection at once, with all that waits in it. uvicorn's own close goes on
sending that for as long as the client likes."""
_PART_BYTES = 32_768
"""Bytes of a body that are handed to the connection at once. It may keep two parts for a client that does not read."""
_PART_SECONDS = LEASE_SECONDS - TRUSTED_SECONDS
"""Longest wait for a client to take a part: with a lease that was fresh before it, the session is still alive then."""
_FEW_TEXTS, _SHORT_TEXT = 64, 2000
"""Most texts, and characters of each, that the event loop checks itself."""
_FEW_VALUES = 1000
"""Answers with more are rendered in a thread, so that other requests go on."""


@dataclass(frozen=True, kw_only=True)
class ServedRun:
    """A run that is served, and what its routes share."""

    name: str
    run: Run
    writer: Writer
    """The run's, for texts."""
    callers: Callers
    batcher: Batcher
    scribe: Scribe
    """Writes texts, where the run has a language model."""
    metrics: Metrics
    settings: Settings
    repairs: Repairs
    repairer: Repairer
    deletions: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(DELETING_THREADS))
    """Threads for deletions. They may wait for other servers, so they must not keep the threads that answer."""
    gateway: Gateway | None = None
    """Asks an engine for the answers; None: the run computes them."""


def check_model(served: ServedRun, name: str | None) -> None:
    """Check the model that a client of another server has named."""
    if name not in (None, served.name):
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no such model here; this address serves {served.name}")


class Renderer(Protocol):
    """Gives answers the shape that a client wants."""

    def __call__(self, predictions: Predictions) -> Any:
        """The document, JSON-compatible."""
        ...


class PendingResponse(Response):
    """Predictions that deletions wait for until they are handed to the connection."""

    def __init__(self, served: ServedRun, inputs: IngestedInputs, render: Renderer) -> None:
        super().__init__()
        self._served = served
        self._inputs = inputs
        self._render = render

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and answer again for as long as deletions overtake it. Each takes a stage, so there is an end."""
        while True:
            share = await self._served.batcher.answer(self._inputs)
            try:
                body = await self._body(share)
                if await may_leave(share):
                    await self._send(body, share, scope, send)
                    return
            finally:
                share.release()

    async def _body(self, share: AnswerShare) -> bytes:
        shown = share.predictions.probabilities
        if len(share.predictions) > _FEW_VALUES or (shown is not None and shown.size > _FEW_VALUES):
            return await to_thread.run_sync(self._rendered, share)
        return self._rendered(share)

    def _rendered(self, share: AnswerShare) -> bytes:
        return json.dumps(self._render(share.predictions), ensure_ascii=False, allow_nan=False).encode()

    async def _send(self, body: bytes, share: AnswerShare, scope: Scope, send: Send) -> None:
        generation, count = share.predictions.generation, len(share.predictions)
        handover = Handover(share, scope, send, seconds=self._served.settings.send_seconds)
        await handover.whole(body, generation=generation, count=count)
        self._served.metrics.answered(self._served.name, count)


class Leaving(Protocol):
    """An answer that leaves the server; `s3t.run.pending.Pending` is one."""

    @property
    def lease_is_fresh(self) -> bool:
        """As `Pending.lease_is_fresh`."""
        ...

    def may_leave(self) -> bool:
        """As `Pending.may_leave`."""
        ...


async def may_leave(pending: Leaving) -> bool:
    """As `Pending.may_leave`, without keeping the event loop waiting for the ledger."""
    if not pending.lease_is_fresh:
        await to_thread.run_sync(pending.may_leave)  # it asks the ledger
    return pending.may_leave()


class Handover:
    """An answer's way to its connection. No part of it waits there for longer than a deletion may wait for it.

    Args:
        pending: the answer; each part leaves only within its lease.
        seconds: longest time that all parts together may wait for the client.
    """

    def __init__(self, pending: Leaving, scope: Scope, send: Send, *, seconds: float) -> None:
        self._pending = pending
        self._scope = scope
        self._send = send
        self._left = seconds

    async def begin(self, media_type: str, *, generation: int, count: int, length: int | None = None) -> None:
        """Send the headers of an answer to `count` inputs; without a length its end ends it. Raises as `part`."""
        self._scope["state"].setdefault("log", {}).update(generation=generation, inputs=count)
        headers = [
            (b"content-type", media_type.encode()),
            (GENERATION_HEADER.lower().encode(), str(generation).encode()),
            (b"cache-control", b"no-store") if length is None else (b"content-length", str(length).encode()),
        ]
        await self._hand_over({"type": "http.response.start", "status": 200, "headers": headers})

    async def part(self, content: bytes, *, last: bool = False) -> None:
        """Send a part of the body."""
        await self._hand_over({"type": "http.response.body", "body": content, "more_body": not last})

    async def whole(self, body: bytes, *, generation: int, count: int) -> None:
        """Send a JSON answer to `count` inputs. Raises as `part`."""
        await self.begin("application/json", generation=generation, count=count, length=len(body))
        for start in range(0, len(body), _PART_BYTES):
            part = body[start : start + _PART_BYTES]
            await self.part(part, last=start + len(part) == len(body))

    async def _hand_over(self, message: Message) -> None:
        began = time.monotonic()
        try:
            if not self._pending.lease_is_fresh:  # the machine slept in the middle
                raise TimeoutError
            async with asyncio.timeout(min(_PART_SECONDS, self._left)):
                await self._send(message)
        except TimeoutError:
            if ABORT in self._scope:
                self._scope[ABORT]()
            raise NotTaken from None
        self._left -= time.monotonic() - began


async def answer(served: ServedRun, given: Any, render: Renderer) -> PendingResponse:
    """The response to one input of a request, or a list of them, as JSON has them."""
    inputs = _checked(served, given) if _is_little(given) else await to_thread.run_sync(_checked, served, given)
    return PendingResponse(served, inputs, render)


def _checked(served: ServedRun, given: Any) -> IngestedInputs:
    return served.run.checked(inputs_of(given, served.run.recipe, served.settings))


def _is_little(given: Any) -> bool:
    """True for a few short texts, which are checked sooner than a thread's turn comes. Images are longer."""
    texts = given if isinstance(given, list) else [given]
    return len(texts) <= _FEW_TEXTS and all(isinstance(text, str) and len(text) <= _SHORT_TEXT for text in texts)
