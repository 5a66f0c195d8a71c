"""Texts that clients have asked a run for. One thread writes them in turns, so that the model is in one place."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from s3t.errors import ClosedError, OvertakenError
from s3t_server.problems import Refused

if TYPE_CHECKING:
    from s3t.prediction.generation import Piece, Sampling
    from s3t.records.ingest import IngestedInputs
    from s3t.run.pending import PendingTexts
    from s3t.run.writer import Writer

TURN_SECONDS = 0.05
"""Time for which one request's texts are written before those of the next."""
_PAUSE_SECONDS = 0.001
"""Between turns: a thread that waits for the model, to predict with another run, gets it then."""


class Order:
    """One request's texts, on their way from the thread that writes to the event loop of the request.

    Leave it when nothing more will be sent: until then deletions wait for it.
    """

    def __init__(self, prompts: IngestedInputs, sampling: Sampling) -> None:
        self.prompts = prompts
        self.sampling = sampling
        self._texts: PendingTexts | None = None
        self.left = False
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[Sequence[Piece] | BaseException | None] = asyncio.Queue()
        self._changing = threading.Lock()

    @property
    def count(self) -> int:
        return int(self.prompts.features.num_rows) * self.sampling.n

    @property
    def pending(self) -> PendingTexts:
        """The texts, once there is a part of them."""
        if self._texts is None:
            raise RuntimeError("the texts are not begun yet")
        return self._texts

    @property
    def overtaken(self) -> bool:
        """True if this process knows of a deletion that has taken what the texts use."""
        return self._texts is not None and self._texts.overtaken

    async def part(self) -> Sequence[Piece] | None:
        """Next written pieces; None at the end."""
        part = await self._parts.get()
        if isinstance(part, BaseException):
            raise part
        return part

    def leave(self) -> None:
        """Say that nothing more will be sent. The thread stops writing at its next turn. May be called twice."""
        with self._changing:
            self.left = True
            if self._texts is not None:
                self._texts.release()

    def begun(self, texts: PendingTexts) -> None:
        """Note the texts, in the thread that writes."""
        with self._changing:
            self._texts = texts
            if self.left:
                texts.release()

    def stop(self) -> None:
        if self._texts is not None:
            self._texts.stop()

    def put(self, part: Sequence[Piece] | BaseException | None) -> None:
        """Give the request a part, the end, or an error, in the thread that writes."""
        try:
            self._loop.call_soon_threadsafe(self._parts.put_nowait, part)
        except RuntimeError:  # the loop is closed
            self.leave()


class Scribe:
    """Writes the texts of one run, in a thread of its own."""

    def __init__(self, writer: Writer, *, most: int, max_queued: int) -> None:
        self._writer = writer
        self._most = most
        self._max_queued = max_queued
        self._waiting: deque[Order] = deque()
        self._written: deque[Order] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="s3t-texts", daemon=True)
        self._thread.start()

    def order(self, prompts: IngestedInputs, sampling: Sampling) -> Order:
        """Ask for the texts after checked prompts, in an event loop."""
        order = Order(prompts, sampling)
        if order.count > self._most:
            detail = f"{order.count} texts; ask for at most {self._most} at once"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        with self._changed:
            if self._closed:
                raise ClosedError
            self._waiting = deque(each for each in self._waiting if not each.left)
            waiting = sum(each.count for each in self._waiting)
            if waiting + order.count > self._max_queued + self._room():
                detail = "as many texts as may wait are waiting to be written; try again later"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "1"})
            self._waiting.append(order)
            self._changed.notify()
        return order

    def close(self) -> None:
        """End all texts, and the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _room(self) -> int:
        return self._most - sum(each.count for each in self._written)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._closed or self._waiting or self._written):
                    self._changed.wait()
                if self._closed:
                    break
                begun = []
                while self._waiting and (self._waiting[0].left or self._waiting[0].count <= self._room()):
                    begun.append(self._waiting.popleft())
                    self._written.append(begun[-1])
            for order in begun:
                self._begin(order)
            self._end_overtaken()
            if self._written:
                with self._changed:
                    order = self._written[0]
                    self._written.rotate(-1)
                self._turn(order)
                time.sleep(_PAUSE_SECONDS)
        for order in [*self._written, *self._waiting]:
            self._end(order, ClosedError())

    def _begin(self, order: Order) -> None:
        if order.left:
            self._end(order, None)
            return
        try:
            order.begun(self._writer.hold(order.prompts, order.sampling))
        except BaseException as error:
            self._end(order, error)

    def _end_overtaken(self) -> None:
        """Stop orders that a deletion has overtaken or whose client is gone; at each turn, all of them."""
        for order in [*self._written]:
            if order.left:
                self._end(order, None)
            elif order.overtaken:
                self._end(order, OvertakenError())

    def _turn(self, order: Order) -> None:
        try:
            pieces, finished = order.pending.turn(TURN_SECONDS)
        except BaseException as error:
            self._end(order, error)
            return
        order.put(pieces)
        if finished:
            self._end(order, None)

    def _end(self, order: Order, error: BaseException | None) -> None:
        try:
            order.stop()
        except BaseException as failure:  # the others are still to be written
            error = error or failure
        with self._changed:
            if order in self._written:
                self._written.remove(order)
        order.put(error)
