"""A server: one process that answers, or several that share a port."""

from __future__ import annotations

import logging
import os
import tempfile

import uvicorn

import s3t
from s3t.serve.app import app_of
from s3t.serve.settings import VARIABLE, Settings

_STOPPING_SECONDS = 30
"""Time for answers that are on their way when the server is told to stop."""


def serve(settings: Settings) -> None:
    """Answer until SIGINT or SIGTERM.

    Raises:
        S3TError: a run cannot be opened.
        OSError: the port cannot be listened at.
    """
    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).propagate = name == "uvicorn.error"
    options = {
        "host": settings.host,
        "port": settings.port,
        "log_config": None,
        "access_log": False,  # `guard` writes one line a request
        "server_header": False,
        "timeout_graceful_shutdown": _STOPPING_SECONDS,
        "h11_max_incomplete_event_size": 65_536,
    }
    if settings.workers == 1:
        uvicorn.Server(uvicorn.Config(app_of(settings), **options)).run()  # type: ignore[arg-type]
        return
    for run in settings.runs:  # what is wrong with one is told once, and not by every worker
        s3t.Run.open(run).close()
    with tempfile.TemporaryDirectory(prefix="s3t-metrics-") as counts:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = counts
        os.environ[VARIABLE] = settings.model_dump_json()
        uvicorn.run("s3t.serve.app:made", factory=True, workers=settings.workers, **options)  # type: ignore[arg-type]
