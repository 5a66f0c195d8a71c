"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.cost_by_slices.experiment import FIXED, SISA
from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary, config = found["summary"], found["config"]
    less, mark, reached = summary["times_less_than"], config["paper_times_less"], None
    reached = summary["slices_where_the_paper_is_reached"]
    fixed, sisa = less[FIXED].values(), less[SISA].values()
    verdict = HOLDS if reached is not None else PART if min(sisa) > 1 else NOT
    where = f"at L={reached}" if reached is not None else "for none of these numbers of slices"
    return Finding(
        "Forests of stages cost less to repair than SISA, at the same depth, up to the paper's 2.8 times",
        f"{verdict}: {min(sisa):.2f} to {max(sisa):.2f} times less than SISA's one order, {mark:g} {where}; "
        f"{min(fixed):.1f} to {max(fixed):.1f} times less than {config['budget']} fixed orders; at most "
        f"{100 * summary['above_the_bound_at_most']:.0f} % above the bound of any policy",
    )
