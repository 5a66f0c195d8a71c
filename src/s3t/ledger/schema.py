"""The ledger's tables, and how values of `state.py` are their rows.

The last column of a table that decides anything is the row's check (`rows.py`). Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.schema import SchemaItem

from s3t.core import Kind, Place, Stage
from s3t.ledger.state import Checkpoint, Clone, DepthChange, ExportRow, NewLabel, RecordRow
from s3t.results.log import AdditionEntry
from s3t.results.serving import Held, Repair, Token, Visit

MAC = "mac"
T = TypeVar("T")


def prefix_text(stage: Stage) -> str:
    """A stage's prefix as it is stored: `2,0,1`; with what else it is, `2,0,1@4`, `prototypes:2`, `readout 1,0,0:2`."""
    text, reads = ",".join(map(str, stage.prefix)), "".join(f" {','.join(map(str, place))}" for place in stage.reads)
    seen = f"@{stage.seen}" if stage.seen else ""
    return f"{text}{seen}" if stage.kind == "model" else f"{stage.kind}{reads}:{text}{seen}"


def of_stage(stage: Stage) -> dict[str, Any]:
    """The columns of a row that name a stage."""
    return {"shard": stage.shard, "prefix": prefix_text(stage)}


def of_place(place: Place) -> dict[str, Any]:
    """The columns of a row that name a slice."""
    return place._asdict()


NO_SLICE = -1


def of_artifact(shard: int) -> dict[str, Any]:
    """The columns of a row that could name a slice's version, and name an artifact."""
    return {"shard": shard, "slice": NO_SLICE, "segment": NO_SLICE}


def place_at(row: Any) -> Place:
    """The segment that a row names."""
    return Place(row.shard, row.slice, row.segment)


def stage_at(shard: int, prefix: str) -> Stage:
    what, _, of = prefix.rpartition(":")
    text, _, seen = of.partition("@")
    kind, *reads = what.split(" ")
    slices, *places = ([int(number) for number in each.split(",")] for each in (text, *reads))
    return Stage(
        shard, tuple(slices), cast(Kind, kind or "model"), tuple(Place(*place) for place in places), int(seen or 0)
    )


def _texts_of(stages: Iterable[Stage]) -> tuple[str]:
    return (";".join(f"{stage.shard}/{prefix_text(stage)}" for stage in stages),)


def _stages_of(text: str) -> tuple[Stage, ...]:
    named = (each.partition("/") for each in text.split(";") if each)
    return tuple(stage_at(int(shard), prefix) for shard, _, prefix in named)


class _Field(NamedTuple):
    """A field of a value, and its columns in a row."""

    name: str
    columns: dict[str, Any]
    to_row: Callable[[Any], tuple[Any, ...]] = lambda value: (value,)
    of_row: Callable[..., Any] = lambda value: value


_fields: dict[type, tuple[_Field, ...]] = {}


def _field(name: str, hint: Any) -> _Field:
    """The field of a name and an annotation; null is null in the row."""
    (kind,) = {*get_args(hint)} - {NoneType} if NoneType in get_args(hint) else {get_origin(hint) or hint}
    match kind.__name__:
        case "Place":
            return _Field(name, {"shard": Integer, "slice": Integer, "segment": Integer}, tuple, Place)
        case "Stage":
            columns = {"shard": Integer, "prefix": String}
            return _Field(name, columns, lambda stage: (stage.shard, prefix_text(stage)), stage_at)
        case "tuple" if Stage in get_args(hint):
            return _Field(name, {name: String}, _texts_of, _stages_of)
        case "tuple":
            return _Field(name, {name: String}, lambda texts: (",".join(texts),), lambda text: tuple(text.split(",")))
        case "Path":
            return _Field(name, {name: String}, lambda path: (str(path),), Path)
        case "datetime":
            # Read as seconds, of which the value makes a time.
            return _Field(name, {name: Float}, lambda time: (None if time is None else time.timestamp(),))
        case "bool":
            return _Field(name, {name: Integer}, lambda value: (None if value is None else int(value),))
    return _Field(name, {name: {int: Integer, float: Float, str: String, bytes: LargeBinary}[kind]})


def row_of(value: Any) -> dict[str, Any]:
    """The row of a value, without a check; JSON-compatible if the value has no bytes."""
    row: dict[str, Any] = {}
    for field in _fields[type(value)]:
        row.update(zip(field.columns, field.to_row(getattr(value, field.name)), strict=True))
    return row


def value_of(kind: type[T], row: Any) -> T:
    return kind(
        **{field.name: field.of_row(*(getattr(row, column) for column in field.columns)) for field in _fields[kind]}
    )


