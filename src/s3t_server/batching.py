"""Requests that come together are answered together. One thread computes, so that the model is in one place."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from s3t.errors import ClosedError
from s3t_server.problems import Refused

if TYPE_CHECKING:
    from s3t.records.ingest import IngestedInputs
    from s3t.results.answers import Predictions
    from s3t.run.pending import PendingAnswers


class AnswerShare:
    """One request's part of pending answers to several. Release it: deletions wait for the last of them.

    Args:
        unreleased: parts of the same answers.
    """

    def __init__(self, predictions: Predictions, pending: PendingAnswers, unreleased: set[AnswerShare]) -> None:
        self.predictions, self.pending = predictions, pending
        self._unreleased = unreleased
        unreleased.add(self)

    def release(self) -> None:
        """Say that this part has left, or never will. May be called twice, and in any thread."""
        self._unreleased.discard(self)
        if not self._unreleased:
            self.pending.release()


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


class Batcher:
    """Answers the requests of one run, in a thread of its own.

    Args:
        hold: `Run.hold`, or that of its gateway.
        most: inputs that are answered together; 0: each request alone.
        wait: longest wait of a request for others, in seconds.
    """

    def __init__(
        self, hold: Callable[..., PendingAnswers], *, most: int, wait: float, max_queued: int, max_queued_bytes: int
    ) -> None:
        self._hold = hold
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
            pending = self._hold(*(each.inputs for each in batch))
        except BaseException as error:
            for each in batch:
                _tell(each, error=error)
            return
        unreleased: set[AnswerShare] = set()
        shares = [AnswerShare(predictions, pending, unreleased) for predictions in pending.predictions]
        for each, share in zip(batch, shares, strict=True):
            _tell(each, share=share)


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
