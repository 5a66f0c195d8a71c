"""A server in a thread of this process, and how to ask it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from s3t_server.app import create_app
from s3t_server.settings import Settings

_STARTED_SECONDS = 30.0
_LONGEST_WAIT = 120.0


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


def wait_for(what: Callable[[], Any], *, seconds: float = _LONGEST_WAIT) -> Any:
    """What has to come, once it is there: a value that is true."""
    until = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)
    return value


@contextmanager
def posting(
    client: httpx.Client, route: str, body: Any, *, headers: dict[str, str] | None = None, buffer: int | None = None
) -> Iterator[socket.socket]:
    """A connection of one's own that has sent a request, and has not read the answer.

    Args:
        client: of the server.
        route: asked for.
        body: of the request, sent as JSON.
        headers: more of them.
        buffer: bytes that the system keeps of the answer; None: it decides.
    """
    content = json.dumps(body).encode()
    fields = {"Host": "x", "Content-Type": "application/json", "Content-Length": str(len(content))} | (headers or {})
    lines = [f"POST {route} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    with socket.socket() as connection:
        if buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.connect((client.base_url.host, client.base_url.port))
        connection.sendall("\r\n".join(lines).encode() + content)
        connection.settimeout(_STARTED_SECONDS)
        yield connection


def rest_of(connection: socket.socket) -> bytes:
    """All that still comes, until the server closes or drops the connection."""
    content = b""
    with suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            content += part
    return content


@contextmanager
def together(*asked: Callable[[], Any]) -> Iterator[Sequence[Any]]:
    """Calls in threads of their own: what they return, in the order in which they end. They have ended at the end."""
    found: list[Any] = []
    threads = [threading.Thread(target=lambda each=each: found.append(each())) for each in asked]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        for thread in threads:
            thread.join()


def answering(patch: Any, *answers: Any) -> list[httpx.Request]:
    """Let clients that are made from here on get these answers, one after the other; the requests that they have sent.

    Args:
        patch: pytest's monkeypatch.
        answers: each a status, a body (a text or a document) and perhaps headers, or an error of httpx.
    """
    left, sent, made = list(answers), list[httpx.Request](), httpx.Client

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        status, body, *headers = found
        content = {"text" if isinstance(body, str) else "json": body}
        return httpx.Response(status, headers=headers[0] if headers else None, **content)

    patch.setattr(httpx, "Client", lambda **options: made(**options, transport=httpx.MockTransport(answer)))
    return sent
