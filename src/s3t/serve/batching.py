"""Requests that come together are answered together. One thread computes, so that the model is in one place."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from s3t.errors import ClosedError
from s3t.serve.problems import Refused

if TYPE_CHECKING:
    from s3t.records.ingest import IngestedInputs
    from s3t.run import Run
    from s3t.run.answerer import PendingAnswers
    from s3t.run.answers import Predictions


class AnswerShare:
    """One request's part of answers that are held for several. Release it: deletions wait for the last of them."""

    def __init__(self, predictions: Predictions, held: PendingAnswers, left: _Count) -> None:
        self.predictions = predictions
        self._held = held
        self._left = left
        self._released = False

    def may_leave(self) -> bool:
        """As `PendingAnswers.may_leave`."""
        return self._held.may_leave()

    def release(self) -> None:
        """Say that this part has left, or never will. May be called twice."""
        if not self._released:
            self._released = True
            if self._left.one_less():
                self._held.release()


class _Count:
    """A number that several threads count down."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()

    def one_less(self) -> bool:
        """True for who makes it 0."""
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


class Batcher:
    """Answers the requests of one run, in a thread of its own.

    Args:
        run: open.
        exact: each request alone.
        wait: longest wait of a request for others, in seconds.
        most_waiting: inputs that may wait.
    """

    def __init__(self, run: Run, *, exact: bool, wait: float, most_waiting: int) -> None:
        self._run = run
        self._most = 0 if exact else run.recipe.prediction.batch_size
        self._wait = wait
        self._most_waiting = most_waiting
        self._queue: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._waiting = 0
        self._counting = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="s3t-answers", daemon=True)
        self._thread.start()

    async def answer(self, inputs: IngestedInputs) -> AnswerShare:
        """Answer checked inputs.

        Raises:
            Refused: 503, too many are waiting.
            S3TError: as `Run.predict`.
        """
        loop = asyncio.get_running_loop()
        asked = _Asked(inputs, loop.create_future(), loop, time.monotonic())
        with self._counting:
            if self._closed:
                raise ClosedError
            if self._waiting + asked.size > self._most_waiting and self._waiting:
                detail = f"{self._waiting} inputs wait to be answered; try again later"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "1"})
            self._waiting += asked.size
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
            wanted = [each for each in batch if not each.answer.cancelled()]  # else the client went away
            if wanted:
                self._answer(wanted)

    def _batches(self) -> Iterator[list[_Asked]]:
        """Requests in the order in which they came, as many as fit into a forward pass."""
        kept: _Asked | None = None  # did not fit
        while True:
            first = kept or self._queue.get()
            kept = None
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
                    kept = other
                    break
                batch.append(other)
                size += other.size
            yield batch

    def _answer(self, batch: Sequence[_Asked]) -> None:
        try:
            held = self._run.hold(*(each.inputs for each in batch))
        except BaseException as error:
            for each in batch:
                _tell(each, error=error)
            return
        left = _Count(len(batch))
        for each, predictions in zip(batch, held.predictions, strict=True):
            _tell(each, share=AnswerShare(predictions, held, left))


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
