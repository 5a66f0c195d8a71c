"""Answers and texts that a server is sending. A deletion of a stage that they use waits for their release."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from s3t.errors import OvertakenError
from s3t.ledger.presence import Overtaken, Presence, Work

if TYPE_CHECKING:
    from s3t.prediction.generation import Piece, WritingSteps
    from s3t.results.answers import Predictions


class Pending:
    """An answer for a client. No deletion of what it uses is effective before `release`.

    Safe to share among threads. Keep it until all has left, then release it, or use it as a context manager: deletions
    wait for it until then, and no longer than it exists.
    """

    def __init__(self, work: Work, presence: Presence, open_work: ExitStack) -> None:
        self._work = work
        self._presence = presence
        self._open = open_work
        self._releasing = threading.Lock()

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


class PendingAnswers(Pending):
    """Answers to several requests, of one computation; `predictions` has one for each request."""

    def __init__(
        self, predictions: tuple[Predictions, ...], work: Work, presence: Presence, open_work: ExitStack
    ) -> None:
        super().__init__(work, presence, open_work)
        self.predictions = predictions


class PendingTexts(Pending):
    """Texts that are written for one request, all with what was alive when they were begun.

    One thread calls `turn` and `stop`, and another gives out what it has got. Deletions wait for both: until `stop` the
    texts are computed with what they use, and until `release` a part of them may be on its way. `generation` is the
    newest one when they were begun; `prompt_tokens` counts those of all prompts together.
    """

    def __init__(
        self,
        steps: WritingSteps,
        *,
        generation: int,
        prompt_tokens: int,
        presence: Presence,
        computing: tuple[Work, ExitStack],
        leaving: tuple[Work, ExitStack],
    ) -> None:
        super().__init__(leaving[0], presence, leaving[1])
        self.generation, self.prompt_tokens = generation, prompt_tokens
        self._steps = steps
        self._computing, self._open_computing = computing

    @property
    def overtaken(self) -> bool:
        """True if this process knows of a deletion that has taken what the texts use. Stop, then."""
        return self._computing.overtaken

    def turn(self, seconds: float) -> tuple[Sequence[Piece], bool]:
        """Write for some seconds, at least a step; (what was added, whether all texts are finished).

        Between two turns other threads may compute. After an error it has stopped, and nothing of this turn may leave.
        """
        found: list[Piece] = []
        finished = True
        until = time.monotonic() + seconds
        try:
            for pieces in self._steps:
                self._computing.check()
                found += pieces
                if time.monotonic() >= until:
                    self._steps.send(True)
                    finished = False
                    break
            self._computing.confirm()
        except BaseException as error:
            self.stop()  # in this thread, which may have the model
            if isinstance(error, Overtaken):
                self._work.overtaken = True  # what waits to be sent does not leave any more, either
                raise OvertakenError from None
            raise
        return found, finished

    def stop(self) -> None:
        """End the computation, and let go of what it has in memory. May be called twice."""
        self._open_computing.close()
