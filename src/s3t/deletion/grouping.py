"""Group commit: what several threads ask for at once is done in one go, so that they share one wait for the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from s3t.aftermath import NOBODY_KNOWS
from s3t.errors import S3TError, StorageError

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(eq=False)
class _Caller(Generic[Item, Result]):
    item: Item
    answer: Future[Result] = field(default_factory=Future)
    woken: threading.Event = field(default_factory=threading.Event)
    """Set when there is an answer, or when it is this caller's turn to do the work."""


class Grouped(Generic[Item, Result]):
    """Calls `work` with what has come together while the last call was at work.

    Nobody waits for others to come: a caller alone is a group of one. One caller of a group does the work for all of
    it, and then wakes the first of those who have come meanwhile to do the next.

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
        self._queue = threading.Lock()
        self._waiting: list[_Caller[Item, Result]] = []
        self._at_work = False  # somebody is, or is woken to be: always the first who waits

    def __call__(self, item: Item) -> Result:
        """The item's result; waits for it."""
        caller: _Caller[Item, Result] = _Caller(item)
        with self._queue:
            self._waiting.append(caller)
            if not self._at_work:
                self._at_work = True
                caller.woken.set()
        try:
            caller.woken.wait()
        except BaseException:  # Ctrl-C: others may count on this one
            self._leave(caller)
            raise
        if not caller.answer.done():
            self._do_group()
        return caller.answer.result()

    def _do_group(self) -> None:
        with self._queue:
            group, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
        try:
            self._answer(group)
        finally:
            with self._queue:
                self._wake_next()
        for caller in group:
            caller.woken.set()

    def _answer(self, group: Sequence[_Caller[Item, Result]]) -> None:
        try:
            results = list(zip(group, self._work([caller.item for caller in group]), strict=True))
        except Exception as error:
            for caller in group:
                caller.answer.set_exception(_own(error))
            return
        except BaseException as error:  # Ctrl-C is this thread's alone
            for caller in group:
                caller.answer.set_exception(error if caller is group[0] else _interrupted())
            return
        for caller, result in results:
            if isinstance(result, Exception):
                caller.answer.set_exception(_own(result))
            else:
                caller.answer.set_result(result)

    def _leave(self, caller: _Caller[Item, Result]) -> None:
        with self._queue:
            if caller in self._waiting:
                self._waiting.remove(caller)
                if caller.woken.is_set():
                    self._wake_next()

    def _wake_next(self) -> None:
        self._at_work = bool(self._waiting)
        if self._waiting:
            self._waiting[0].woken.set()


def _own(error: Exception) -> Exception:
    """A caller's own copy of an error of ours: what is true after it is another thing for each."""
    if not isinstance(error, S3TError):
        return error
    again = copy(error)
    again.__cause__ = error
    return again


def _interrupted() -> StorageError:
    error = StorageError("the thread that did this together with others was interrupted")
    error.aftermath = NOBODY_KNOWS
    return error
