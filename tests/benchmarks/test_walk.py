"""The recorder of ways through the code, on a package of two rooms."""

import importlib
import sys

import pytest

from benchmarks.walk import TARGETS, Walk, floors, ways

LOW = """
def each(values, tell):
    for value in sorted(values, key=lambda value: value):
        tell(value)
"""
HIGH = """
from walked.low import each

def main():
    each([2, 1], heard)

def heard(value):
    return value
"""


def test_a_callback_climbs_and_a_call_of_what_is_imported_does_not(tmp_path, monkeypatch):
    """A way that a library interrupts goes on behind it."""
    source = tmp_path / "walked"
    for room, text in (("low", LOW), ("high", HIGH)):
        (source / room).mkdir(parents=True)
        (source / room / "__init__.py").write_text(text)
    (source / "__init__.py").write_text("")
    assert floors(source) == {"low": 0, "high": 1}
    monkeypatch.syspath_prepend(str(tmp_path))
    high, walk = importlib.import_module("walked.high"), Walk(source)
    with walk.recorded():
        high.main()
    high.main()  # not recorded
    for name in ("walked", "walked.low", "walked.high"):
        del sys.modules[name]
    assert walk.climbs() == ["low/__init__.py:each -> high/__init__.py:heard"]
    assert walk.counts() == {"functions": 3, "rooms": 2, "files": 2, "calls between rooms": 2, "climbs": 1}


@pytest.mark.integration
def test_the_ways_of_the_plan_are_counted_by_functions_files_transactions_and_statements():
    found = ways()
    assert found.keys() == TARGETS.keys()
    assert all(counts["functions"] > counts["files"] > 1 for counts in found.values())
    assert found["POST /v1/classify"]["writes"] == 0  # an answer writes nothing
