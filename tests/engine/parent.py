"""A process with workers that never come to an end, for a test to stop: python -m tests.engine.parent WHAT FOLDER."""

import sys

from s3t.engine import Seat, run_in_workers
from s3t.progress import Silent

if __name__ == "__main__":
    run_in_workers("tests.engine.small_worker", sys.argv[1:], [Seat()] * 2, progress=Silent())
