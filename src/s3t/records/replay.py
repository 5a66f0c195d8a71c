"""Choice of a slice's records that later stages see again."""

from __future__ import annotations

from collections.abc import Sequence

from s3t.partition import Secret


def replayed(records: Sequence[str], share: float, *, secret: Secret) -> list[int]:
    """The positions of a slice's record ids whose keyed hash, read as a fraction of 1, lies below the share.

    The choice depends on each record's own id, so a deletion does not change the others'. It depends on one hash, so a
    larger share contains a smaller one.
    """
    if share == 1:  # all; the secret of a run whose key was destroyed need not be asked
        return list(range(len(records)))
    bound = share * 2**64
    return [
        position
        for position, record in enumerate(records)
        if int.from_bytes(secret.token("replay", "record", record)[:8], "big") < bound
    ]
