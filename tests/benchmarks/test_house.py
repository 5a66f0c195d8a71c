"""The counts of the house, on two packages of a few lines."""

from benchmarks.house import house

NAMES = '''"""Names."""

class Name:
    """One."""

    def of(self):
        """Its letters."""
        return 1
'''
FILES = {
    "low/__init__.py": "",
    "low/names.py": NAMES,
    "low/room/__init__.py": "from low.names import Name\n",
    "low/room/other.py": "class Name:\n    def of(self):\n        x = 1\n        return x\n",
    "high/__init__.py": "import low.room.other\nfrom low.room import other\n",
}
COUNTS = ("lines", "files", "classes", "functions", "one statement", "docstring lines", "one importer")


def test_each_room_is_counted_with_its_grain(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = house(tmp_path)
    assert list(found) == ["high", "low"]
    assert found["low"]["class names used twice"] == ["Name"]
    rooms = {name: tuple(room[count] for count in COUNTS) for name, room in found["low"]["rooms"].items()}
    assert rooms == {".": (8, 2, 1, 1, 1, 3, 1), "room": (5, 2, 1, 1, 0, 0, 2)}
    assert found["low"]["sum"]["lines"] == 13
