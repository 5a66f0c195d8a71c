"""A server: one process that answers, or several that share a port."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from s3t.bugs import log_failure
from s3t.errors import StorageError, WorkerError
from s3t.program import set_up_process
from s3t.store.disk import refuse_after_failed_fsync
from s3t_server.app import create_app
from s3t_server.settings import VARIABLE, Settings

_STOPPING_SECONDS = 30
"""Time for answers that are on their way when the server is told to stop."""
_BACKLOG = 2048
_STORAGE_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds after each failed start of a worker."""
_CANNOT_START = 3
"""Status of a worker, as uvicorn has it."""


def serve(settings: Settings) -> None:
    """Answer until SIGINT or SIGTERM. Open each run before: workers tell of a fault each for itself, in the log."""
    set_up_logging()
    with _listening(settings.host, settings.port) as listener:
        try:
            if settings.workers == 1:
                app = create_app(settings)
                _say_where(listener)
                uvicorn.Server(uvicorn.Config(app, **_OPTIONS)).run(sockets=[listener])
            else:
                _answer_in_workers(settings, listener)
        except KeyboardInterrupt:
            pass
        except SystemExit as ended:  # uvicorn raises the signal again, once it has ended in order
            if ended.code != 128 + signal.SIGTERM:
                raise
        refuse_after_failed_fsync()  # that ended it, and what starts servers shall start another


def worker_app() -> FastAPI:
    set_up_process()
    set_up_logging()
    threading.excepthook = _report_thread
    for pause in _STORAGE_PAUSES:
        try:
            return create_app(Settings.model_validate_json(os.environ[VARIABLE]))
        except StorageError as error:  # the database may be away for a moment, and other workers answer meanwhile
            log_failure(error, command="serve")
            time.sleep(pause)
        except Exception as error:
            log_failure(error, command="serve")
            break
    sys.exit(_CANNOT_START)  # uvicorn starts no other worker then


def _report_thread(failed: threading.ExceptHookArgs) -> None:
    """Tell of an exception that has ended a thread, without its text."""
    if failed.exc_value is not None:
        log_failure(failed.exc_value, command="serve, in a thread")


def set_up_logging() -> None:
    """Messages of the server and of uvicorn on stderr, a line each; of libraries warnings alone."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s %(message)s")
    for name in ("s3t_server", "s3t_server.gateway", "s3t.requests", "s3t.sessions", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.INFO)


def _answer_in_workers(settings: Settings, listener: socket.socket) -> None:
    with tempfile.TemporaryDirectory(prefix="s3t-metrics-") as counts:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = counts
        os.environ[VARIABLE] = settings.model_dump_json()
        config = uvicorn.Config("s3t_server.server:worker_app", factory=True, workers=settings.workers, **_OPTIONS)
        _say_where(listener)
        supervisor = Multiprocess(config, sockets=[listener])
        supervisor.run()
        if any(worker.exitcode == _CANNOT_START for worker in supervisor.processes):
            raise WorkerError("a worker could not start; the reason is above")


_OPTIONS: dict[str, Any] = {
    "log_config": None,
    "access_log": False,  # `guard` writes one line a request
    "server_header": False,
    "timeout_graceful_shutdown": _STOPPING_SECONDS,
    "timeout_worker_healthcheck": 60,  # a worker that loads libraries from a slow disk does not answer meanwhile
    "ws": "none",
}


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = f"{host}, port {port}, cannot be listened at: {error.strerror or error}"
        raise StorageError(reason, remedy="name another --host or --port") from error


def _say_where(listener: socket.socket) -> None:
    with suppress(OSError):
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        logging.getLogger("s3t_server").info("listening at http://%s:%s", shown, port)
