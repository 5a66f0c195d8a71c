"""A run that `s3t serve` serves, with the verbs of `Run` over HTTP."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from s3t.errors import InputError, ServerError
from s3t.records.requests import requested_names
from s3t.results.changes import Added, Deletion
from s3t.results.log import AdditionEntry, Location, LogEntry
from s3t.results.serving import Approved, Held, Repair
from s3t.results.state import Forecast, Status

_AGAIN = (429, 502, 503, 504)
"""Statuses after which the same request may succeed in a moment."""
Found = TypeVar("Found", bound=BaseModel)
_FIRST_PAUSE, _LONGEST_PAUSE, _BETWEEN_LOOKS = 0.25, 60.0, 1.0
"""Seconds; each pause before another attempt is twice the one before."""


class Client(AbstractContextManager["Client"]):
    """A run that a server serves. Close it, or use it in a `with`.

        with s3t.Client("http://127.0.0.1:8080", token) as run:
            run.predict(["where is my card?"])["predictions"]
            run.delete(subjects=["c7"], key="ticket-4711").deleted

    A request that finds no server, or one that is busy, is made again, after the pause that the server asks for.
    Deletions have a key, so one that was carried out and whose answer was lost is not carried out twice.

    Every method may raise ServerError: the server refused, with its `status`, or was not found; and InputError: what
    was given is wrong, all problems at once.

    Args:
        url: address of the server; with `/runs/NAME` after it, of one of its several runs.
        token: made with `s3t token create`; None: ask only what needs no token.
        attempts: how often a request is made at most; then the last error is raised.
        timeout: longest silence of the server, in seconds.
    """

    def __init__(self, url: str, token: str | None = None, *, attempts: int = 4, timeout: float = 60.0) -> None:
        if attempts < 1:
            raise InputError("the client", f"attempts {attempts}: give at least 1")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            address = httpx.URL(url.rstrip("/"))
            if address.scheme not in ("http", "https") or not address.host:
                raise httpx.InvalidURL("it does not begin with http://HOST or https://HOST")
            self._http = httpx.Client(base_url=address, headers=headers, timeout=timeout)
        except (httpx.InvalidURL, UnicodeError) as error:
            reason = "the token is not ASCII" if isinstance(error, UnicodeError) else f"the address is wrong: {error}"
            raise InputError("the client", reason) from None
        self._attempts = attempts

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({str(self._http.base_url)!r})"

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def predict(self, inputs: Any, *, top: int | None = None) -> dict[str, Any]:
        """The ensemble's answers, all of one generation.

        Args:
            inputs: texts, pairs, lists of words, rows, or images (bytes, paths or PIL); one text, or a list.
            top: labels with their probabilities, the likeliest first; None: all.

        Returns:
            `run`, `generation`, `members` and `predictions`, one an input.
        """
        return self._ask("POST", "/v1/predict", {"inputs": _sent(inputs), "top": top})

    def add(
        self,
        records: Sequence[Mapping[str, Any]],
        *,
        replace: bool = False,
        readmit: bool = False,
        new_labels: Sequence[str] = (),
    ) -> Added:
        """Take more records in, as `Run.add`. After a ServerError it is unknown whether they came; for operators, who
        may `replace`, it does no harm to repeat it."""
        body = {"records": [*records], "replace": replace, "readmit": readmit, "new_labels": new_labels}
        return _parsed(Added, self._ask("POST", "/v1/records", body))

    def delete(
        self,
        *,
        records: Sequence[str | int] = (),
        subjects: Sequence[str | int] = (),
        key: str | None = None,
        strict: bool = False,
        dry_run: bool = False,
    ) -> Deletion:
        """Delete records, and people with all of theirs. When it returns, they are durably out of use. After a
        ServerError repeat it with the same key.

        Args:
            records: ids.
            subjects: people.
            key: of this request, such as a ticket's number; None: a random one.
            strict: delete nothing unless every name is known.
            dry_run: say what would happen, and do nothing.
        """
        body = requested_names(records, subjects) | {"strict": strict, "dry_run": dry_run}
        found = self._ask("POST", "/v1/deletions", body, headers={"Idempotency-Key": key or uuid.uuid4().hex})
        return _parsed(Deletion, found)

    def log(self) -> tuple[LogEntry, ...]:
        """Every deletion with its times, without names; entry 0 is the making of the run."""
        return tuple(_parsed(LogEntry, each) for each in self._ask("GET", "/v1/deletions")["deletions"])

    def additions(self) -> tuple[AdditionEntry, ...]:
        """Every addition with its time, without names, the oldest first."""
        return tuple(_parsed(AdditionEntry, each) for each in self._ask("GET", "/v1/additions")["additions"])

    def deletion(self, id: int) -> LogEntry:
        """Times of one deletion: received, accepted, effective, erased."""
        return _parsed(LogEntry, self._ask("GET", f"/v1/deletions/{id:d}"))

    def held(self) -> tuple[Held, ...]:
        """Deletions that wait for an operator, or waited, the newest first; without names."""
        return tuple(_parsed(Held, each) for each in self._ask("GET", "/v1/held")["held"])

    def approve(self, held: str) -> Approved:
        """Carry out a held deletion, by its id. For operators: not with the token that asked for it (403), nor if it
        was refused (409)."""
        return _parsed(Approved, self._ask("POST", f"/v1/held/{held}/approve"))

    def refuse(self, held: str, reason: str) -> Held:
        """Refuse a held deletion, by its id. For operators; not if it was approved (409).

        The reason is a line of text, which is kept; it names nobody.
        """
        return _parsed(Held, self._ask("POST", f"/v1/held/{held}/refuse", {"reason": reason}))

    def locate(self, *, records: Sequence[str | int] = (), subjects: Sequence[str | int] = ()) -> tuple[Location, ...]:
        """Find records by their ids, and people: present ones with their slices, deleted ones with the time. For
        operators."""
        found = self._ask("POST", "/v1/locate", requested_names(records, subjects))
        return tuple(_parsed(Location, each) for each in found["located"])

    def status(self) -> Status:
        """The state of the run, with a forecast."""
        return _parsed(Status, self._ask("GET", "/v1/status"))

    def forecast(self) -> Forecast | None:
        """Expected numbers of deletions until shards lose depth and die; None if none could be computed."""
        found = self._ask("GET", "/v1/forecast")["forecast"]
        return None if found is None else _parsed(Forecast, found)

    def repair(self, *, hours: float | None = None) -> Repair:
        """Begin a repair beside the server, which goes on answering, unless one is under way (409); `follow` tells how
        far it is. No stage begins after so many hours; None: all that is missing is trained."""
        return _parsed(Repair, self._ask("POST", "/v1/repairs", {"hours": hours}))

    def repairs(self) -> tuple[Repair, ...]:
        """Repairs, the newest first."""
        return tuple(_parsed(Repair, each) for each in self._ask("GET", "/v1/repairs")["repairs"])

    def follow(self, repair: str) -> Iterator[Repair]:
        """A repair, by its id, whenever it has changed, until it has ended; asked for each second."""
        last: Repair | None = None
        while last is None or last.ended_at is None:
            if last is not None:
                time.sleep(_BETWEEN_LOOKS)
            if (found := _parsed(Repair, self._ask("GET", f"/v1/repairs/{repair}"))) != last:
                yield (last := found)

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The document that a route answers with. `body` without what is None."""
        given = None if body is None else {name: value for name, value in body.items() if value is not None}
        attempt = 0
        while True:
            attempt += 1
            last = attempt == self._attempts
            pause = _FIRST_PAUSE * 2.0 ** (attempt - 1)
            try:
                answer = self._http.request(method, path, json=given, headers=dict(headers or {}))
            except httpx.TransportError as error:
                if last:
                    reason = f"no answer from {self._http.base_url}: {str(error) or type(error).__name__}"
                    raise ServerError(reason) from error
            except (TypeError, ValueError) as error:
                raise InputError("the request", f"cannot be sent as JSON: {error}") from None
            else:
                if answer.is_success or last or answer.status_code not in _AGAIN:
                    return _document(answer)
                given_pause = answer.headers.get("Retry-After", "")
                pause = max(pause, float(given_pause) if given_pause.isdecimal() else 0.0)
            time.sleep(min(pause, _LONGEST_PAUSE))


