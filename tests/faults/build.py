"""Build the shim with the machine's C compiler. Without one the fault tests fail: they do not skip."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("shim.c", "points.c")


def build(folder: Path) -> Path:
    """The shared library, built in a folder."""
    library = folder / "shim.so"
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    done = subprocess.run([*command, *(str(HERE / name) for name in SOURCES), "-ldl"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the shim cannot be built:\n{done.stderr}")
    return library
