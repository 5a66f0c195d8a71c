"""What the results say of the claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row

NEAR = 0.01
"""Of accuracy: what may be lost against eager repair."""
LESS = 2 / 3
"""Of the training of eager repair, at most."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    systems, requests = found["summary"]["systems"], found["config"]["requests"]
    cheaper = {name: _cheapest(policies) for name, policies in systems.items() if name.startswith("s3t")}
    less = [name for name, (_, share) in cheaper.items() if share <= LESS]
    verdict = HOLDS if len(less) == len(cheaper) else PART if less else NOT
    told = "; ".join(f"{name}, `{policy}`: {percent(share)}" for name, (policy, share) in cheaper.items())
    return Finding(
        "A policy that waits keeps the accuracy of eager repair for less training (our claim)",
        f"{verdict}: over {requests} requests within {100 * NEAR:g} point, for this share of its training: {told}",
    )


def _cheapest(policies: Row) -> tuple[str, float]:
    """The cheapest policy that is nearly as right as eager repair, and its share of eager repair's training."""
    eager = policies["eager"]
    near = [name for name, row in policies.items() if row["accuracy"] >= eager["accuracy"] - NEAR]
    best = min(near, key=lambda name: float(policies[name]["trainings"]))
    return best, policies[best]["trainings"] / eager["trainings"]
