"""A forked child may not use SQLite ledgers if its parent had one open.

SQLite counts in its own memory what a process has locked. A child inherits those counts without the locks, so it would
lock nothing. Its parent, closing, would remove the log that the child writes to, deletions and all.
"""

from __future__ import annotations

import os
from weakref import WeakSet

from s3t.errors import ForkedError

_open: WeakSet[object] = WeakSet()
_inherited: list[object] = []  # kept, so that the child closes no connection of its parent


def note_open(ledger: object) -> None:
    """Note a SQLite ledger that this process opens."""
    if _inherited:
        raise ForkedError(
            "this process was forked off while its parent had a run with a ledger in SQLite open, and SQLite's locks "
            "do not survive a fork. Close every run before the fork, or start processes with multiprocessing's `spawn`"
        )
    _open.add(ledger)


def note_closed(ledger: object) -> None:
    _open.discard(ledger)


def refuse_after_fork(process: int) -> None:
    """Refuse a run that another process opened."""
    if os.getpid() != process:
        raise ForkedError(
            f"the run was opened in process {process}, and this is {os.getpid()}, forked off from it; open "
            "the run here (`s3t.Run.open`), after the fork"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _inherited.extend(_open))
