"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary, policies = found["summary"], found["config"]["policies"]
    lines = [
        "| system | policy | dead shards | outages | hours of training after requests | with the first | depth |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, system in summary["systems"].items():
        for policy in policies:
            row = system[policy]
            lines.append(
                f"| {name} | {policy} | {percent(row['dead_shard_share'])} | {row['system_outages']:.1f} "
                f"| {row['compute'] / 3600:.2f} | {row['compute_and_training'] / 3600:.2f} | {row['mean_depth']:.2f} |"
            )
    lines.append(f"\nFull retraining: {summary['full']['compute'] / 3600:.1f} hours.\n")
    days, least = found["config"]["days"], found["config"]["least_depth"]
    lines += [
        f"The least training in {days} days, the first counted, of what keeps {100 * least:.0f} % of the slices:\n",
        "| requests a day | system | policy | hours |",
        "|---|---|---|---|",
    ]
    for rate, deal in summary["best_deal"].items():
        told = f"{deal['system']} | {deal['policy']} | {deal['hours']:.2f}" if deal else "none keeps up | |"
        lines.append(f"| {rate} | {told} |")
    four, paper = summary["against_sisa_and_full"]["s3t, B=4"], found["config"]["paper"]
    sisa, full = (
        four["less_compute_than_sisa_with_training"] or 0.0,
        four["less_compute_than_full_with_training"] or 0.0,
    )
    than_sisa, than_full = sisa >= 1, full >= 1
    near = sisa > 0.7 * paper["times_less_than_sisa"] and full > 0.7 * paper["times_less_than_full"]
    verdict = HOLDS if than_sisa and than_full and near else PART if than_sisa or than_full else NOT
    return Finding(
        "Over 1,000 requests S3T takes less time than SISA, and much less than full retraining",
        f"Section 5.4: {paper['times_less_than_sisa']:g} times less total time than SISA, "
        f"{paper['times_less_than_full']:g} times less than full retraining.",
        "\n".join(lines),
        f"{verdict}: at B=4, trained again on exhaustion and with the first training counted, its training is "
        f"{_times(sisa)} SISA's and {_times(full)} full retraining's; it has {four['fewer_outages_than_sisa']:.2f} "
        f"times fewer outages than SISA (the deletion rates give {four['deletion_rate_over_sisa']:.2f})",
    )


def _times(less: float) -> str:
    return f"{less:.2f} times less than" if less >= 1 else f"{1 / less:.2f} times" if less else "infinitely more than"
