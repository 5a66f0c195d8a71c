"""S3 servers to test with, and a proxy before them that counts requests and spoils some."""

from __future__ import annotations

import http.client
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Fault = Literal["cut", "403", "409", "500", "503", "slow", "told as failed", "overwrite"]
"""What becomes of a request: its connection is cut, it is refused, it waits, it is carried out and its answer lost, or
its condition is taken away."""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret-of-s3", "AWS_REGION": "us-east-1"}


@dataclass
class Bucket:
    """A bucket behind a proxy."""

    name: str
    client: Any
    """boto3's client of the server itself."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each request that came through the proxy."""
    fault: Callable[[str, str], Fault | None] = lambda method, path: None
    """The fault of a request, by its method and path."""

    @property
    def url(self) -> str:
        return f"s3://{self.name}/models"

    def objects(self) -> dict[str, bytes]:
        """Every object, by its name below the run's id."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
        found = {}
        for key in sorted(keys):
            found[key.split("/", 2)[-1]] = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return found


@contextmanager
def proxy(server: str, bucket: Bucket) -> Iterator[str]:
    """The address of a proxy before an S3 server, HOST:PORT, that notes requests and makes the bucket's faults."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            method, path = self.command, self.path
            bucket.requests.append((method, path))
            fault = bucket.fault(method, path)
            if fault in ("403", "409", "500", "503"):
                code = {"403": "AccessDenied", "409": "ConditionalRequestConflict"}.get(fault, "SlowDown")
                self.answer(int(fault), {}, f"<Error><Code>{code}</Code></Error>".encode())
                return
            if fault == "cut":
                self.cut()
                return
            if fault == "slow":
                time.sleep(0.3)
            dropped = {"if-none-match"} if fault == "overwrite" else set()
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            upstream = http.client.HTTPConnection(server, timeout=30)
            upstream.request(method, path, body=body, headers=headers)
            answer = upstream.getresponse()
            content = answer.read()
            upstream.close()
            if fault == "told as failed":
                self.cut()
                return
            self.answer(answer.status, dict(answer.getheaders()), content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on  # noqa: N815

        def cut(self) -> None:
            self.close_connection = True

        def answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
            kept = {n: v for n, v in headers.items() if n.lower() not in ("transfer-encoding", "connection", "date")}
            if self.command != "HEAD":
                kept = {n: v for n, v in kept.items() if n.lower() != "content-length"}
                kept["Content-Length"] = str(len(content))
            self.send_response(status)
            for name, value in kept.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                with suppress(OSError):
                    self.wfile.write(content)

    between = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    between.daemon_threads = True
    thread = threading.Thread(target=between.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{between.server_address[1]}"
    finally:
        between.shutdown()
        between.server_close()
        thread.join()


@contextmanager
def moto() -> Iterator[str]:
    """moto's server in a thread of this process: its HOST:PORT."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


@contextmanager
def ministack() -> Iterator[str]:
    """ministack's server, a process of its own: its HOST:PORT."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "hypercorn", "ministack.app:app", "--bind", address]  # alone it listens for all
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), timeout=1)):
                    break
                time.sleep(0.1)
            yield address
        finally:
            server.terminate()


@contextmanager
def bucket_at(server: str, name: str, environment: Callable[[str, str], None]) -> Iterator[Bucket]:
    """A new bucket of a server, behind a proxy that `environment`, called for each variable, makes the endpoint."""
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=f"http://{server}",
        aws_access_key_id="key",
        aws_secret_access_key="secret-of-s3",
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 1}),
    )
    client.create_bucket(Bucket=name)
    bucket = Bucket(name, client)
    with proxy(server, bucket) as address:
        for variable, value in {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ALLOW_HTTP": "true",
        }.items():
            environment(variable, value)
        yield bucket
    client.close()
