"""The table of methods over ten tasks: what is told is what was measured."""

from pathlib import Path

from experiments.frontier.table import table
from experiments.runner import FOLDER, results


def test_the_readme_and_the_guide_have_the_table_of_the_committed_results():
    found = results("frontier")
    guide = Path(__file__).resolve().parents[2] / "docs" / "methods.md"
    assert table(found) in (FOLDER / "frontier" / "README.md").read_text()
    assert table(found, leave_out="chains") in guide.read_text()
