"""Base classes of results. A result's fields are its JSON document and the schema of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

from s3t.core import Kind, Order, Stage
from s3t.descriptions import describe


class Result(BaseModel):
    """A result of a verb, of the same class from `Run` and from `Client`. A `repr` holds no names of records."""

    model_config = ConfigDict(frozen=True, json_schema_extra=describe)

    def to_json(self) -> dict[str, Any]:
        """The document of `--json`."""
        return self.model_dump(mode="json")


def as_html(title: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A title, and tables of rows by their captions: what a notebook shows."""
    import pandas as pd  # here: its import is slow

    parts = [f"<p>{escape(title)}</p>"]
    with pd.option_context("display.max_colwidth", None):
        for caption, rows in tables.items():
            if rows:
                shown = pd.DataFrame(rows).to_html(index=False, na_rep="", float_format="{:.4g}".format)
                parts.append(f"<p>{escape(caption)}</p>{shown}")
    return "".join(parts)


def _stage(document: Any) -> Any:
    return Stage(**document) if isinstance(document, dict) else document


StageField = Annotated[Stage, BeforeValidator(_stage), PlainSerializer(Stage.to_json, when_used="json")]


class OfStage(Result):
    """Something of a stage."""

    shard: int
    prefix: Order
    """Slices, in the order in which they were trained."""
    kind: Kind = "model"

    @property
    def stage(self) -> Stage:
        """The stage."""
        return Stage(self.shard, self.prefix, self.kind)


def utc(seconds: float | None) -> str | None:
    """ISO 8601, to the millisecond."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _seconds(time: Any) -> Any:
    return datetime.fromisoformat(time).timestamp() if isinstance(time, str) else time


Time = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(utc, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Seconds since the epoch; in documents ISO 8601 in UTC, to the millisecond."""
