"""Errors as problem documents (RFC 9457). They name fields and rows, and hold no text of a request."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as ProtocolError

from s3t.errors import (
    ClosedError,
    DecidedError,
    EngineError,
    FsyncError,
    InputError,
    IntegrityError,
    NoLiveShardError,
    OvertakenError,
    OwnRequestError,
    S3TError,
    StorageError,
    TooLongError,
    TooManyHeldError,
    UnknownNamesError,
)

MEDIA_TYPE = "application/problem+json"
_SHOWN = 10
"""Problems of a request that are told."""
_OF_ERRORS: Sequence[tuple[type[S3TError], int, str]] = (
    (DecidedError, HTTPStatus.CONFLICT, "decided already"),
    (OwnRequestError, HTTPStatus.FORBIDDEN, "another token has to decide"),
    (TooManyHeldError, HTTPStatus.CONFLICT, "too many wait for approval"),
    (InputError, HTTPStatus.UNPROCESSABLE_ENTITY, "wrong input"),
    (UnknownNamesError, HTTPStatus.NOT_FOUND, "unknown names"),
    (NoLiveShardError, HTTPStatus.SERVICE_UNAVAILABLE, "no shard can answer"),
    (OvertakenError, HTTPStatus.SERVICE_UNAVAILABLE, "a deletion came between"),
    (ClosedError, HTTPStatus.SERVICE_UNAVAILABLE, "the server is stopping"),
    (StorageError, HTTPStatus.SERVICE_UNAVAILABLE, "disk or database refused"),
    (EngineError, HTTPStatus.SERVICE_UNAVAILABLE, "the engine cannot answer"),
    (IntegrityError, HTTPStatus.INTERNAL_SERVER_ERROR, "the run is damaged, restored or moved"),
)
"""The first that fits decides."""
_CODES = {
    HTTPStatus.UNAUTHORIZED: "invalid_api_key",
    HTTPStatus.NOT_FOUND: "model_not_found",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_exceeded",
}
"""Codes of OpenAI's errors."""


class Refused(HTTPException):
    """A request that is refused before it reaches a run. An `HTTPException`, which FastAPI lets through everywhere."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        title: str | None = None,
        problems: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(int(status), detail, None if headers is None else dict(headers))
        self.title, self.problems = title or HTTPStatus(status).phrase, tuple(problems)
        self.code = code or _CODES.get(HTTPStatus(status))

    def response(self, path: str) -> JSONResponse:
        """The problem document for a request's path. OpenAI's clients know wrong input by another status."""
        status = self.status_code
        if path.endswith("/completions") and status == HTTPStatus.UNPROCESSABLE_ENTITY:
            status = HTTPStatus.BAD_REQUEST
        document: dict[str, Any] = {
            "type": "about:blank",
            "title": self.title,
            "status": status,
            "detail": self.detail,
        }
        if self.problems:
            document["problems"] = list(self.problems)
        if path.endswith(("/completions", "/classify")):
            document["error"] = self.for_openai()
        elif path.endswith("/predict") and not path.endswith("/v1/predict"):  # text-embeddings-inference
            kind = "Validation" if self.status_code < HTTPStatus.TOO_MANY_REQUESTS else "Backend"
            document |= {"error": self.for_openai()["message"], "error_type": kind}
        return JSONResponse(document, status, headers=self.headers, media_type=MEDIA_TYPE)

    def for_openai(self) -> dict[str, Any]:
        """The same as an error of OpenAI, whose clients show the message alone."""
        more = [problem for problem in self.problems if problem not in str(self.detail)]
        message = f"{self.detail}: {'; '.join(more)}" if more else self.detail
        kind = "invalid_request_error" if self.status_code < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
        return {"message": message, "type": kind, "param": None, "code": self.code}


def busy(detail: str) -> Refused:
    """The refusal of a request for which there is no room now."""
    return Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{detail}; try again later", headers={"Retry-After": "1"})


def wrong_input(problems: Sequence[str]) -> Refused:
    """The refusal of a request's content; of many problems the first ones are told."""
    more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    detail = "the request is not of the form that /v1/openapi.json describes"
    listed = [*problems[:_SHOWN], *more]
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail, title="wrong input", problems=listed)


def refusal_of(error: Exception) -> Refused:
    """The refusal that an expected error is: the one place that turns errors into problem documents.

    The log has what is wrong with the server. `guard.Guard` sees to other errors.
    """
    if isinstance(error, Refused):
        return error
    if isinstance(error, ProtocolError):
        return Refused(error.status_code, str(error.detail), headers=error.headers)
    if isinstance(error, RequestValidationError):  # not pydantic's own list: it holds the values
        return wrong_input([f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()])
    if not isinstance(error, S3TError):
        raise error
    status, title = next(
        ((status, title) for kind, status, title in _OF_ERRORS if isinstance(error, kind)),
        (HTTPStatus.INTERNAL_SERVER_ERROR, None),
    )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logging.getLogger("s3t_server").warning("%s", error)
    if isinstance(error, FsyncError):  # this process must not go on; what starts servers starts another
        os.kill(os.getpid(), signal.SIGTERM)
    problems = error.problems if isinstance(error, InputError) else ()
    again = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    code = "context_length_exceeded" if isinstance(error, TooLongError) else None
    return Refused(status, _detail(error, title), title=title, problems=problems, headers=again, code=code)


def _detail(error: S3TError, title: str | None) -> str:
    """Sentence for a caller. A fault of the server is told without paths and hosts, with the run's state after it."""
    if isinstance(error, NoLiveShardError):
        return f"{title}; the run needs a repair, or holds no record"
    if isinstance(error, EngineError):
        return f"{error.public}; the server's log has more"
    if not isinstance(error, StorageError | IntegrityError):
        return error.reason
    now = "" if error.aftermath is None else f"; {error.aftermath.now}"
    return f"{title}; the server's log has the reason{now}"


def install(app: FastAPI) -> None:

    async def answer(request: Request, error: Exception) -> JSONResponse:
        return refusal_of(error).response(request.scope["path"])

    for kind in (Refused, S3TError, RequestValidationError, ProtocolError):
        app.add_exception_handler(kind, answer)
