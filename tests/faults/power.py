"""What a loss of power can leave: the folder rebuilt from what it was and the log of points.

Durable is what was synchronised: a file's content by fsync of the file, a name by fsync of its folder (a rename by
fsync of either). Of the rest a disk may have written anything: a seeded coin decides, for all, for a first part, or one
by one, and a write may be torn between sectors. A renamed file never has neither name. What a failed fsync was to write
is lost for good, unless the same page is written again: no later fsync reports it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.faults.shim import Entry

SECTOR = 512
PAGE = 4096


@dataclass(eq=False)
class Change:
    """Bytes at an offset of a file, or (data None) its new size."""

    offset: int
    data: bytes | None
    abandoned: bool = False

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
            return
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(self.data)] = self.data

    def pages(self) -> set[int]:
        if not self.data:
            return set()
        return set(range(self.offset // PAGE, (self.offset + len(self.data) - 1) // PAGE + 1))


@dataclass(eq=False)
class File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        for old in self.pending:
            if old.abandoned and old.pages() & change.pages():
                old.abandoned = False  # the page goes to the disk as a whole
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            if not change.abandoned:
                change.apply(self.durable)
        self.pending = [change for change in self.pending if change.abandoned]

    def abandon(self) -> None:
        pieces: list[Change] = []
        for change in self.pending:
            if change.data is None:
                pieces.append(change)
                continue
            at, end = change.offset, change.offset + len(change.data)
            while at < end:
                stop = min(end, (at // PAGE + 1) * PAGE)
                pieces.append(Change(at, change.data[at - change.offset : stop - change.offset]))
                at = stop
        for piece in pieces:
            piece.abandoned = True
        self.pending = pieces

    def after(self, coin: Coin) -> bytes:
        content = bytearray(self.durable)
        for change in coin.some(self.pending):
            if change.data is not None and coin.tears():
                change = Change(change.offset, change.data[: coin.sectors(len(change.data))])
            change.apply(content)
        return bytes(content)


@dataclass(eq=False)
class Folder:
    now: dict[str, File | Folder] = field(default_factory=dict)
    kept: dict[str, File | Folder] = field(default_factory=dict)


@dataclass(eq=False)
class Naming:
    """A name given to a node, taken from it, or both."""

    node: File | Folder
    given: tuple[Folder, str] | None = None
    taken: tuple[Folder, str] | None = None
    durable: bool = False
    abandoned: bool = False

    def folders(self) -> list[Folder]:
        return [place[0] for place in (self.given, self.taken) if place]

    def apply(self, which: str) -> None:
        if self.taken:
            folder, name = self.taken
            names = getattr(folder, which)
            if names.get(name) is self.node:
                del names[name]
        if self.given:
            folder, name = self.given
            getattr(folder, which)[name] = self.node


class Coin:
    """How kind the disk was to what nobody had asked it to write."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._mode = rng.choice(("none", "all", "first", "each", "each"))

    def some(self, pending: list[Change]) -> list[Change]:
        return [change for change, kept in zip(pending, self.flips(len(pending)), strict=True) if kept]

    def flips(self, count: int) -> list[bool]:
        if self._mode == "first":
            first = self._rng.randint(0, count)
            return [number < first for number in range(count)]
        chance = {"none": 0.0, "all": 1.0, "each": 0.5}[self._mode]
        return [self._rng.random() < chance for _ in range(count)]

    def tears(self) -> bool:
        return self._mode == "each" and self._rng.random() < 0.1

    def sectors(self, length: int) -> int:
        return SECTOR * self._rng.randint(0, length // SECTOR)


class Disk:
    """A folder whose files are all durable, and what is done to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = _read(root)
        self._namings: list[Naming] = []

    def replay(self, entries: Iterable[Entry]) -> None:
        """Do what the log says was done, and note what of it is durable."""
        for entry in entries:
            if entry.mark == "D":
                self._do(entry)
            elif entry.mark == "F" and entry.type == "sync":
                self._fail_sync(self._find(entry.path))

    def now(self) -> dict[str, bytes | None]:
        """All files by relative path, as programs see them; folders have None."""
        return _flat(self.tree, "now", lambda file: _current(file))

    def lose_power(self, seed: int) -> dict[str, bytes | None]:
        """All files by relative path, as they may be found when the machine starts again."""
        rng = random.Random(seed)
        names, contents = Coin(rng), Coin(rng)
        open_questions = [naming for naming in self._namings if not naming.durable]
        kept = dict(zip(map(id, open_questions), names.flips(len(open_questions)), strict=True))
        for naming in self._namings:
            if kept.get(id(naming), True):
                naming.apply("kept")
        return _flat(self.tree, "kept", lambda file: file.after(contents))

    def _do(self, entry: Entry) -> None:
        if entry.path.endswith(" (deleted)") or entry.type in ("chmod", "send", "receive"):
            return
        if entry.type in ("create", "mkdir"):
            self._name(Naming(Folder() if entry.type == "mkdir" else File(), given=self._place(entry.path)))
        elif entry.type in ("write", "copy"):
            self._file(entry.path).change(Change(entry.offset, entry.data))
        elif entry.type in ("truncate", "allocate"):
            self._file(entry.path).change(Change(entry.offset, None))
        elif entry.type == "sync":
            self._sync(self._find(entry.path))
        elif entry.type in ("unlink", "rmdir"):
            self._name(Naming(self._find(entry.path), taken=self._place(entry.path)))
        elif entry.type == "rename":
            node = self._find(entry.path)
            self._name(Naming(node, given=self._place(entry.other), taken=self._place(entry.path)))
        elif entry.type == "link":
            self._name(Naming(self._find(entry.path), given=self._place(entry.other)))
        else:
            raise NotImplementedError(entry.type)

    def _name(self, naming: Naming) -> None:
        naming.apply("now")
        self._namings.append(naming)

    def _sync(self, node: File | Folder) -> None:
        if isinstance(node, File):
            node.sync()
            return
        for naming in self._namings:
            if node in naming.folders() and not naming.abandoned:
                naming.durable = True

    def _fail_sync(self, node: File | Folder) -> None:
        if isinstance(node, File):
            node.abandon()
            return
        for naming in self._namings:
            if node in naming.folders() and not naming.durable:
                naming.abandoned = True

    def _place(self, path: str) -> tuple[Folder, str]:
        parent = self._find(str(PurePosixPath(path).parent))
        assert isinstance(parent, Folder), path
        return parent, PurePosixPath(path).name

    def _find(self, path: str) -> File | Folder:
        node: File | Folder = self.tree
        for name in PurePosixPath(path).relative_to(self.root).parts:
            assert isinstance(node, Folder), path
            node = node.now[name]
        return node

    def _file(self, path: str) -> File:
        found = self._find(path)
        assert isinstance(found, File), path
        return found


def write(root: Path, tree: dict[str, bytes | None]) -> None:
    """Make a folder, which stays the same one, hold exactly these files; as a run's they are for their owner alone."""
    for there in root.iterdir():
        shutil.rmtree(there) if there.is_dir() else there.unlink()
    for path, content in sorted(tree.items()):
        target = root / path
        if content is None:
            target.mkdir(mode=0o700, exist_ok=True)
        else:
            target.write_bytes(content)
            target.chmod(0o600)


def _current(file: File) -> bytes:
    content = bytearray(file.durable)
    for change in file.pending:
        change.apply(content)
    return bytes(content)


def _read(root: Path) -> Folder:
    folder = Folder()
    for path in root.iterdir():
        folder.now[path.name] = _read(path) if path.is_dir() else File(bytearray(path.read_bytes()))
    folder.kept = dict(folder.now)
    return folder


def _flat(folder: Folder, which: str, content: object, prefix: str = "") -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name, node in getattr(folder, which).items():
        if isinstance(node, Folder):
            found[f"{prefix}{name}"] = None
            found |= _flat(node, which, content, f"{prefix}{name}/")
        else:
            found[f"{prefix}{name}"] = content(node)
    return found
