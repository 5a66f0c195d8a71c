"""OpenMP's threads sleep while they wait for work.

By default they spin: on a machine with other work they take the cores that the working threads need. Two trainings of
two threads each on two cores then take three times as long as with sleeping threads.
"""

from __future__ import annotations

import logging
import os
import sys

_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables of the environment by which a user decides it."""


def let_threads_sleep() -> bool:
    """Have waiting threads sleep, unless the user has decided; False if torch is loaded already, and its threads spin.

    OpenMP reads the environment once, when torch is loaded.
    """
    if any(name in os.environ for name in _SETTINGS):
        return True
    if "torch" in sys.modules:
        return False
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return True


def warn_if_threads_spin() -> None:
    if not let_threads_sleep():
        logging.getLogger("s3t").warning(
            "torch was loaded before s3t, so its threads spin while they wait and slow other work on this machine; "
            "import s3t first, or set OMP_WAIT_POLICY=PASSIVE"
        )
