"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    budgets, reached = summary["budgets_above_1"], summary["cyclic_reaches_the_bound_at"]
    below, adjacent = summary["cyclic_below_random_at"], summary["cyclic_adjacent_below_random_at"]
    return Finding(
        "Orders of cyclic rotation are more diverse than random ones",
        f"{HOLDS if not below + adjacent else PART if min(below, adjacent) < budgets / 2 else NOT}: our `cyclic`, "
        f"with spaced rotations, reaches the bound at {reached} of {budgets} budgets; the first B of Algorithm 1's "
        f"reach it at {summary['cyclic_adjacent_reaches_the_bound_at']} and are below random orders at {adjacent}, by "
        f"{summary['cyclic_adjacent_below_random_by']:.3f} at most",
    )
