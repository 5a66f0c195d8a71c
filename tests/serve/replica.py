"""`s3t`, which stops itself at a place that a file names, as by SIGSTOP: `python -m tests.serve.replica FOLDER ...`.

The file FOLDER/answer: an answer is computed, and nobody has asked yet whether it may leave. FOLDER/swap: a deletion is
noticed, what it took is out of memory, and the ledger does not know yet.
"""

import signal
import sys
from pathlib import Path

from s3t.cli import main
from s3t.ledger.presence import Presence
from s3t.serve.answering import PendingResponse


def stop_at(marker: Path, what: str) -> None:
    """Stop this process, once, if a marker is there."""
    if marker.exists():
        marker.unlink()
        print(f"stopped at {what}", file=sys.stderr, flush=True)
        signal.raise_signal(signal.SIGSTOP)


def run(folder: Path) -> None:
    body, tell = PendingResponse._body, Presence._tell

    async def computed(self, share):
        content = await body(self, share)
        stop_at(folder / "answer", f"an answer of generation {share.predictions.generation}")
        return content

    def swapped(self, generation, *, moved):
        if moved:
            stop_at(folder / "swap", f"the swap to generation {generation}")
        tell(self, generation, moved=moved)

    PendingResponse._body, Presence._tell = computed, swapped
    main()


if __name__ == "__main__":
    run(Path(sys.argv.pop(1)))
