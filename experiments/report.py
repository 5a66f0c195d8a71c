"""Writer of the claims in experiments/README.md, from committed results: each claim, our numbers and a verdict.

python -m experiments.report            write them
python -m experiments.report --check    compare them; write nothing
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter
from collections.abc import Iterator

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import FOLDER, NAMES, TRAINED, results

PATH = FOLDER / "README.md"

HEAD = """## Claims

Of {verdicts}. In brackets is what the seeds leave open; links lead to the paper's words, tables and reasons.
"""
"""Where it begins, the page is written anew."""


def text() -> str:
    """The page, with the claims at its end."""
    findings = [(name, finding, *_split(finding.verdict)) for name, finding in _findings()]
    counted = Counter(verdict for _, _, verdict, _ in findings)
    verdicts = f"{len(findings)} claims {counted[HOLDS]} hold, {counted[PART]} in part, {counted[NOT]} do not"
    page = PATH.read_text().partition(HEAD.partition("\n")[0])[0] + HEAD.replace("{verdicts}", verdicts)
    for group in (verdict for verdict in (HOLDS, PART, NOT) if counted[verdict]):
        page += f"\n### {_capital(group)}\n\n"
        page += "".join(_section(name, finding, told) for name, finding, verdict, told in findings if verdict == group)
    return page


def _split(verdict: str) -> tuple[str, str]:
    """The verdict, and our numbers."""
    group, _, told = verdict.partition(":")
    return group, told.strip()


def _findings() -> Iterator[tuple[str, Finding]]:
    for name in sorted(NAMES, key=lambda name: name not in TRAINED):  # those on real records first
        if (FOLDER / name / "results.json").exists():
            yield name, importlib.import_module(f"experiments.{name}.finding").finding(results(name))


def _section(name: str, finding: Finding, told: str) -> str:
    return f"- **{finding.claim}** ([{name}]({name}/README.md)). {_capital(told)}.\n"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def main() -> None:
    """Write the claims, or compare them."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page differs")
    if parser.parse_args().check:
        sys.exit(int(PATH.read_text() != text()))
    PATH.write_text(text())


if __name__ == "__main__":
    main()
