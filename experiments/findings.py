"""A claim, the paper's or ours, and its verdict by our results. Every folder's `finding.py` makes one."""

from __future__ import annotations

from typing import NamedTuple

HOLDS, PART, NOT = "holds", "holds in part", "does not hold at this scale"


class Finding(NamedTuple):
    """One claim, in Markdown."""

    claim: str
    """The claim in a few words. The experiment's README has the paper's words and their place."""
    verdict: str
    """HOLDS, PART or NOT, and after a colon our numbers."""


def percent(share: float | None) -> str:
    """A share, or that nothing answers.

    >>> percent(0.5), percent(None)
    ('50.0 %', 'dead')
    """
    return "dead" if share is None else f"{100 * share:.1f} %"
