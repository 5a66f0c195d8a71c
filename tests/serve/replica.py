"""`s3t`, which waits at a place that a file names, to be stopped there: `python -m tests.serve.replica FOLDER ...`.

The file FOLDER/answer: an answer is computed, and nobody has asked yet whether it may leave. FOLDER/swap: a deletion is
noticed, what it took is out of memory, and the ledger does not know yet. It waits while FOLDER/waiting is there.
"""

import sys
import time
from pathlib import Path

from s3t.ledger.presence import Presence
from s3t_server.answering import PendingResponse
from s3t_server.program import main


def wait_at(marker: Path, what: str) -> None:
    """Wait, once, if a marker is there."""
    if marker.exists():
        waiting = marker.rename(marker.with_name("waiting"))
        print(f"waiting at {what}", file=sys.stderr, flush=True)
        while waiting.exists():
            time.sleep(0.001)


def run(folder: Path) -> None:
    body, tell = PendingResponse._body, Presence._tell

    async def computed(self, predictions):
        content = await body(self, predictions)
        wait_at(folder / "answer", f"an answer of generation {predictions.generation}")
        return content

    def swapped(self, generation, answers, *, moved):
        if moved:
            wait_at(folder / "swap", f"the swap to generation {generation}")
        tell(self, generation, answers, moved=moved)

    PendingResponse._body, Presence._tell = computed, swapped
    main()


if __name__ == "__main__":
    run(Path(sys.argv.pop(1)))
