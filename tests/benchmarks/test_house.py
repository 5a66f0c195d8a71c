"""The counts of the house, on two packages of a few lines."""

from __future__ import annotations

from pathlib import Path

from benchmarks.house import house

NAMES = '''"""Names."""

class Name:
    """One."""

    def of(self):
        """Its letters."""
        return 1
'''


def test_each_room_is_counted_with_its_grain(tmp_path: Path):
    for path, text in {
        "low/__init__.py": "",
        "low/names.py": NAMES,
        "low/room/__init__.py": "from low.names import Name\n",
        "low/room/other.py": "class Name:\n    def of(self):\n        x = 1\n        return x\n",
        "high/__init__.py": "import low.room.other\nfrom low.room import other\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = house(tmp_path)
    assert list(found) == ["high", "low"]
    assert found["low"]["class names used twice"] == ["Name"]
    assert found["low"]["rooms"] == {
        ".": {
            "lines": 8,
            "files": 2,
            "classes": 1,
            "functions": 1,
            "one statement": 1,
            "docstring lines": 3,
            "one importer": 1,
        },
        "room": {
            "lines": 5,
            "files": 2,
            "classes": 1,
            "functions": 1,
            "one statement": 0,
            "docstring lines": 0,
            "one importer": 2,
        },
    }
    assert found["low"]["sum"]["lines"] == 13
