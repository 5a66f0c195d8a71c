"""A warning of slices without a record. Computed when it is asked for and never kept, as that of few steps."""

from __future__ import annotations

from s3t.inventory import Inventory
from s3t.wording import counted


def empty_slices(inventory: Inventory) -> tuple[str, ...]:
    """The warning, or none."""
    empty = sum(count == 0 for count in inventory.records.values())
    if not empty:
        return ()
    return (
        f"{empty:,} of {counted(len(inventory.records), 'slice')} hold no record: use fewer shards or slices, or more "
        "records, in a new run",
    )
