"""Verdict on our claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.kept_by_forests.experiment import MOMENTS, RIVALS
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    above, config = found["summary"]["points_above"], found["config"]
    means = {(rival, moment): above[rival][moment]["all"] for rival in RIVALS for moment in MOMENTS}
    cases = [each for rival, moment in means for policy, each in above[rival][moment].items() if policy != "all"]
    surely = [(_ends(each)[0] > 0) for each in means.values()]
    behind = sum(_ends(each)[1] < 0 for each in cases)
    verdict = HOLDS if all(surely) and not behind else PART if any(surely) else NOT
    told = "; ".join(f"{rival} {_points([means[rival, moment] for moment in MOMENTS])}" for rival in RIVALS)
    return Finding(
        "With the compute of their repairs, forests answer better than fixed orders and than SISA (our claim)",
        f"{verdict}: points above the rival's frontier before the next of {config['requests']} requests, and right "
        f"after a hit: {told}; surely below it in {behind} of {len(cases)} cases",
    )


def _points(moments: list[Row]) -> str:
    return ", ".join(f"{each['mean']:+.1f}" for each in moments)


def _ends(each: Row) -> tuple[float, float]:
    """What seeds leave open; of one seed the mean alone."""
    low, high = each["interval"] or (each["mean"], each["mean"])
    return low, high
