"""The claims in experiments/README.md are in step with the results; a verdict follows what is found, whatever it is."""

import importlib
import random

import pytest

from experiments import report, runner
from experiments.findings import HOLDS, NOT, PART
from experiments.runner import FOLDER, NAMES

MEASURED = [name for name in NAMES if (FOLDER / name / "results.json").exists()]


def test_the_page_is_in_step_with_the_results():
    """Written by `python -m experiments.report`."""
    assert report.PATH.read_text() == report.text()
    assert {path.parent.name for path in FOLDER.glob("*/finding.py")} == set(NAMES)


def changed(value, draws):
    """The same with other numbers, but for what names a row of another table."""
    if isinstance(value, dict):
        same = ("best_weight", "better_than_a_guess")
        return {key: each if key in same else changed(each, draws) for key, each in value.items()}
    if isinstance(value, list):
        return [changed(each, draws) for each in value]
    if isinstance(value, bool):
        return draws.random() < 0.5
    if not isinstance(value, int | float):
        return value
    return value * draws.choice(draws.factors) + (draws.choice((0, 0, 1)) if value == 0 else 0)


@pytest.mark.parametrize("name", MEASURED)
def test_a_verdict_follows_what_is_found(name):
    found, verdicts = runner.results(name), set()
    parts = ("summary", "rows") if name == "deleted_slices" else ("summary",)
    for seed in range(24):
        draws = random.Random(seed)
        draws.factors = [(-4.0, 0.25, 1.0, 4.0), (-1.0,), (0.01,), (40.0,)][seed % 4]
        again = found | {part: changed(found[part], draws) for part in parts}
        finding = importlib.import_module(f"experiments.{name}.finding").finding(again)
        assert finding.claim
        verdicts.add(finding.verdict.partition(":")[0].partition(" (")[0])
    assert verdicts <= {HOLDS, PART, NOT}
    assert len(verdicts) > 1
