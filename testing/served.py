"""A server in a thread of this process, and how to ask it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from s3t.serve.app import create_app
from s3t.serve.settings import Settings

_STARTED_SECONDS = 30.0


@contextmanager
def serving(*runs: Path, **settings: Any) -> Iterator[httpx.Client]:
    """A client of a server of some runs; settings as of `Settings`."""
    with served_app(create_app(Settings(runs=runs, **settings))) as client:
        yield client


@contextmanager
def served_app(app: FastAPI) -> Iterator[httpx.Client]:
    """A client of a server of an application."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, ws="none"))
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        until = time.monotonic() + _STARTED_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


def bearer(secret: str) -> dict[str, str]:
    """Headers of a caller."""
    return {"Authorization": f"Bearer {secret}"}
