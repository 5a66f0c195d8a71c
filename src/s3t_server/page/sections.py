"""The page of a run, and the content of its sections."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from fastapi import Response

from s3t.results.changes import Deletion
from s3t.results.log import Location
from s3t.results.state import Status
from s3t_server.callers import Caller
from s3t_server.documents import MAX_NAMES, MOST_ID
from s3t_server.page import views
from s3t_server.page.board import DAY_SECONDS, SCOPES, Look, repaired_inventory
from s3t_server.page.rendering import html
from s3t_server.served import ServedRun

_ROWS = 15
"""Deletions on a page of them."""
_MOST_SHARDS = 40
"""Shards that are drawn; of others the number is told."""
_HELD = 20
"""Held requests that are shown, the newest, and callers that are named."""
_DECIDED = 3
"""Decided requests that are shown, the newest."""
_REPAIRS = 6
"""Repairs that are shown, the newest."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Content of the part of the page with the form for names. Names are in bodies of requests and answers alone."""

    kind: str = "subjects"
    names: str = ""
    """The names as typed, one on each line."""
    problems: tuple[str, ...] = ()
    found: tuple[Location, ...] = ()
    """Each name, and where it is."""
    forecast: Deletion | None = None
    """Result of a dry run of the deletion."""
    asks: bool = False
    """True if the deletion is to be confirmed."""
    key: str = ""
    """Idempotency key of the deletion to come: however often the form is sent, it happens once."""
    said: str = ""
    """Outcome, in a sentence."""

    @property
    def lines(self) -> list[str]:
        return [line for line in self.names.split("\n") if line.strip()]


