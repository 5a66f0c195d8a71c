"""Requests that come together are answered together. One thread computes, so that the model is in one place."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

from s3t.errors import ClosedError
from s3t.records.ingest import IngestedInputs
from s3t.results.answers import Predictions
from s3t.run.pending import PendingAnswers
from s3t_server.problems import busy

T = TypeVar("T")


class Turns(Generic[T]):
    """What waits, in the order of its turns: one of each caller, then the next of each. Not to be shared among threads
    without a lock.

    >>> turns = Turns[int]()
    >>> for caller, number in [("a", 1), ("a", 2), ("a", 3), ("b", 4)]:
    ...     turns.add(caller, number)
    >>> turns.next, [turns.take() for _ in range(4)], turns.next
    (1, [1, 4, 2, 3], None)
    """

    def __init__(self) -> None:
        self._of: OrderedDict[str, deque[T]] = OrderedDict()

    def __iter__(self) -> Iterator[T]:
        return (each for own in self._of.values() for each in own)

    @property
    def next(self) -> T | None:
        return next(iter(self), None)

    def add(self, caller: str, what: T) -> None:
        self._of.setdefault(caller, deque()).append(what)

    def take(self) -> T:
        """The next one, which waits no longer. It is an error if there is none."""
        caller, own = next(iter(self._of.items()))
        found = own.popleft()
        self._of.move_to_end(caller)
        if not own:
            del self._of[caller]
        return found

    def keep(self, is_wanted: Callable[[T], bool]) -> None:
        kept = {caller: deque(filter(is_wanted, own)) for caller, own in self._of.items()}
        self._of = OrderedDict((caller, own) for caller, own in kept.items() if own)


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
    size: int
    bytes: int
    answer: Future[AnswerShare]
    at: float


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
        self._turns: Turns[_Asked] = Turns()
        self._waiting, self._waiting_bytes = 0, 0
        self._changed = threading.Condition()
        self._closed = False
        self.busy_since: float | None = None
        """When the thread began what it computes now, on the clock `time.monotonic`; None while it waits."""
        self._thread = threading.Thread(target=self._work, name="s3t-answers", daemon=True)
        self._thread.start()

    async def answer(self, inputs: IngestedInputs, *, caller: str) -> AnswerShare:
        features = inputs.features
        asked = _Asked(inputs, features.num_rows, features.nbytes, Future(), time.monotonic())
        with self._changed:
            if self._closed:
                raise ClosedError
            too_many = self._waiting + asked.size > self._max_queued
            too_long = self._waiting_bytes + asked.bytes > self._max_queued_bytes
            if self._waiting and (too_many or too_long):
                raise busy(f"{self._waiting} inputs of {self._waiting_bytes} bytes wait to be answered")
            self._waiting += asked.size
            self._waiting_bytes += asked.bytes
            self._turns.add(caller, asked)
            self._changed.notify()
        try:
            return await asyncio.wrap_future(asked.answer)
        except asyncio.CancelledError:
            asked.answer.add_done_callback(_release)  # it may come all the same, and nobody will take it
            raise

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._batch():
            if waiting := [each for each in batch if each.answer.set_running_or_notify_cancel()]:
                self._answer(waiting)

    def _batch(self) -> list[_Asked]:
        """Requests whose turn it is, as many as fit into a forward pass; none at the end."""
        batch: list[_Asked] = []
        size = 0
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._turns.next is not None)
            while (following := self._turns.next) is not None and (not batch or size + following.size <= self._most):
                batch.append(self._turns.take())
                size += following.size
                self._waiting -= following.size
                self._waiting_bytes -= following.bytes
                left = batch[0].at + self._wait - time.monotonic()
                if size < self._most and self._turns.next is None and left > 0 and not self._closed:
                    self._changed.wait_for(lambda: self._closed or self._turns.next is not None, timeout=left)
        return batch

    def _answer(self, batch: Sequence[_Asked]) -> None:
        self.busy_since = time.monotonic()
        try:
            pending = self._hold(*(each.inputs for each in batch))
        except BaseException as error:
            for each in batch:
                each.answer.set_exception(error)
            return
        finally:
            self.busy_since = None
        unreleased: set[AnswerShare] = set()
        shares = [AnswerShare(predictions, pending, unreleased) for predictions in pending.predictions]
        for each, share in zip(batch, shares, strict=True):
            each.answer.set_result(share)


def _release(answer: Future[AnswerShare]) -> None:
    if not answer.cancelled() and answer.exception() is None:
        answer.result().release()
