"""Assignment of records to slices, each independently of every other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from s3t.partition.secret import Secret


class Place(NamedTuple):
    """A slice of a shard, both counted from 0."""

    shard: int
    slice: int


def place_of(
    record: str,
    subject: str | None,
    *,
    secret: Secret,
    shards: int,
    slices: int,
    among: Sequence[int] | None = None,
) -> Place:
    """The place of a record, by the keyed hash of its subject if it has one, else of its id.

    It is a function of this record and the secret alone, so a deletion moves no other record. All records of a subject
    share a place, and have one group, if there are groups. 128 bits are reduced modulo m and L, so the bias is below
    2^-100.

    Args:
        among: the slices that its group is spread over; None for all of them.

    >>> place_of("r1", None, secret=Secret(salt="x"), shards=1, slices=1)
    Place(shard=0, slice=0)
    >>> place_of("r1", None, secret=Secret(salt="x"), shards=1, slices=4, among=[2])
    Place(shard=0, slice=2)
    """
    kind, owner = ("record", record) if subject is None else ("subject", subject)
    number = int.from_bytes(secret.token("partition", kind, owner)[:16], "big")
    number, shard = divmod(number, shards)
    allowed = range(slices) if among is None else among
    return Place(shard, allowed[number % len(allowed)])
