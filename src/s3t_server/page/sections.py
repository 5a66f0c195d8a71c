"""Page of one run, and the content of its sections."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response

from s3t_server.answering import ServedRun
from s3t_server.callers import Caller
from s3t_server.documents import MAX_NAMES, MOST_ID
from s3t_server.page import history, outlook, views
from s3t_server.page.board import SCOPES, Board, Forecasts, Look
from s3t_server.page.consequences import Consequences, consequences
from s3t_server.page.rendering import html

if TYPE_CHECKING:
    from s3t.results.state import Status

_ROWS = 15
"""Deletions on a page of them."""
_DECIDED = 3
"""Decided requests that are shown, the newest."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Content of the part of the page with the form for names. Names are in bodies of requests and answers alone."""

    kind: str = "subjects"
    names: str = ""
    """The names as typed, one on each line."""
    problems: tuple[str, ...] = ()
    found: tuple[tuple[str, str], ...] = ()
    """Each name, and where it is."""
    consequences: Consequences | None = None
    asks: bool = False
    """True if the deletion is to be confirmed."""
    key: str = ""
    """Idempotency key of the deletion to come: however often the form is sent, it happens once."""
    said: str = ""
    """Outcome, in a sentence."""

    @property
    def lines(self) -> list[str]:
        """The names, without empty lines."""
        return [line for line in self.names.split("\n") if line.strip()]


@dataclass(frozen=True)
class Page:
    served: ServedRun
    board: Board
    runs: tuple[str, ...]
    """Names of all runs of the server."""

    def whole(self, who: Caller, request: Request, status: int = 200, desk: Desk | None = None) -> Response:
        """The whole page, with all sections that a visitor may see."""
        visit = Visit(self, who, request.query_params, self.board.look())
        names = [name for name in sections_for(who) if name != "done" or "done" in request.query_params]
        sections = {name: visit.section(name) for name in names}
        return html("page.html", status, page=self, who=who, sections=sections, desk=desk or Desk())

    def part(self, name: str, who: Caller, request: Request) -> Response:
        """A section of the page, newer than the version that the browser shows if there is a newer one.

        A stream of another worker may have named it: then this process looks anew.
        """
        look = self.board.last_look()
        if self.board.versions(look)[name] == request.query_params.get("seen"):
            look = self.board.look()
        visit = Visit(self, who, request.query_params, look)
        return html(f"sections/{name}.html", page=self, section=visit.section(name))

    @property
    def has_subjects(self) -> bool:
        """True if records belong to people."""
        return self.served.run.recipe.columns.subject is not None


@dataclass(frozen=True)
class Visit:
    """A visitor's request for the page or a section, and the state of the run for it."""

    page: Page
    who: Caller
    query: Mapping[str, str]
    look: Look

    @property
    def status(self) -> Status:
        """The run's."""
        return self.page.board.status(self.look)

    @property
    def forecasts(self) -> Forecasts:
        """The run's."""
        return self.page.board.forecasts(self.look)

    def section(self, name: str) -> dict[str, Any]:
        """Content of a section for its template."""
        version = self.page.board.versions(self.look)[name]
        return {"name": name, "version": version, **_SHOWN[name](self)}


def sections_for(who: Caller) -> list[str]:
    """Sections that a visitor may see, in the page's order."""
    return [name for name, scopes in SCOPES.items() if any(map(who.may, scopes))]


def _summary(visit: Visit) -> dict[str, Any]:
    return {"view": views.summary(visit.status, visit.forecasts.now)}


def _done(visit: Visit) -> dict[str, Any]:
    """The deletion that the visitor has just made."""
    asked = _id(visit.query.get("done", ""))
    entries = () if asked is None else visit.page.served.run.log([asked])
    unknown = min(_id(visit.query.get("unknown", "")) or 0, MAX_NAMES)
    query = f"done={asked}" + (f"&unknown={unknown}" if unknown else "")
    return {
        "view": history.deletion(entries[0]) if entries else None,
        "unknown": unknown,
        "query": query if entries else "",
    }


def _id(text: str) -> int | None:
    """Id of a deletion; None if the text is none. 0 is the making of the run."""
    number = int(text) if text.isdecimal() and len(text) < 16 else 0
    return number if 0 < number <= MOST_ID else None


def _held(visit: Visit) -> dict[str, Any]:
    """Held requests. Those who may decide on one are told what it would do."""
    every, who = visit.look.held, visit.who
    waiting = tuple(held for held in every if held.state in ("held", "approved"))
    may_decide = tuple(held for held in waiting if who.may("operate") and held.asked_by != who.ledger_name)
    looked_into = next((held for held in may_decide if held.id == visit.query.get("held")), None)
    cost = None
    if looked_into is not None:
        cost = consequences(visit.page.board.impact(visit.look, looked_into), name="held-after")
    return {
        "waiting": waiting,
        "may_decide": may_decide,
        "decided": tuple(held for held in every if held not in waiting)[:_DECIDED],
        "looked_into": looked_into,
        "consequences": cost,
        "tells_why": who.may("operate"),
        "query": "" if looked_into is None else f"held={looked_into.id}",
    }


def _shards(visit: Visit) -> dict[str, Any]:
    return {"view": views.shards(visit.status, visit.look.training)}


def _depths(visit: Visit) -> dict[str, Any]:
    status, span = visit.status, visit.query.get("span", "all")
    view = history.depths_over_time(
        visit.page.board.depths(visit.look),
        status.depths,
        now=time.time(),
        span=span if span in history.SPANS else "all",
        most=status.wanted_depth,
    )
    return {"view": view, "spans": tuple(history.SPANS), "query": f"span={view.span}"}


def _forecast(visit: Visit) -> dict[str, Any]:
    return {"view": outlook.ahead(visit.forecasts.now)}


def _repairs(visit: Visit) -> dict[str, Any]:
    now, after, _ = visit.forecasts
    repaired = outlook.repaired_inventory(visit.page.board.inventory(visit.look)).depths()
    return {"view": outlook.repairing(visit.status, repaired, visit.look.repairs, ahead=now, ahead_after=after)}


def _deletions(visit: Visit) -> dict[str, Any]:
    """A page of the log, the newest first; generations have gaps at most where a backup was put back."""
    newest = visit.status.generation
    until = min(_id(visit.query.get("until", "")) or newest, newest)
    first = max(1, until - _ROWS + 1)
    entries = visit.page.served.run.log(range(first, until + 1)) if until else ()
    return {
        "view": tuple(map(history.deletion, reversed(entries))),
        "newer": min(newest, until + _ROWS) if until < newest else None,
        "older": first - 1 if first > 1 else None,
        "query": f"until={until}" if until < newest else "",
    }


def _notes(visit: Visit) -> dict[str, Any]:
    status = visit.status
    withdraw = [f"export {export.name} holds deleted records: withdraw it" for export in status.to_withdraw]
    return {"warnings": (*withdraw, *status.warnings, *status.advice), "gaps": status.gaps}


_SHOWN: Mapping[str, Callable[[Visit], dict[str, Any]]] = {
    "summary": _summary,
    "done": _done,
    "held": _held,
    "shards": _shards,
    "depths": _depths,
    "forecast": _forecast,
    "repairs": _repairs,
    "deletions": _deletions,
    "notes": _notes,
}
