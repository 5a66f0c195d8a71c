"""A real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Programs that are looked for. playwright's own browsers are downloads, and not needed."""


def browser_path() -> str | None:
    """Path of the machine's browser; None if it has none."""
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


@contextmanager
def browser() -> Iterator[Any]:
    """The machine's browser, as playwright has it, in its synchronous form."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # In containers chromium has neither its sandbox nor much shared memory.
        found = playwright.chromium.launch(
            executable_path=browser_path(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield found
        finally:
            found.close()
