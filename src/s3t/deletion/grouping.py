"""Group commit: items that several threads bring at once are worked on together, and share one wait for the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from typing import Generic, TypeVar

from s3t.aftermath import OUTCOME_UNKNOWN
from s3t.errors import S3TError, StorageError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Grouped(Generic[Item, Result]):
    """Calls `work` with the items that came while the last call was running, at most `limit` of them.

    A caller alone is a group of one: no thread waits for others to come. One of the waiting threads does the work for
    its group. `work` returns a result, or the exception to raise, for every item in order; an exception that it raises
    is raised in every caller.

    >>> Grouped(lambda numbers: [2 * number for number in numbers], limit=8)(21)
    42
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result | Exception]], *, limit: int = 64) -> None:
        self._work = work
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: list[tuple[Item, Future[Result]]] = []
        self._working = False

    def __call__(self, item: Item) -> Result:
        call: tuple[Item, Future[Result]] = item, Future()
        _, answer = call
        with self._changed:
            self._waiting.append(call)
        try:
            while not answer.done():
                self._take_turn(answer)
        finally:
            with self._changed:
                if call in self._waiting:  # Ctrl-C: nothing is done for this item any more
                    self._waiting.remove(call)
        return answer.result()

    def _take_turn(self, answer: Future[Result]) -> None:
        """Wait for an answer, or until no thread works; then work on the next group."""
        with self._changed:
            self._changed.wait_for(lambda: answer.done() or not self._working)
            if answer.done():
                return
            group, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
            self._working = True
        answers = [answer for _, answer in group]
        # If Ctrl-C interrupts the work, it is raised in this thread alone.
        results: list[tuple[Future[Result], Result | Exception]] = [(answer, _interrupted()) for answer in answers]
        try:
            results = list(zip(answers, self._work([item for item, _ in group]), strict=True))
        except Exception as error:
            results = [(answer, error) for answer in answers]
        finally:
            for each, result in results:
                if isinstance(result, Exception):
                    each.set_exception(_copied(result))
                else:
                    each.set_result(result)
            with self._changed:
                self._working = False
                self._changed.notify_all()


def _copied(error: Exception) -> Exception:
    """A copy of an error for each caller: what is true after it differs between them."""
    if not isinstance(error, S3TError):
        return error
    again = copy(error)
    again.__cause__ = error
    return again


def _interrupted() -> StorageError:
    error = StorageError("the thread that worked on several requests together was interrupted")
    error.aftermath = OUTCOME_UNKNOWN
    return error
