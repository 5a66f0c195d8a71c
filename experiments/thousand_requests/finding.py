"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row

WHATS = ("less_compute_than_sisa", "less_compute_than_full")


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary, policies = found["summary"], found["config"]["policies"]
    lines = [
        "| system | policy | dead shards | outages | downtime, s | of shards, s | hours | with the first | depth |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, system in summary["systems"].items():
        for policy in policies:
            row = system[policy]
            lines.append(
                f"| {name} | {policy} | {percent(row['dead_shard_share'])} | {row['system_outages']:.1f} "
                f"| {row['downtime']:.0f} | {row['shard_downtime']:.0f} | {row['compute'] / 3600:.2f} "
                f"| {row['compute_and_training'] / 3600:.2f} | {row['mean_depth']:.2f} |"
            )
    lines.append("\nHours of training after requests, and with the training before the first.")
    lines.append(f"\nFull retraining: {summary['full']['compute'] / 3600:.1f} hours.\n")
    lines += [
        f"The least training in {found['config']['days']} days, the first counted, by what is asked for:\n",
        "| demand | requests a day | system | policy | hours |",
        "|---|---|---|---|---|",
    ]
    for demand, deals in summary["best_deal"].items():
        for rate, deal in deals.items():
            told = f"{deal['system']} | {deal['policy']} | {deal['hours']:.2f}" if deal else "none keeps up | |"
            lines.append(f"| {demand} | {rate} | {told} |")
    paper, against = found["config"]["paper"], summary["against_sisa_and_full"]
    lines += [
        "\nTimes less under retraining on exhaustion; in brackets with the first training counted:\n",
        "| system | outages than SISA | downtime than SISA | training than SISA | training than full retraining |",
        "|---|---|---|---|---|",
    ]
    for name, row in against.items():
        cells = (f"{_ratio(row[what])} ({_ratio(row[f'{what}_with_training'])})" for what in WHATS)
        service = (_ratio(row[what]) for what in ("fewer_outages_than_sisa", "less_downtime_than_sisa"))
        lines.append(f"| {name} | {' | '.join([*service, *cells])} |")
    sisa, full = (max(row[what] or 0.0 for row in against.values()) for what in WHATS)
    near = sisa > 0.7 * paper["times_less_than_sisa"] and full > 0.7 * paper["times_less_than_full"]
    verdict = HOLDS if sisa >= 1 and full >= 1 and near else PART if sisa >= 1 or full >= 1 else NOT
    several = {name: row for name, row in against.items() if name != "s3t, B=1"}
    most = max(row["less_compute_than_sisa"] or 0.0 for row in several.values())
    one, four = against["s3t, B=1"], against["s3t, B=4"]
    return Finding(
        "Over 1,000 requests S3T takes less time than SISA, and much less than full retraining",
        f"Section 4.3: {paper['times_less_than_sisa']:g} times less total time than SISA, "
        f"{paper['times_less_than_full']:g} times less than full retraining; m, L and B are not told.",
        "\n".join(lines),
        f"{verdict}: trained again on exhaustion, its training after requests is at best {_times(full)} full "
        f"retraining's, with one order {_times(one['less_compute_than_sisa'])} SISA's and with several at best "
        f"{_times(most)} SISA's; at B=4 it has {four['fewer_outages_than_sisa']:.2f} times fewer outages than SISA "
        f"(the deletion rates give {four['deletion_rate_over_sisa']:.2f}) and {four['less_downtime_than_sisa']:.1f} "
        "times less downtime",
    )


def _ratio(times: float | None) -> str:
    return "" if times is None else f"{times:.2f}"


def _times(less: float) -> str:
    return f"{less:.2f} times less than" if less >= 1 else f"{1 / less:.2f} times" if less else "infinitely more than"
