"""Assignment of records to slices, each independently of every other."""

from __future__ import annotations

from typing import NamedTuple

from s3t.partition.secret import Secret


class Place(NamedTuple):
    """A slice of a shard, both counted from 0."""

    shard: int
    slice: int


def place_of(record: str, subject: str | None, *, secret: Secret, shards: int, slices: int) -> Place:
    """Where a record lies: the keyed hash of its subject if it has one, else of its id.

    It is a function of this record and the secret alone, so without the record nothing else moves; all records of a
    subject share a place. 128 bits are reduced modulo m and L, so the bias is below 2^-100.

    >>> place_of("r1", None, secret=Secret(salt="x"), shards=1, slices=1)
    Place(shard=0, slice=0)
    """
    kind, owner = ("record", record) if subject is None else ("subject", subject)
    number = int.from_bytes(secret.token("partition", kind, owner)[:16], "big")
    number, shard = divmod(number, shards)
    return Place(shard, number % slices)
