"""Texts that clients have asked a run for. One thread writes them in turns, so that the model is in one place."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from http import HTTPStatus

from s3t.errors import ClosedError, OvertakenError
from s3t.prediction.generation import Piece, Sampling
from s3t.records.ingest import IngestedInputs
from s3t.run.pending import PendingTexts, SharedBatch
from s3t.run.writer import Writer
from s3t_server.batching import Turns
from s3t_server.problems import Refused, busy

TURN_SECONDS = 0.05
"""Time for which one batch of texts is written. Then new texts may join it, and other batches have their turn."""
_PAUSE_SECONDS = 0.001
"""Between turns: a thread that waits for the model, to predict with another run, gets it then."""


class Order:
    """One request's texts, on their way from the thread that writes to the event loop of the request.

    Leave it when nothing more will be sent: until then deletions wait for it.
    """

    pending: PendingTexts
    """The texts, once they are in a batch."""

    def __init__(self, prompts: IngestedInputs, sampling: Sampling) -> None:
        self.prompts = prompts
        self.sampling = sampling
        self.batch: SharedBatch | None = None
        self.left = False
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[Sequence[Piece] | BaseException | None] = asyncio.Queue()
        self._changing = threading.Lock()

    @property
    def count(self) -> int:
        return int(self.prompts.features.num_rows) * self.sampling.n

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
            if self.batch is not None:
                self.pending.release()

    def begun(self, batch: SharedBatch, texts: PendingTexts) -> None:
        with self._changing:
            self.batch, self.pending = batch, texts
            if self.left:
                texts.release()

    def put(self, part: Sequence[Piece] | BaseException | None) -> None:
        """Give the request a part, the end, or an error, in the thread that writes."""
        try:
            self._loop.call_soon_threadsafe(self._parts.put_nowait, part)
        except RuntimeError:  # the loop is closed
            self.leave()


class Scribe:
    """Writes the texts of one run, in a thread of its own.

    Args:
        most: texts that are written at a time.
        together: requests are written side by side, where the model can.
    """

    def __init__(self, writer: Writer, *, most: int, max_queued: int, together: bool) -> None:
        self._writer = writer
        self._most = most
        self._max_queued = max_queued
        self._together = together
        self._waiting: Turns[Order] = Turns()
        self._written: list[Order] = []
        self._batches: deque[SharedBatch] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.busy_since: float | None = None
        """When the thread began its turn, on the clock `time.monotonic`; None between turns."""
        self._thread = threading.Thread(target=self._work, name="s3t-texts", daemon=True)
        self._thread.start()

    def order(self, prompts: IngestedInputs, sampling: Sampling, *, caller: str) -> Order:
        """Ask for the texts after checked prompts, in an event loop."""
        order = Order(prompts, sampling)
        if order.count > self._most:
            detail = f"{order.count} texts; ask for at most {self._most} at once"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        with self._changed:
            if self._closed:
                raise ClosedError
            self._waiting.keep(lambda each: not each.left)
            waiting = sum(each.count for each in self._waiting)
            if waiting + order.count > self._max_queued + self._room():
                raise busy("as many texts as may wait are waiting to be written")
            self._waiting.add(caller, order)
            self._changed.notify()
        return order

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _room(self) -> int:
        return self._most - sum(each.count for each in self._written)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting.next is not None or self._written)
                if self._closed:
                    break
            for order in [each for each in self._written if each.left]:
                self._end(order, None)
            for batch in [each for each in self._batches if each.overtaken]:
                self._end_all(batch, OvertakenError())
            with self._changed:
                begun = []
                while (first := self._waiting.next) is not None and (first.left or first.count <= self._room()):
                    begun.append(self._waiting.take())
                    self._written.append(first)
            for order in begun:
                self._begin(order)
            if self._batches:
                self.busy_since = time.monotonic()
                self._turn(self._batches[0])
                self.busy_since = None
                self._batches.rotate(-1)
                time.sleep(_PAUSE_SECONDS)
        for order in [*self._written, *self._waiting]:
            self._end(order, ClosedError())

    def _begin(self, order: Order) -> None:
        if order.left:
            self._end(order, None)
            return
        try:
            order.begun(*self._writer.hold(order.prompts, order.sampling, self._batches if self._together else ()))
        except BaseException as error:
            self._end(order, error)
        else:
            if order.batch is not None and order.batch not in self._batches:
                self._batches.append(order.batch)

    def _turn(self, batch: SharedBatch) -> None:
        try:
            parts = batch.turn(TURN_SECONDS)
        except BaseException as error:
            self._end_all(batch, error)
            return
        orders = {order.pending: order for order in self._written if order.batch is batch}
        for texts, pieces, finished in parts:
            if pieces:
                orders[texts].put(pieces)
            if finished:
                self._end(orders[texts], None)

    def _end_all(self, batch: SharedBatch, error: BaseException) -> None:
        batch.stop()
        for order in [order for order in self._written if order.batch is batch]:
            self._end(order, error)

    def _end(self, order: Order, error: BaseException | None) -> None:
        try:
            if order.batch is not None:
                order.batch.leave(order.pending)
        except BaseException as failure:  # the others are still to be written
            error = error or failure
        with self._changed:
            if order in self._written:
                self._written.remove(order)
        at_work = {each.batch for each in self._written}
        self._batches = deque(batch for batch in self._batches if batch in at_work)
        order.put(error)
