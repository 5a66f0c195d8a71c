"""docs/results.md, from the results: what the paper says, what was found here, and whether it holds.

python -m experiments.report            write it
python -m experiments.report --check    whether it is in step; nothing is written
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from experiments.runner import FOLDER, results

PATH = FOLDER.parent / "docs" / "results.md"

HEAD = """# The paper's results, beside ours

Written by `python -m experiments.report` from the results in `experiments/`; every number is of a `results.json` there,
with its commit, seed and machine. The scale is small: two cores, MiniLM (6 layers) and a ViT of 2 M parameters where
the paper has RoBERTa-large and ViT-base. A verdict says whether the paper's claim holds *here*.

| claim | verdict |
|---|---|
"""


class Finding(NamedTuple):
    """One claim of the paper, held against results."""

    claim: str
    """In a few words."""
    paper: str
    """What the paper says, and where."""
    ours: str
    """What was found, in Markdown."""
    verdict: str
    """holds; holds in part; does not hold at this scale; with a reason where one is needed."""


HOLDS, PART, NOT = "holds", "holds in part", "does not hold at this scale"

Row = dict[str, Any]


def slice_wise(found: Row) -> Finding:
    """Item 1."""
    tasks = found["summary"]["tasks"]
    lines = [
        "| task | metric | full | slice by slice | points apart (95 % interval) |",
        "|---|---|---|---|---|",
    ]
    for name, row in tasks.items():
        low, high = row["points_interval"]
        lines.append(
            f"| {name} | {row['metric']} | {100 * row['full']:.1f} | {100 * row['slice-wise']:.1f} "
            f"| {row['points_apart']:+.1f} ({low:+.1f} to {high:+.1f}) |"
        )
    worse = [name for name, row in tasks.items() if row["points_interval"][1] < 0]
    near = [name for name, row in tasks.items() if row["points_apart"] > -2.5]
    verdict = HOLDS if len(near) == len(tasks) else PART if len(near) > len(tasks) / 2 else NOT
    told = f"; below full training for certain on {', '.join(worse)}" if worse else ""
    return Finding(
        "Slice-wise training is about as good as full training",
        'Section 5.2: "comparable performance to full training across all settings", at times better.',
        "\n".join(lines),
        f"{verdict}: within 2.5 points on {len(near)} of {len(tasks)} tasks{told}",
    )


def deleted_slices(found: Row) -> Finding:
    """Item 4."""
    rows = found["rows"]
    widest = max(row["slices"] for row in rows)
    lines = [
        f"| task | {' | '.join(f'{count} deleted' for count in range(1, widest))} |",
        f"|---|{'---|' * (widest - 1)}",
    ]
    for row in rows:
        cells = [f"{-100 * (drop or 0.0):+.1f} %" for drop in row["relative_drop"][1:]]
        lines.append(f"| {row['task']} | {' | '.join(cells + [''] * (widest - 1 - len(cells)))} |")
    images = [row for row in rows if row["task"] == "cifar10"]
    small = all(max(row["relative_drop"][1:-1]) < 0.05 for row in images)
    return Finding(
        "Little is lost as slices are deleted, on images less than on texts",
        'Appendix C: on images "only a small drop in performance (<5 %)"; more on a few text tasks.',
        "\n".join(lines),
        f"{HOLDS if small else PART}: the table tells the relative change, with the deepest slices deleted",
    )


ITEMS: dict[str, Callable[[Row], Finding]] = {
    "slice_wise": slice_wise,
    "deleted_slices": deleted_slices,
}


def text() -> str:
    """The page."""
    findings = list(_findings())
    table = "".join(
        f"| [{finding.claim}](#{_anchor(finding.claim)}) | {finding.verdict.partition(':')[0]} |\n"
        for _, finding in findings
    )
    return HEAD + table + "".join(_section(name, finding) for name, finding in findings)


def _findings() -> Iterator[tuple[str, Finding]]:
    for name, item in ITEMS.items():
        if (FOLDER / name / "results.json").exists():
            yield name, item(results(name))


def _section(name: str, finding: Finding) -> str:
    found = results(name)
    return (
        f"\n## {finding.claim}\n\n"
        f"**The paper.** {finding.paper}\n\n"
        f"**Here.** `python -m experiments {name}`, {found['seconds'] / 60:.0f} minutes, "
        f"commit {found['commit'][:12]}; "
        f"[more](../experiments/{name}/README.md).\n\n{finding.ours}\n\n"
        f"![{finding.claim}](../experiments/{name}/figure.png)\n\n"
        f"**Verdict.** {finding.verdict[0].upper()}{finding.verdict[1:]}.\n"
    )


def _anchor(claim: str) -> str:
    return "".join(letter for letter in claim.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def main() -> None:
    """Write the page, or look whether it is in step."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not in step")
    if parser.parse_args().check:
        sys.exit(int(not PATH.exists() or PATH.read_text() != text()))
    PATH.write_text(text())


if __name__ == "__main__":
    main()
