"""A folder that is mounted read-only beside itself, where this process may mount."""

import os
import subprocess
from contextlib import contextmanager

import pytest


@contextmanager
def mounted_read_only(folder, at):
    """The folder, at another path, where nothing can be written; skips the test where that cannot be had."""
    at.mkdir(exist_ok=True)
    commands = (["mount", "--bind", str(folder), str(at)], ["mount", "-o", "remount,ro,bind", str(at)])
    try:
        may = os.geteuid() == 0 and subprocess.run(commands[0], capture_output=True, check=False).returncode == 0
    except OSError:
        may = False
    if not may:
        pytest.skip("this process may not mount")
    try:
        if subprocess.run(commands[1], capture_output=True, check=False).returncode != 0:
            pytest.skip("this process may not mount read-only")
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)
