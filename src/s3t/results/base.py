"""Base classes of results. A result's fields are its JSON document and the schema of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

from s3t.core import Kind, Order, Place, Stage
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


StageField = Annotated[Stage, PlainSerializer(Stage.to_json, when_used="json")]
SliceField = Annotated[Place, PlainSerializer(lambda place: place[:2], when_used="json")]
"""A slice; in documents [shard, slice]."""


class OfStage(Result):
    """Something of a stage."""

    shard: int
    prefix: Order
    """Slices, in the order in which they were trained."""
    kind: Kind = "model"
    seen: int = 0
    """The newest addition whose records it was trained on; 0: none."""

    @property
    def stage(self) -> Stage:
        return Stage(self.shard, self.prefix, self.kind, seen=self.seen)


def utc(seconds: float) -> datetime:
    """The time so many seconds after the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


Time = Annotated[
    datetime,  # pydantic takes seconds since the epoch, too
    PlainSerializer(lambda time: time.isoformat(timespec="milliseconds"), when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A time in UTC, or seconds since the epoch for it; in documents ISO 8601, to the millisecond."""
