"""Generator of docs/results.md from committed results: each claim of the paper, our numbers and a verdict.

python -m experiments.report            write the page
python -m experiments.report --check    compare the page; write nothing
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter
from collections.abc import Iterator

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import FOLDER, KEPT, NAMES, TRAINED, results

PATH = FOLDER.parent / "docs" / "results.md"

HEAD = """# The paper's results, beside ours

Check here whether the paper's claims hold at a small scale: {verdicts}. Experiments that train use two cores, MiniLM
(6 layers) and a ViT of 2 M parameters, where the paper has RoBERTa-large and ViT-base. The last ones train nothing, and
have the paper's sizes. Tables, figures and reasons are in the experiments' READMEs. `python -m experiments.report`
writes this page from `experiments/*/results.json`.

| claim | verdict |
|---|---|
"""


def text() -> str:
    """The page."""
    findings = list(_findings())
    table = "".join(
        f"| [{finding.claim}](#{_anchor(finding.claim)}) | {finding.verdict.partition(':')[0]} |\n"
        for _, finding in findings
    )
    counted = Counter(finding.verdict.partition(":")[0] for _, finding in findings)
    verdicts = f"{counted[HOLDS]} of {len(findings)} hold, {counted[PART]} in part, {counted[NOT]} not at this scale"
    return HEAD.replace("{verdicts}", verdicts) + table + "".join(_section(name, finding) for name, finding in findings)


def _findings() -> Iterator[tuple[str, Finding]]:
    for name in sorted(NAMES, key=lambda name: name not in TRAINED):  # those on real records first
        if (FOLDER / name / "results.json").exists():
            yield name, importlib.import_module(f"experiments.{name}.finding").finding(results(name))


def _section(name: str, finding: Finding) -> str:
    found = results(name)
    minutes = found["seconds"] / 60
    took = f"{minutes:.1f} minutes of processes" if minutes >= 1 else "less than a minute"
    took += " besides systems kept from before" if name in KEPT else ""
    return (
        f"\n## {finding.claim}\n\n"
        f"**Paper.** {finding.paper}\n\n"
        f"**Verdict.** {finding.verdict[0].upper()}{finding.verdict[1:]}.\n\n"
        f"[{name}](../experiments/{name}/README.md): {took}, commit {found['commit']}, seed {found['seed']}, "
        f"{found['machine']['cores']} cores of an {found['machine']['processor'].replace('(R)', '')}.\n"
    )


def _anchor(claim: str) -> str:
    return "".join(letter for letter in claim.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page differs")
    if parser.parse_args().check:
        sys.exit(int(not PATH.exists() or PATH.read_text() != text()))
    PATH.write_text(text())


if __name__ == "__main__":
    main()
