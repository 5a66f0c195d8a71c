"""A process with workers that never come to an end, for a test to stop: python -m tests.engine.parent WHAT FOLDER."""

import sys

from s3t.engine import Placement, Processes, run_on
from s3t.events import silent

if __name__ == "__main__":
    run_on(Processes("tests.engine.small_worker", sys.argv[1:], [Placement()] * 2), progress=silent)
