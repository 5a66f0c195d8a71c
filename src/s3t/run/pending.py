"""Answers and texts that a server is sending. A deletion of a stage that they use waits for their release."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from s3t.errors import ClosedError, OvertakenError
from s3t.ledger.presence import Overtaken, Presence, Uses, Work

if TYPE_CHECKING:
    from s3t.core import Stage
    from s3t.ledger import Snapshot
    from s3t.prediction.generation import Piece, Sampling, TextBatch
    from s3t.results.answers import Predictions


@dataclass(eq=False, repr=False)
class Pending:
    """An answer for a client. No deletion of what it uses is effective before `release`.

    Safe to share among threads. Keep it until all has left, then release it, or use it as a context manager: deletions
    wait for it until then, and no longer than it exists.
    """

    _work: Work
    _presence: Presence
    _open: ExitStack
    """Closed, it ends the wait."""
    _releasing: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def lease_is_fresh(self) -> bool:
        """False if this process's last heartbeat is too old; `may_leave` then asks the ledger."""
        return self._presence.lease_is_fresh

    def may_leave(self) -> bool:
        """True if it may be given out now: ask right before. If not, release it, and ask the run again.

        It looks at what this process knows of deletions: those that it does not know yet still wait.
        """
        if not self.lease_is_fresh:
            self._presence.renew()
        return self._work.may_leave() and self.lease_is_fresh

    def release(self) -> None:
        """End the wait: all has left, or never will. May be called twice."""
        with self._releasing:
            self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.release()


@dataclass(eq=False, repr=False)
class PendingAnswers(Pending):
    """Answers to several requests, of one computation."""

    predictions: tuple[Predictions, ...]
    """One for each request."""


@dataclass(eq=False, repr=False)
class PendingTexts(Pending):
    """Texts that are written for one request, in a `SharedBatch`.

    Deletions wait until `release`: a part of them may be on its way.
    """

    generation: int
    """Newest generation when the texts were begun."""
    prompt_tokens: int
    """Tokens of all prompts together."""
    numbers: range
    """Numbers of the texts in their batch."""


@dataclass(eq=False, repr=False)
class SharedBatch:
    """Texts of several requests, written side by side by what was alive when the first of them was begun.

    One thread calls it. Deletions wait until `stop`: until then texts are computed with what they take.
    """

    _batch: TextBatch | None
    """None once it has stopped."""
    _members: Sequence[Stage]
    _uses: Uses
    _work: Work
    _open: ExitStack
    """Closed, it ends the wait."""
    _requests: list[PendingTexts] = field(default_factory=list, init=False)

    @property
    def overtaken(self) -> bool:
        """True if this process knows of a deletion that has taken what the texts use. Stop, then."""
        return self._work.overtaken

    def takes(self, now: Snapshot, members: Sequence[Stage]) -> bool:
        """True if texts that these members write may join those that are under way."""
        same = members == self._members and not self.overtaken and self._uses.intact_at(now)
        return same and self._batch is not None and self._batch.joins

    def add(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> range:
        if self._batch is None:
            raise ClosedError
        return self._batch.add(prompts, sampling)

    def join(self, texts: PendingTexts) -> None:
        self._requests.append(texts)

    def leave(self, texts: PendingTexts) -> None:
        """Write a request's texts no further. May be called twice."""
        if texts in self._requests:
            self._requests.remove(texts)
            if self._batch is not None:
                self._batch.leave(texts.numbers)
        if not self._requests:
            self.stop()

    def turn(self, seconds: float) -> list[tuple[PendingTexts, list[Piece], bool]]:
        """Write for some seconds, at least a step; for each request what was added, and whether all is finished.

        Between two turns other threads may compute. After an error the batch has stopped, and nothing of this turn may
        leave.
        """
        until, batch = time.monotonic() + seconds, self._batch
        found: list[Piece] = []
        try:
            if batch is None:
                raise Overtaken
            with batch.at_model():
                while pieces := batch.step():
                    self._work.check()
                    found += pieces
                    if time.monotonic() >= until:
                        break
            self._work.confirm()
        except BaseException as error:
            batch = None
            self.stop()
            if isinstance(error, Overtaken):
                for texts in self._requests:
                    texts._work.overtaken = True  # nothing that waits to be sent may leave any more
                raise OvertakenError from None
            raise
        going = batch.open
        parts = [
            (
                texts,
                [piece._replace(text=piece.text - texts.numbers[0]) for piece in found if piece.text in texts.numbers],
                going.isdisjoint(texts.numbers),
            )
            for texts in self._requests
        ]
        for texts, _, finished in parts:
            if finished:
                self.leave(texts)
        return parts

    def stop(self) -> None:
        """End the computation, and let go of what it has in memory. May be called twice."""
        self._batch = None  # first: deletions go on once the work is closed
        self._open.close()
