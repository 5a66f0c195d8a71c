"""Group commit: what several threads ask for at once is done in one go, so that they share one wait for the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Grouped(Generic[Item, Result]):
    """Calls `work` with what has come together while the last call was at work.

    Nobody waits for others to come: a caller alone is a group of one.

    Args:
        work: answers every item with a result, or with the exception that its caller shall see, in the items' order. An
            exception that it raises is every caller's.
        limit: items of a group at most.

    >>> Grouped(lambda numbers: [2 * number for number in numbers], limit=8)(21)
    42
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result | Exception]], *, limit: int) -> None:
        self._work = work
        self._limit = limit
        self._waiting: list[tuple[Item, Future[Result]]] = []
        self._queue = threading.Lock()
        self._at_work = threading.Lock()

    def __call__(self, item: Item) -> Result:
        """The item's result; waits for it. One of the callers does the work for all."""
        future: Future[Result] = Future()
        with self._queue:
            self._waiting.append((item, future))
        while not future.done():
            with self._at_work:
                if not future.done():
                    self._do_group()
        return future.result()

    def _do_group(self) -> None:
        with self._queue:
            group, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
        try:
            results = self._work([item for item, _ in group])
        except BaseException as error:
            for _, future in group:
                future.set_exception(error)
            return
        for (_, future), result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
