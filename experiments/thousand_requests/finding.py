"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row

WHATS = ("less_compute_than_sisa", "less_compute_than_full")


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
    paper, against = found["config"]["paper"], summary["against_sisa_and_full"]
    lines += [
        "\nTimes less compute under retraining on exhaustion; in brackets with the first training counted:\n",
        "| system | than SISA | than full retraining |",
        "|---|---|---|",
    ]
    for name, row in against.items():
        cells = (f"{_ratio(row[what])} ({_ratio(row[f'{what}_with_training'])})" for what in WHATS)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    sisa, full = (max(row[what] or 0.0 for row in against.values()) for what in WHATS)
    near = sisa > 0.7 * paper["times_less_than_sisa"] and full > 0.7 * paper["times_less_than_full"]
    verdict = HOLDS if sisa >= 1 and full >= 1 and near else PART if sisa >= 1 or full >= 1 else NOT
    several = {name: row for name, row in against.items() if name != "s3t, B=1"}
    most = max(row["less_compute_than_sisa"] or 0.0 for row in several.values())
    four = against["s3t, B=4"]
    return Finding(
        "Over 1,000 requests S3T takes less time than SISA, and much less than full retraining",
        f"Section 4.3: {paper['times_less_than_sisa']:g} times less total time than SISA, "
        f"{paper['times_less_than_full']:g} times less than full retraining; m, L and B are not told.",
        "\n".join(lines),
        f"{verdict}: trained again on exhaustion, its training after requests is at best {_times(sisa)} SISA's, with "
        f"several orders {_times(most)} SISA's, and at best {_times(full)} full retraining's; at B=4 it has "
        f"{four['fewer_outages_than_sisa']:.2f} times fewer outages than SISA (the deletion rates give "
        f"{four['deletion_rate_over_sisa']:.2f})",
    )


def _ratio(times: float | None) -> str:
    return "" if times is None else f"{times:.2f}"


def _times(less: float) -> str:
    return f"{less:.2f} times less than" if less >= 1 else f"{1 / less:.2f} times" if less else "infinitely more than"
