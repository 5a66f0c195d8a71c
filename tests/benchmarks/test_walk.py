"""The recorder of ways through the code, on a package of two rooms."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package `walked`, which can be imported."""
    folder = tmp_path / "walked"
    for room, text in (("low", LOW), ("high", HIGH)):
        (folder / room).mkdir(parents=True)
        (folder / room / "__init__.py").write_text(text)
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "walked"]:
        del sys.modules[name]


def test_a_room_stands_above_what_it_imports(source: Path) -> None:
    assert floors(source) == {"low": 0, "high": 1}


def test_a_callback_climbs_and_a_call_of_what_is_imported_does_not(source: Path) -> None:
    high = importlib.import_module("walked.high")
    walk = Walk(source)
    with walk.recorded():
        high.main()
    high.main()  # not recorded
    assert walk.climbs() == ["low/__init__.py:each -> high/__init__.py:heard"]
    assert walk.counts() == {"functions": 3, "rooms": 2, "files": 2, "calls between rooms": 2, "climbs": 1}


def test_a_way_that_a_library_interrupts_goes_on_behind_it(source: Path) -> None:
    low = importlib.import_module("walked.low")
    walk = Walk(source)
    with walk.recorded():
        low.each([2, 1], str)
    assert walk.counts() == {"functions": 1, "rooms": 1, "files": 1, "calls between rooms": 0, "climbs": 0}


@pytest.mark.integration
def test_the_ways_of_the_plan_are_counted_by_functions_files_transactions_and_statements() -> None:
    found = ways()
    assert found.keys() == TARGETS.keys()
    assert all(counts["functions"] > counts["files"] > 1 for counts in found.values())
    assert found["POST /v1/classify"]["writes"] == 0  # an answer writes nothing
    deleting = found["s3t delete --record"]
    assert deleting["cursors"] > deleting["reads"] + deleting["writes"] > 0
