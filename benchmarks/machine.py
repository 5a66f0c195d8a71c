"""What a result has to say of where it was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch


def kind() -> dict[str, str | int]:
    """The machine and the libraries: where they are the same, so are bits."""
    return {key: value for key, value in describe().items() if key != "commit"}


def describe() -> dict[str, str | int]:
    """The machine, the libraries and the commit."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count() or 0,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit.stdout.strip() or "unknown",
    }
