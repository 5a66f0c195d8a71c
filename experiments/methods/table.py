"""The table of the results, in Markdown, as README.md has it."""

from __future__ import annotations

from typing import Any

HEAD = "| method | test accuracy | training | stored | deletions until dead | a deletion |\n|---|---|---|---|---|---|\n"


def table(results: dict[str, Any]) -> str:
    """One row a method, in the order of the settings.

    Args:
        results: what results.json holds.
    """
    rows = [results["rows"][name] for name in results["config"]["methods"] if name in results["rows"]]
    return HEAD + "".join(_row(row) for row in rows)


def _row(row: dict[str, Any]) -> str:
    dead = f"{row['deletions_until_dead_mean']:.1f}"
    if row["deletions_until_dead_expected"] is not None:
        dead += f" (expected {row['deletions_until_dead_expected']:.1f})"
    return (
        f"| {row['method']} | {100 * row['accuracy']:.1f} % | {row['train_seconds']:.0f} s "
        f"| {row['stored_bytes'] / 1e6:.1f} MB | {dead} | {row['deletion_ms']:.0f} ms |\n"
    )
