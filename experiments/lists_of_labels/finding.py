"""What the results say of tasks that the paper did not try."""

from __future__ import annotations

from experiments.findings import Finding
from experiments.runner import Row
from experiments.slice_wise import finding as slice_wise


def finding(found: Row) -> Finding:
    """As of `slice_wise`, of which this is an extension."""
    return slice_wise.finding(found)._replace(
        claim="The same holds for several labels and for tags of words (our claim)",
    )
