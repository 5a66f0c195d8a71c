"""Which records of a slice later stages see again."""

from __future__ import annotations

from collections.abc import Sequence

from s3t.partition import Secret


def replayed(records: Sequence[str], share: float, *, secret: Secret) -> list[int]:
    """The positions of those whose keyed hash, read as a fraction of 1, lies below the share.

    A function of each record's own id, so that a deletion changes nothing about the others; and of one hash, so that a
    larger share holds all of a smaller one.

    Args:
        records: ids of the slice's records.
        share: from 0 to 1.
        secret: the run's.
    """
    if share == 1:  # all; the secret of a run whose key was destroyed need not be asked
        return list(range(len(records)))
    bound = share * 2**64
    return [
        position
        for position, record in enumerate(records)
        if int.from_bytes(secret.token("replay", "record", record)[:8], "big") < bound
    ]
