"""The mistakes: which text of which file becomes which, and which tests must fail then."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = Path("src")
_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One mistake."""

    name: str
    room: str
    """The stem of the TOML file that it is in."""
    breaks: str
    """What goes wrong with it, in words."""
    file: str
    """Below `src`."""
    old: str
    """Text that occurs exactly once in the file."""
    new: str
    tests: tuple[str, ...]
    """pytest's names of test functions, each of which must fail."""

    def planted(self, content: str) -> str:
        """The file with the mistake.

        Raises:
            ValueError: the old text is not there exactly once.
        """
        if (found := content.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its old text occurs {found} times in {SOURCE / self.file}, not once")
        return content.replace(self.old, self.new)


def mutations() -> dict[str, Mutation]:
    """All of them by name, file by file.

    Raises:
        ValueError: two have one name.
    """
    found: dict[str, Mutation] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        for name, entry in tomllib.loads(path.read_text()).items():
            if name in found:
                raise ValueError(f"{path.name}: {name} is in {found[name].room}.toml, too; rename one")
            tests = tuple(entry.pop("tests"))
            found[name] = Mutation(name=name, room=path.stem, tests=tests, **entry)
    return found