metadata = MetaData()
table_of: dict[type, Table] = {}
"""Tables whose rows are values of a class."""
order_of: dict[type, list[ColumnElement[Any]]] = {}
"""The order in which those values are read."""
of_one_run: list[Table] = []
"""Tables of what is one run's alone: a copy of its ledger has no row of them."""


def _table(name: str, *parts: SchemaItem, checked: bool = True, copied: bool = True) -> Table:
    check = [Column(MAC, LargeBinary(16))] if checked else []  # null if it was written after the secret was destroyed
    table = Table(name, metadata, *parts, *check)
    if not copied:
        of_one_run.append(table)
    return table


def _table_of(
    kind: type, name: str, *parts: SchemaItem, key: str, order: str = "", checked: bool = True, copied: bool = True
) -> Table:
    """A table of values of a class; its columns are in the order of the class's fields.

    `key` names the columns of the primary key. Values are read in the order of a column, or backwards (`-column`), then
    of the key.
    """
    hints = get_type_hints(kind)
    names = kind.__dataclass_fields__ if is_dataclass(kind) else kind.model_fields  # type: ignore[attr-defined]
    _fields[kind] = tuple(_field(name, hints[name]) for name in names)
    columns = [
        Column(column, type, primary_key=column in key.split(), nullable=NoneType in get_args(hints[field.name]))
        for field in _fields[kind]
        for column, type in field.columns.items()
    ]
    table_of[kind] = table = _table(name, *columns, *parts, checked=checked, copied=copied)
    first = [table.c[order.lstrip("-")]] if order else []
    order_of[kind] = [*(each.desc() if order.startswith("-") else each for each in first), *table.primary_key]
    return table


generations = _table(
    "generations",
    Column("generation", Integer, primary_key=True),
    Column("received_at", Float, nullable=False),
    Column("accepted_at", Float),  # null until a later transaction notes that this one is durable
    Column("effective_at", Float),  # null until no answer is on its way that uses the records
    Column("erased_at", Float),  # null until no byte of the records is left
    Column("records", Integer, nullable=False),
    # Random: two deletions with one number, in a run and in a copy, are told apart.
    Column("mark", String(16), nullable=False),
    Column("request", LargeBinary(32)),  # the keyed hash of its idempotency key, if it had one
    Index("generations_by_request", "request"),
    Index("generations_by_erasure", "erased_at"),
)
"""Accepted deletions; generation 0 is written at `init`."""

requests = _table(
    "requests",
    Column("key", LargeBinary(32), primary_key=True),
    Column("content", LargeBinary(32), nullable=False),  # keyed hash of all requested names
    Column("names", Integer, nullable=False),  # accepted so far, in the order of their tokens
    Column("deleted", Integer, nullable=False),  # records deleted by those names
)
"""Requests with an idempotency key; a second request with the same key repeats nothing."""

slices = _table(
    "slices",
    Column("shard", Integer, primary_key=True),
    Column("slice", Integer, primary_key=True),
    Column("segment", Integer, primary_key=True),
    Column("records", Integer, nullable=False),
    Column("digest", String(64), nullable=False),  # of its current version
    Column("after", Integer, nullable=False),  # the newest generation when it was added
)
"""Segments of slices, and how many records each holds."""

additions = _table_of(AdditionEntry, "additions", key="addition", checked=False)
"""Additions, for the log. Nothing is decided by them, so they have no check."""

labels = _table_of(NewLabel, "labels", key="number")
"""Labels beside those of init."""

records = _table_of(
    RecordRow,
    "records",
    ForeignKeyConstraint(["shard", "slice", "segment"], ["slices.shard", "slices.slice", "slices.segment"]),
    Index("records_by_subject", "subject"),
    key="token",
)
"""Present records and their slices, by token."""

