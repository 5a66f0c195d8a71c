"""Answers on their way to a client: they leave only while no deletion overtakes them."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from fastapi.responses import Response
from starlette.types import Message, Receive, Scope, Send

from s3t.ledger.presence import TRUSTED_SECONDS
from s3t.ledger.sessions import LEASE_SECONDS
from s3t.records.ingest import IngestedInputs
from s3t.results.answers import Predictions
from s3t.run.pending import Pending
from s3t_server.documents import inputs_of
from s3t_server.guard import NotTaken
from s3t_server.problems import Refused, busy

if TYPE_CHECKING:
    from s3t_server.served import ServedRun

GENERATION_HEADER = "S3T-Generation"
EVENTS = "text/event-stream"
"""Media type of server-sent events."""
ABORT = "s3t.abort"
"""Key in a request's scope of what drops its connection at once, with all that waits in it. uvicorn's own close goes on
sending that for as long as the client likes."""
_PART_BYTES = 32_768
"""Bytes of a body that are handed to the connection at once. It may keep two parts for a client that does not read."""
_PART_SECONDS = LEASE_SECONDS - TRUSTED_SECONDS
"""Longest wait for a client to take a part: with a lease that was fresh before it, the session is still alive then."""
_FEW_TEXTS, _SHORT_TEXT = 64, 2000
"""Most texts, and characters of each, that the event loop checks itself."""
_DECODING = ThreadPoolExecutor(1, thread_name_prefix="s3t-images")
"""One thread decodes images: each thread would keep the memory of its largest for itself."""
_FEW_VALUES = 1000
"""Answers with more are rendered in a thread, so that other requests go on."""


def check_model(served: ServedRun, name: str | None) -> None:
    """Check the model that a client of another server has named."""
    if name not in (None, served.name):
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no such model here; this address serves {served.name}")


class FencedResponse(Response, ABC):
    """A response that leaves only while no deletion overtakes it. Else it is made again: each takes a stage, so
    there is an end. A client that goes away gets nothing, and nothing more is computed for it; nor for one that has
    waited for `answer_seconds`.

    Each part leaves only within the lease of what is pending, and waits in the connection for no longer than a deletion
    may wait for it.
    """

    def __init__(self, served: ServedRun) -> None:
        super().__init__()
        self._served = served
        self._left = served.settings.send_seconds  # for which all parts together may wait for the client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._send = scope, send
        sent, gone = asyncio.ensure_future(self._sent()), asyncio.ensure_future(_disconnected(receive))
        try:
            seconds = self._served.settings.answer_seconds
            done, _ = await asyncio.wait((sent, gone), return_when=asyncio.FIRST_COMPLETED, timeout=seconds)
            if not done:
                if self._waits():
                    raise busy(f"not answered within {seconds:g} seconds")
                await asyncio.wait((sent, gone), return_when=asyncio.FIRST_COMPLETED)
            if sent.done():
                sent.result()
        finally:
            gone.cancel()
            sent.cancel()
            await asyncio.wait((sent, gone))
            if not sent.cancelled():
                sent.exception()  # nobody is there to be told

    async def _sent(self) -> None:
        while not await self._attempt():
            pass

    @abstractmethod
    def _waits(self) -> bool:
        """True until the answer leaves, or what takes long is begun."""

    @abstractmethod
    async def _attempt(self) -> bool:
        """Make the answer and send it; False if a deletion has overtaken it before anything left."""

    @property
    def _caller(self) -> str:
        """The caller in whose name it waits for its turn: the token's name, or the client's address without one."""
        name: str = self._scope["state"]["caller"].name
        return name or f"address {(self._scope.get('client') or [''])[0]}"

    async def _whole(self, pending: Pending, body: bytes, *, generation: int, count: int) -> bool:
        """Send a JSON answer to `count` inputs; False if a deletion has overtaken it."""
        if not await may_leave(pending):
            return False
        await self._begin(pending, "application/json", generation=generation, count=count, length=len(body))
        for start in range(0, len(body), _PART_BYTES):
            part = body[start : start + _PART_BYTES]
            await self._part(pending, part, last=start + len(part) == len(body))
        self._served.metrics.answered(self._served.name, count)
        return True

    async def _begin(
        self, pending: Pending, media_type: str, *, generation: int, count: int, length: int | None = None
    ) -> None:
        """Send the headers of an answer to `count` inputs; without a length its end ends it."""
        self._scope["state"].setdefault("log", {}).update(generation=generation, inputs=count)
        headers = [
            (b"content-type", media_type.encode()),
            (GENERATION_HEADER.lower().encode(), str(generation).encode()),
            (b"cache-control", b"no-store") if length is None else (b"content-length", str(length).encode()),
        ]
        await self._hand_over(pending, {"type": "http.response.start", "status": 200, "headers": headers})

    async def _part(self, pending: Pending, content: bytes, *, last: bool = False) -> None:
        await self._hand_over(pending, {"type": "http.response.body", "body": content, "more_body": not last})

    async def _hand_over(self, pending: Pending, message: Message) -> None:
        began = time.monotonic()
        try:
            if not pending.lease_is_fresh:  # the machine slept in the middle
                raise TimeoutError
            async with asyncio.timeout(min(_PART_SECONDS, self._left)):
                await self._send(message)
        except TimeoutError:
            if ABORT in self._scope:
                self._scope[ABORT]()
            raise NotTaken from None
        self._left -= time.monotonic() - began


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def may_leave(pending: Pending) -> bool:
    """As `Pending.may_leave`, without keeping the event loop waiting for the ledger."""
    if not pending.lease_is_fresh:
        await to_thread.run_sync(pending.may_leave)  # it asks the ledger
    return pending.may_leave()


class PendingResponse(FencedResponse):
    """Predictions that deletions wait for until they are handed to the connection.

    Args:
        render: gives answers the shape that a client wants, JSON-compatible.
    """

    def __init__(self, served: ServedRun, inputs: IngestedInputs, render: Callable[[Predictions], Any]) -> None:
        super().__init__(served)
        self._inputs, self._render, self._waiting = inputs, render, True

    def _waits(self) -> bool:
        return self._waiting

    async def _attempt(self) -> bool:
        self._waiting = True
        share = await self._served.batcher.answer(self._inputs, caller=self._caller)
        self._waiting = False
        try:
            found = share.predictions
            body = await self._body(found)
            return await self._whole(share.pending, body, generation=found.generation, count=len(found))
        finally:
            share.release()

    async def _body(self, predictions: Predictions) -> bytes:
        def rendered() -> bytes:
            return json.dumps(self._render(predictions), ensure_ascii=False, allow_nan=False).encode()

        shown = predictions.probabilities
        if len(predictions) > _FEW_VALUES or (shown is not None and shown.size > _FEW_VALUES):
            return await to_thread.run_sync(rendered)
        return rendered()


async def answer(served: ServedRun, given: Any, render: Callable[[Predictions], Any]) -> PendingResponse:
    """The response to one input of a request, or a list of them, as JSON has them."""
    if served.run.recipe.task.inputs.kind == "image":
        inputs = await asyncio.get_running_loop().run_in_executor(_DECODING, _checked, served, given)
    else:
        inputs = _checked(served, given) if _is_little(given) else await to_thread.run_sync(_checked, served, given)
    return PendingResponse(served, inputs, render)


def _checked(served: ServedRun, given: Any) -> IngestedInputs:
    return served.run.checked(inputs_of(given, served.run.recipe, served.settings))


def _is_little(given: Any) -> bool:
    """True for a few short texts, which are checked sooner than a thread's turn comes. Images are longer."""
    texts = given if isinstance(given, list) else [given]
    return len(texts) <= _FEW_TEXTS and all(isinstance(text, str) and len(text) <= _SHORT_TEXT for text in texts)
