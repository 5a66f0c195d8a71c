"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

MEASURES = {"mean distance": "distance", "total score": "score", "expected depth": "depth"}


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary = found["summary"]
    few, many = summary["curves"][1], summary["curves"][-1]
    lines = [
        f"| | {' | '.join(f'{told}, B = {at}' for told in MEASURES for at in (few['budget'], many['budget']))} |",
        f"|---|{'---|' * 2 * len(MEASURES)}",
    ]
    for name in ("random", "bms", "survival"):
        cells = (f"{row[f'{name}_{what}']:.2f}" for what in MEASURES.values() for row in (few, many))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    distant = summary["bms_distance_is_the_number_of_slices_in"] == summary["cases_with_pairs"]
    higher = summary["bms_score_above_random_in"] == summary["cases"]
    return Finding(
        "BMS's orders are as diverse as can be and score higher than random ones",
        "Section 4.3, ten Dirichlet priors: the optimal distance L, and higher scores.",
        "\n".join(lines),
        f"{HOLDS if distant and higher else PART if distant or higher else NOT}: distance L in "
        f"{summary['bms_distance_is_the_number_of_slices_in']} of {summary['cases_with_pairs']} cases, a higher score "
        f"in {summary['bms_score_above_random_in']} of {summary['cases']}. By what is served, `survival`'s less "
        f"diverse orders are deeper than BMS's in {summary['survival_depth_above_bms_in']}",
    )