def _sent(value: Any) -> Any:
    """An input, or a list of them, as JSON has it: images in base64."""
    if isinstance(value, list | tuple):
        return [_sent(each) for each in value]
    if isinstance(value, Path):
        value = value.read_bytes()
    elif callable(getattr(value, "save", None)):  # an image of Pillow, which is not imported for this
        from s3t.records.images import as_png

        value = as_png(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def _parsed(kind: type[Found], document: Any) -> Found:
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, each["loc"])) for each in error.errors())  # no values: they may be names
        raise ServerError(f"the server is of another version of s3t: its documents differ in {wrong}") from None


def _document(answer: httpx.Response) -> dict[str, Any]:
    """The document of an answer; raises the error that a refusal is."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    known = isinstance(found, dict)
    if answer.is_success:
        if not known:
            raise ServerError(
                f"{answer.url.host} is no server of s3t: it answers with something else than its documents"
            )
        return dict(found)
    if not known or "detail" not in found:
        reason = f"{answer.url.host} answers with status {answer.status_code}; is it a server of s3t?"
        raise ServerError(reason, status=answer.status_code)
    if answer.status_code in (413, 422):
        raise InputError("the request", [str(each) for each in found.get("problems", ())] or [str(found["detail"])])
    raise ServerError(f"{found['detail']} (status {answer.status_code})", status=answer.status_code)