deleted = _table(
    "deleted",
    Column("token", LargeBinary(32), primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("asked", Integer, nullable=False),  # 0: nobody asked: it left with a table, by age, or for a newer version
    Index("deleted_by_generation", "generation"),
)
"""Tokens of deleted records, and of subjects of whom none was left, with the last deletion of each; a second request is
answered from them. It concerns segments that are older than it: what came back later lies in a newer one."""

erasing_records = _table(
    "erasing_records",
    Column("token", LargeBinary(32), primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("slice", Integer, primary_key=True),
    Column("segment", Integer, primary_key=True),
    Column("generation", Integer, nullable=False),
    Index("erasing_records_by_slice", "shard", "slice", "segment"),
)
"""Deleted records that are still in the current version of their slice."""

condemned = _table(
    "condemned",
    Column("shard", Integer, primary_key=True),
    Column("slice", Integer, primary_key=True),  # NO_SLICE for an artifact, as the segment
    Column("segment", Integer, primary_key=True),
    Column("name", String(64), primary_key=True),  # an artifact's key, or the digest of a slice's version
    Column("generation", Integer, nullable=False),  # of the deletion that condemned it; 0 if none did
)
"""Queue of artifacts and versions of slices to be erased from the store.

Artifacts are tainted, or were announced and never committed. Versions are superseded, or put and not current yet."""

stages = _table(
    "stages",
    Column("shard", Integer, primary_key=True),
    Column("prefix", String, primary_key=True),  # slice numbers, comma-separated
    Column("key", String(64), nullable=False),
    Column("manifest", String(64), nullable=False),  # SHA-256 of the manifest
)
"""Committed, untainted stages."""

durations = _table(
    "durations",
    Column("shard", Integer, primary_key=True),
    Column("prefix", String, primary_key=True),
    Column("seconds", Float, nullable=False),
    # A stage's time follows from its records, so the database removes it with the stage, whatever removes that.
    ForeignKeyConstraint(
        ["shard", "prefix"], ["stages.shard", "stages.prefix"], onupdate="CASCADE", ondelete="CASCADE"
    ),
    checked=False,
)
"""Seconds of training of committed stages, for forecasts. Nothing is decided by them, so they have no check."""

sessions = _table(
    "sessions",
    Column("session", String(32), primary_key=True),
    Column("host", String, nullable=False),
    Column("process", Integer, nullable=False),
    Column("generation", Integer, nullable=False),  # it uses nothing older
    Column("seen_at", Float, nullable=False),
    Column("answers", Integer, nullable=False),  # none of its answers that is older leaves any more
    checked=False,
    copied=False,
)
"""Open runs that predict or train, in any process on any host; deletions wait for them."""

claims = _table(
    "claims",
    Column("shard", Integer, primary_key=True),
    Column("prefix", String, primary_key=True),
    Column("session", String(32), nullable=False),
    Column("key", String(64)),  # of the artifact that the session puts; null before it is announced
    Column("device", String, nullable=False),
    Column("since", Float, nullable=False),
    checked=False,
    copied=False,
)
"""Stages that a session is training."""

checkpoints = _table_of(Checkpoint, "checkpoints", key="shard prefix", copied=False)
"""The newest checkpoint of each stage whose training has been going on for a while, or was killed."""

clones = _table_of(Clone, "clones", key="path")
"""Clones that are being made, whose folders hold records."""

exports = _table_of(
    ExportRow, "exports", Index("exports_by_name", "name"), key="mark", order="announced_at", copied=False
)
"""Copies of chains for other programs, from before the first byte is written. Rows stay when they are withdrawn."""

withdrawals = _table(
    "withdrawals",
    Column("mark", String, primary_key=True),
    Column("generation", Integer, primary_key=True),
    copied=False,
)
"""Exports with a record of a deletion in them. The deletion is not erased before they are withdrawn."""

tokens = _table_of(Token, "tokens", UniqueConstraint("digest"), key="name", order="created_at", copied=False)
"""Bearer tokens of callers of a run's servers, and what each may do."""

visits = _table_of(Visit, "visits", key="digest", copied=False)
"""Browsers that have signed in to the page of a run's servers, until they sign out or their time is over."""

repairs = _table_of(Repair, "repairs", key="id", order="-asked_at", checked=False, copied=False)
"""Repairs by servers, for those who look on. Nothing is decided by them but who repairs, so they have no check."""

held = _table_of(Held, "held", key="id", order="-asked_at", copied=False)
"""Requests for deletion that wait, or waited, until an operator approves or refuses them."""

held_names = _table(
    "held_names",
    Column("held", String(16), primary_key=True),
    Column("token", LargeBinary(32), primary_key=True),
    Column("is_subject", Integer, primary_key=True),
    copied=False,
)
"""Names of held requests, until they are carried out or refused."""

admitted = _table(
    "admitted",
    Column("mark", String(16), primary_key=True),  # random, of the request
    Column("shard", Integer, primary_key=True),
    Column("asked_by", String, nullable=False),
    Column("asked_at", Float, nullable=False),
    Column("records", Integer, nullable=False),
    copied=False,
)
"""Records that requests to servers took from each shard within the last hour: what rates are computed from."""

depths = _table_of(DepthChange, "depths", key="changed_at shard", checked=False)
"""Changes of shards' depths, for pictures; the newest of them. Nothing is decided by them, so they have no check."""

notes = _table(
    "notes",
    Column("name", String, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""Numbers by name (`rows.py`)."""
