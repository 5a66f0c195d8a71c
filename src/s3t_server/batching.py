"""Requests that come together are answered together. One thread computes, so that the model is in one place."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Protocol

from s3t.errors import ClosedError
from s3t_server.problems import Refused

if TYPE_CHECKING:
    from s3t.records.ingest import IngestedInputs
    from s3t.run.answers import Predictions
    from s3t.run.pending import PendingAnswers


class AnswerShare:
    """One request's part of pending answers to several. Release it: deletions wait for the last of them."""

    def __init__(self, predictions: Predictions, pending: PendingAnswers, unreleased: _Countdown) -> None:
        self.predictions = predictions
        self._pending = pending
        self._unreleased = unreleased
        self._released = False

    @property
    def lease_is_fresh(self) -> bool:
        """As `PendingAnswers.lease_is_fresh`."""
        return self._pending.lease_is_fresh

    def may_leave(self) -> bool:
        """As `PendingAnswers.may_leave`."""
        return self._pending.may_leave()

    def release(self) -> None:
        """Say that this part has left, or never will. May be called twice."""
        if not self._released:
            self._released = True
            if self._unreleased.decrement():
                self._pending.release()


class _Countdown:
    """A number that several threads count down."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()

    def decrement(self) -> bool:
        """True if it is 0 now."""
        with self._lock:
            self._number -= 1
            return self._number == 0


class _Asked(NamedTuple):
    inputs: IngestedInputs
    answer: asyncio.Future[AnswerShare]
    loop: asyncio.AbstractEventLoop
    at: float

    @property
    def size(self) -> int:
        return int(self.inputs.features.num_rows)

    @property
    def bytes(self) -> int:
        return int(self.inputs.features.nbytes)


class Holder(Protocol):
    """Source of held answers: a run, or its gateway."""

    def hold(self, *requests: IngestedInputs) -> PendingAnswers:
        """As `Run.hold`."""


class Batcher:
    """Answers the requests of one run, in a thread of its own.

    Args:
        most: inputs that are answered together; 0: each request alone.
        wait: longest wait of a request for others, in seconds.
    """

    def __init__(self, holder: Holder, *, most: int, wait: float, max_queued: int, max_queued_bytes: int) -> None:
        self._holder = holder
        self._most = most
        self._wait = wait
        self._max_queued = max_queued
        self._max_queued_bytes = max_queued_bytes
        self._queue: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._waiting, self._waiting_bytes = 0, 0
        self._counting = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="s3t-answers", daemon=True)
        self._thread.start()

    async def answer(self, inputs: IngestedInputs) -> AnswerShare:
        """Answer checked inputs."""
        loop = asyncio.get_running_loop()
        asked = _Asked(inputs, loop.create_future(), loop, time.monotonic())
        with self._counting:
            if self._closed:
                raise ClosedError
            too_many = self._waiting + asked.size > self._max_queued
            too_long = self._waiting_bytes + asked.bytes > self._max_queued_bytes
            if self._waiting and (too_many or too_long):
                waiting = f"{self._waiting} inputs of {self._waiting_bytes} bytes"
                detail = f"{waiting} wait to be answered; try again later"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "1"})
            self._waiting += asked.size
            self._waiting_bytes += asked.bytes
            self._queue.put(asked)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            if asked.answer.done() and not asked.answer.cancelled() and asked.answer.exception() is None:
                asked.answer.result().release()  # it came at the same moment, and nobody will take it
            raise

    def close(self) -> None:
        """Answer what waits, and end the thread."""
        with self._counting:
            self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        for batch in self._batches():
            with self._counting:
                self._waiting -= sum(each.size for each in batch)
                self._waiting_bytes -= sum(each.bytes for each in batch)
            if waiting := [each for each in batch if not each.answer.cancelled()]:
                self._answer(waiting)

    def _batches(self) -> Iterator[list[_Asked]]:
        """Requests in the order in which they came, as many as fit into a forward pass."""
        next_first: _Asked | None = None  # it did not fit into the batch before
        while True:
            first = next_first or self._queue.get()
            next_first = None
            if first is None:
                return
            batch, size = [first], first.size
            while size < self._most:
                try:
                    left = first.at + self._wait - time.monotonic()
                    other = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
                except queue.Empty:
                    break
                if other is None:
                    yield batch
                    return
                if size + other.size > self._most:
                    next_first = other
                    break
                batch.append(other)
                size += other.size
            yield batch

    def _answer(self, batch: Sequence[_Asked]) -> None:
        try:
            pending = self._holder.hold(*(each.inputs for each in batch))
        except BaseException as error:
            for each in batch:
                _tell(each, error=error)
            return
        unreleased = _Countdown(len(batch))
        for each, predictions in zip(batch, pending.predictions, strict=True):
            _tell(each, share=AnswerShare(predictions, pending, unreleased))


def _tell(asked: _Asked, *, share: AnswerShare | None = None, error: BaseException | None = None) -> None:
    """Give a request its answer, in the thread of its event loop."""

    def give() -> None:
        if asked.answer.cancelled():
            if share is not None:
                share.release()
        elif share is not None:
            asked.answer.set_result(share)
        elif error is not None:
            asked.answer.set_exception(error)

    try:
        asked.loop.call_soon_threadsafe(give)
    except RuntimeError:  # the loop is closed
        if share is not None:
            share.release()
