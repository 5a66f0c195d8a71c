"""A server in a thread of this process, and how to ask it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from s3t_server.app import create_app
from s3t_server.settings import Settings

_STARTED_SECONDS = 30.0


@contextmanager
def serving(*runs: Path, send_buffer: int | None = None, **settings: Any) -> Iterator[httpx.Client]:
    """A client of a server of some runs; settings as of `Settings`.

    Args:
        runs: their folders.
        send_buffer: bytes that the system keeps for a client that does not read; None: it decides.
        settings: as of `Settings`.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    app = create_app(Settings(runs=runs, **settings))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none"))
    thread = threading.Thread(target=server.run, args=([listener],), name="server")
    thread.start()
    try:
        until = time.monotonic() + _STARTED_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)
        port = listener.getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


def bearer(secret: str) -> dict[str, str]:
    """Headers of a caller."""
    return {"Authorization": f"Bearer {secret}"}
