"""Answers at one generation: what a deletion overtakes is stopped, thrown away, and made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from s3t.errors import IntegrityError
from s3t.ledger import Ledger, Snapshot
from s3t.ledger.presence import Overtaken, Presence, Work
from s3t.progress import Progress
from s3t.stages import Stage

Answer = TypeVar("Answer")


def at_one_generation(
    ledger: Ledger,
    presence: Presence,
    *,
    snapshot: Callable[[], Snapshot],
    members: Callable[[Snapshot], Sequence[Stage]],
    compute: Callable[[Snapshot, Sequence[Stage], Work], Answer],
) -> Answer:
    """What `compute` makes of a snapshot, once no deletion has taken a stage that it used.

    A deletion that touches no prefix in use costs nothing: the answer is the same with it and without it. Every other
    one takes at least one stage, so there is an end to it.

    Args:
        ledger: asked once more before the answer leaves.
        presence: where the computation is entered.
        snapshot: the ledger now.
        members: the stages that answer at a snapshot.
        compute: the answer; calls `Work.check` at every batch.
    """
    while True:
        now = snapshot()
        chosen = members(now)
        used = {link: now.stages[link] for stage in chosen for link in stage.chain}
        with (
            suppress(Overtaken),
            presence.working(now, lambda later, used=used: later.still_has(used)) as work,  # type: ignore[misc]
        ):
            try:
                answer = compute(now, chosen, work)
            except IntegrityError:
                work.look(ledger.snapshot())
                work.check()  # an artifact was erased under our hands
                raise
            work.look(ledger.snapshot())
            work.check()
            return answer


class Watched:
    """Progress that also looks, at every batch, whether a deletion has overtaken the work."""

    def __init__(self, progress: Progress, work: Work) -> None:
        self._progress = progress
        self._work = work

    def start(self, task: str, total: int) -> None:
        """Hand on."""
        self._progress.start(task, total)

    def advance(self, amount: int) -> None:
        """Hand on, and stop if need be."""
        self._progress.advance(amount)
        self._work.check()

    def note(self, text: str) -> None:
        """Hand on."""
        self._progress.note(text)

    def finish(self) -> None:
        """Hand on."""
        self._progress.finish()
