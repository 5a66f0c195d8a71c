"""The roles that a run is wired from, for tests and benchmarks that look behind `Run`."""

from __future__ import annotations

import s3t
from s3t.run.parts import Parts


def roles(run: s3t.Run) -> Parts:
    """Ledger, store, deleter, presence and the others of an open run."""
    return run.parts
