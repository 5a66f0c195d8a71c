"""The operator's command that unloads and deletes an export: `deletion.export_hook`, a list of arguments, no shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

HOOK_SECONDS = 60.0
"""Time that the command may take."""
_SECRETS = ("S3T_SECRET", "S3T_SECRET_FILE", "S3T_LEDGER", "PGPASSWORD")
"""Variables of the environment that the command does not get."""
_STDERR = 2


def run_hook(arguments: Sequence[str], values: Mapping[str, str], *, seconds: float = HOOK_SECONDS) -> str | None:
    """Run the command, with values in place of `{name}`, `{path}` and `{host}`; returns why it failed, else None.

    Its standard input is empty, and its output goes to standard error: standard output is for results.
    """
    line = [_filled(argument, values) for argument in arguments]
    environment = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's own command, without a shell
            line, stdin=subprocess.DEVNULL, stdout=_STDERR, env=environment, start_new_session=True
        )
    except (OSError, ValueError) as error:
        return f"{line[0]} could not be started: {getattr(error, 'strerror', None) or error}"
    try:
        status = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"{line[0]} took longer than {seconds:.0f} s, and was killed"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if status == 0 else f"{line[0]} ended with {status}"


def _filled(argument: str, values: Mapping[str, str]) -> str:
    """An argument with values in place; what a value itself holds in braces stays.

    >>> _filled("{host}:{path}", {"host": "h", "path": "/srv/{host}"})
    'h:/srv/{host}'
    """
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), argument)