@dataclass
class Visit:
    """A visitor's request for the page of a run, or for a section of it."""

    served: ServedRun
    who: Caller
    query: Mapping[str, str]

    @cached_property
    def look(self) -> Look:
        """State of the run for this visit; `part` may set an earlier one."""
        return self.served.board.look()

    def page(self, status: int = 200, desk: Desk | None = None) -> Response:
        """The whole page, with all sections that the visitor may see."""
        names = [name for name in sections_for(self.who) if name != "done" or "done" in self.query]
        sections = {name: self.section(name) for name in names}
        return html("page.html", status, served=self.served, who=self.who, sections=sections, desk=desk or Desk())

    def part(self, name: str) -> Response:
        """A section of the page, newer than the version that the browser shows if there is a newer one.

        A stream of another worker may have named it: then this process looks anew.
        """
        board = self.served.board
        self.look = board.last_look()
        if board.versions(self.look)[name] == self.query.get("seen"):
            self.look = board.look()
        return html(f"sections/{name}.html", served=self.served, section=self.section(name))

    def section(self, name: str) -> dict[str, Any]:
        version = self.served.board.versions(self.look)[name]
        return {"name": name, "version": version, **getattr(self, f"_{name}")()}

    @property
    def _status(self) -> Status:
        return self.served.board.status(self.look)

    def _summary(self) -> dict[str, Any]:
        return {"status": self._status, "forecast": self.served.board.forecasts(self.look).now}

    def _done(self) -> dict[str, Any]:
        asked = _id(self.query.get("done", ""))
        entry = None if asked is None else next(iter(self.served.run.log([asked])), None)
        unknown = min(_id(self.query.get("unknown", "")) or 0, MAX_NAMES)
        query = f"done={asked}" + (f"&unknown={unknown}" if unknown else "")
        return {"entry": entry, "unknown": unknown, "query": "" if entry is None else query}

    def _held(self) -> dict[str, Any]:
        """Held requests. Those who may decide on one are told what it would do."""
        every, who = self.look.held, self.who
        waiting = [held for held in every if held.state in ("held", "approved")]
        callers = Counter(held.asked_by for held in waiting)
        caller = of if (of := self.query.get("of", "")) in callers else ""
        shown = [held for held in waiting if caller in ("", held.asked_by)]
        may_decide = {held.id for held in shown if who.may("operate") and held.asked_by != who.ledger_name}
        asked = self.query.get("held")
        looked_into = next((held for held in shown if held.id == asked and held.id in may_decide), None)
        query = {"of": caller, "held": "" if looked_into is None else looked_into.id}
        return {
            "waiting": len(waiting),
            "shown": dict.fromkeys(([] if looked_into is None else [looked_into]) + shown[:_HELD]),
            "callers": callers.most_common(_HELD) if len(waiting) > _HELD else (),
            "caller": caller,
            "refuses": sum(held.state == "held" and held.id in may_decide for held in shown) if caller else 0,
            "may_decide": may_decide,
            "decided": tuple(held for held in every if held.state not in ("held", "approved"))[:_DECIDED],
            "looked_into": looked_into,
            "forecast": None if looked_into is None else self.served.board.impact(self.look, looked_into),
            "tells_why": who.may("operate"),
            "query": urlencode({name: value for name, value in query.items() if value}),
        }

    def _shards(self) -> dict[str, Any]:
        """The shards, the shallowest if they are many."""
        status = self._status
        shallowest = sorted(status.shards, key=lambda shard: shard.depth)[:_MOST_SHARDS]
        return {
            "status": status,
            "workers": self.look.workers,
            "training": self.look.training,
            "drawn": sorted(shallowest, key=lambda shard: shard.shard),
            "longest": views.longest_of(status.shards),
        }

    def _depths(self) -> dict[str, Any]:
        status, span = self._status, self.query.get("span", "all")
        span = span if span in views.SPANS else "all"
        shown = views.depths_over_time(
            self.served.board.depths(self.look), status.depths, now=time.time(), span=span, most=status.wanted_depth
        )
        return {**shown, "span": span, "spans": tuple(views.SPANS), "query": f"span={span}"}

    def _forecast(self) -> dict[str, Any]:
        ahead = views.ahead(self.served.board.forecasts(self.look).now)
        most = max((between[1] for _, _, between in ahead if between is not None), default=1.0)
        return {"ahead": ahead, "most": max(most, 1.0)}

    def _repairs(self) -> dict[str, Any]:
        """Cost and gain of a repair, and the repairs so far."""
        status, (now, after, _) = self._status, self.served.board.forecasts(self.look)
        yesterday = time.time() - DAY_SECONDS
        repaired = repaired_inventory(self.served.board.inventory(self.look)).depths()
        return {
            "status": status,
            "repaired": repaired,
            "revived": sum(bool(new) and not old for old, new in zip(status.depths, repaired, strict=True)),
            "dies": now and now.next_shard_dies,
            "dies_after": after and after.next_shard_dies,
            "running": next((repair for repair in self.look.repairs if repair.state == "running"), None),
            "repairs": self.look.repairs[:_REPAIRS],
            "deleted": self.look.deleted,
            "worked": sum(each.seconds for each in self.look.repairs if each.seen_at.timestamp() > yesterday) / 3600,
        }

    def _deletions(self) -> dict[str, Any]:
        """A page of the log, the newest first; generations have gaps at most where a backup was put back."""
        newest = self._status.generation
        until = min(_id(self.query.get("until", "")) or newest, newest)
        first = max(1, until - _ROWS + 1)
        entries = self.served.run.log(range(first, until + 1)) if until else ()
        return {
            "entries": entries[::-1],
            "newer": min(newest, until + _ROWS) if until < newest else None,
            "older": first - 1 if first > 1 else None,
            "query": f"until={until}" if until < newest else "",
        }

    def _notes(self) -> dict[str, Any]:
        status = self._status
        withdraw = [f"export {export.name} holds deleted records: withdraw it" for export in status.to_withdraw]
        return {"warnings": (*withdraw, *status.warnings, *status.advice), "gaps": status.gaps}


def sections_for(who: Caller) -> list[str]:
    """Sections that a visitor may see, in the page's order."""
    return [name for name, scopes in SCOPES.items() if any(map(who.may, scopes))]


def _id(text: str) -> int | None:
    """Id of a deletion; None if the text is none. 0 is the making of the run."""
    number = int(text) if text.isdecimal() and len(text) < 16 else 0
    return number if 0 < number <= MOST_ID else None
