"""Nothing of a deleted record is left in any file that was written since the run began, and no file is unlisted.

A whole life of a run, in a process of its own with a fresh home, is watched. At every step that promises erasure, each
file that it has written, anywhere, is read raw and decoded, and searched for all that the deleted records were.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from s3t.core import Secret
from testing import tiny
from tests.deletion.listed import place_named
from tests.deletion.scanner import found_in, image_spellings, spellings, token_spellings
from tests.deletion.watch import Folders, logged
from tests.faults.build import build

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.integration
FIRST_WORD = 4  # the token of tiny.WORDS[0]; the special ones come before

NUMBER = 24
ALONE, PERSON, BULK = [3], [4, 16], [7, 8, 9, 10]
"""Rows that are deleted: one by its id; both of a person; some at once, of people who stay."""
DELETIONS = (ALONE, PERSON, BULK)

OWN = {"recipe": "yaml", "answers": "csv", "requests": "csv"}
"""Files beside the data that are the user's own."""
ELSEWHERE = {
    "/dev/null": "keeps nothing",
    "own/answers.csv": "the user asked for it",
    "own/*-[0-9]*-????????????????": "the same while it is written",
}
"""What is written outside of the run all the same, by its path or the one in the world, with the reason."""


@dataclass(frozen=True)
class World:
    """All that a process could write to, fresh, with a plan of what it does."""

    folder: Path
    plan: Mapping[str, Any]
    table: pd.DataFrame
    shim: Path

    @property
    def content(self) -> str:
        """The column of what the records say or show."""
        return "text" if "text" in self.table else "image"

    def live(self) -> Iterator[tuple[dict[str, Any], set[Path]]]:
        """What the process tells at each step, and which files it has written by then, those that are gone with them.

        It waits until the next is asked for.
        """
        watch = self.folder.with_name("watch")
        watch.mkdir()
        (watch / "plan.json").write_text(json.dumps(dict(self.plan) | {"log": str(watch / "log")}))
        folders = Folders([self.folder])
        with (watch / "stderr").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.deletion.full_run", str(watch / "plan.json")],
                cwd=self.folder / "here",
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        with process:
            for line in process.stdout:
                written = logged(watch / "log") | folders.changed()
                yield json.loads(line), {path for path in written if not path.is_dir()}
                process.stdin.write("go on\n")
                process.stdin.flush()
        assert process.returncode == 0, (watch / "stderr").read_text()

    def undeclared(self, paths: Collection[Path]) -> list[str]:
        """Those that neither the list of places nor ELSEWHERE names."""
        return sorted(name for path in paths if not self._declared(path) for name in [self._name(path)])

    def present(self) -> set[int]:
        """Rows whose id and content the scanner finds in the run's slices."""
        slices = list(Path(self.plan["run"]).glob("slices/*/*"))
        found = {}
        for row in range(NUMBER):
            words = self.words([row])
            found[row] = set().union(*(found_in(path, words) for path in slices))
        return {row for row, names in found.items() if {f"id of {row}", f"{self.content} of {row}"} <= names}

    def _declared(self, path: Path) -> bool:
        name = Path(self._name(path))
        if name.parts[0] == "runs" and (name.parts[1] == "run" or name.parts[1].startswith(".run.init-")):
            return place_named("/".join(name.parts[2:])) is not None
        if name.parts[:2] == ("state", "s3t"):
            return place_named("/".join(name.parts[2:]), folder="state") is not None
        return any(fnmatchcase(str(name), pattern) for pattern in ELSEWHERE)

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.folder) if path.is_relative_to(self.folder) else path)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "HF_", "S3T_"))}
        fresh = {name: str(self.folder / name.lower()) for name in ("HOME", "TMPDIR")}
        fresh |= {f"XDG_{name}_HOME": str(self.folder / name.lower()) for name in ("STATE", "CACHE", "CONFIG", "DATA")}
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        quiet = {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
        return kept | fresh | quiet | {"LD_PRELOAD": str(self.shim), "PYTHONPATH": path}

    def words(self, rows: Collection[int]) -> dict[str, set[bytes]]:
        """All that these records are, in every spelling, by a name for messages; a person only with all records."""
        found = {}
        for row in rows:
            record = self.table.iloc[row]
            found[f"id of {row}"] = spellings(record["id"])
            if self.content == "text":
                found[f"text of {row}"] = spellings(record["text"]) | spellings(record["text"].split()[-1])
                words = record["text"].split()[:-1]
                found[f"tokens of {row}"] = token_spellings([FIRST_WORD + tiny.WORDS.index(word) for word in words])
            else:
                found[f"image of {row}"] = image_spellings(record["image"])
        for person, owned in self.table.groupby("person").groups.items():
            if set(owned) <= set(rows):
                found[f"person {person}"] = spellings(person)
        return found


def table_of(kind: str) -> pd.DataFrame:
    """Records of which nothing occurs twice, but a person, who has two."""
    rng = random.Random(kind)
    people = [f"person{rng.randbytes(8).hex()}" for _ in range(NUMBER // 2)]
    rows = []
    for row in range(NUMBER):
        record = {"id": f"id{rng.randbytes(8).hex()}", "person": people[row % len(people)], "label": "ab"[row % 2]}
        if kind == "text":
            record["text"] = " ".join([*rng.sample(tiny.WORDS, 8), f"canary{rng.randbytes(8).hex()}"])
        else:
            record["image"] = tiny.png([[rng.randrange(256) for _ in range(tiny.SIDE)] for _ in range(tiny.SIDE)])
        rows.append(record)
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def world(tmp_path, text_model, image_model, shim):
    def make(kind: str, way: str, **changes: Any) -> World:
        folder = tmp_path / "world"
        for name in ("home", "tmpdir", "state", "cache", "config", "data", "here", "runs", "own"):
            (folder / name).mkdir(parents=True)
        own, table = folder / "own", table_of(kind)
        model = text_model if kind == "text" else image_model
        few = {"columns": {"subject": "person"}, "sequences": {"budget": 2}, "training": {"epochs": 1}}
        recipe = tiny.recipe(model, kind=kind, **few, **changes)
        (own / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        data, kept = (own / f"{name}.{'csv' if kind == 'text' else 'parquet'}" for name in ("records", "kept"))
        for path, rows in ((data, table), (kept, table.drop([*ALONE, *PERSON, *BULK]))):
            rows.to_csv(path, index=False) if kind == "text" else rows.to_parquet(path, index=False)
        alone, bulk = table["id"][ALONE].tolist(), table["id"][BULK].tolist()
        pd.DataFrame({"record": bulk}).to_csv(own / "requests.csv", index=False)
        people = table["person"][PERSON].unique().tolist()
        plan = {
            "way": way,
            "run": str(folder / "runs" / "run"),
            "data": str(data),
            "kept": str(kept),
            **{name: str(own / f"{name}.{ending}") for name, ending in OWN.items()},
            "deletions": [{"records": alone}, {"subjects": people}, {"records": bulk}],
        }
        return World(folder, plan, table, shim)

    return make


def looked_at(made: World) -> Iterator[tuple[dict[str, Any], set[Path]]]:
    """Every step of a run's life; at each nothing may be left, unless it waits, and no file be unlisted."""
    steps = []
    for told, written in made.live():
        gone = deleted_at(told)
        left = {path: found for path in written if path.is_file() and (found := found_in(path, made.words(gone)))}
        if told["waiting"]:
            assert all(path.match("runs/run/slices/shard-*/slice-*.parquet") for path in left), left
            assert made.present() == set(range(NUMBER)), told
        else:
            assert left == {}, told
            assert made.present() == set(range(NUMBER)) - set(gone), "the scanner is blind"
        assert made.undeclared(written) == [], told
        steps.append(told)
        yield told, written
    assert steps[-1]["gone"] == len(DELETIONS)
    assert not steps[-1]["waiting"]


def deleted_at(told: Mapping[str, Any]) -> list[int]:
    """Rows that are deleted by a step."""
    return [row for rows in DELETIONS[: told["gone"]] for row in rows]


@pytest.mark.parametrize(("kind", "way"), [("text", "library"), ("image", "command"), ("text", "command")])
def test_nothing_of_a_deleted_record_is_in_any_file(kind, way, world):
    made = world(kind, way)
    steps = 0
    for told, written in looked_at(made):
        steps += 1
        if way == "library" and told["step"].startswith("delete"):  # the run is open: its log was read, too
            assert Path(made.plan["run"]) / "ledger.sqlite-wal" in written
    assert steps >= 6


def test_what_waits_is_in_its_slice_alone_until_it_is_erased(world):
    made = world("text", "patience", deletion={"erase_within": 86_400.0})
    assert [told["waiting"] for told, _ in looked_at(made)] == [False, True, True, False]


def test_nothing_of_a_deleted_record_is_in_the_folder_of_the_database_server(world, postgres):
    made, server = world("text", "library", ledger=postgres.create_database("residue")), Folders([postgres.folder])
    names = made.table["id"][[*ALONE, *PERSON, *BULK]]
    tokens = [Secret(salt=tiny.SALT).token("ledger", "record", name) for name in names]
    for told, _ in looked_at(made):
        held = b"".join(page for path in server.changed() for page in pages(path))
        forms = {form for found in made.words(deleted_at(told)).values() for form in found}
        assert not any(form in held for form in forms), told
        assert all(token in held for token in tokens)  # what the ledger does hold of them is found


def pages(path: Path) -> Iterator[bytes]:
    """Of a database's file, those that are not empty."""
    content = path.read_bytes() if path.exists() else b""  # a server tidies up at any time
    whole = (content[start : start + 8192] for start in range(0, len(content), 8192))
    return (page for page in whole if page.strip(b"\0"))


def test_a_file_that_no_list_names_is_noticed_and_read(world):
    made = world("text", "leaky")
    ((_, written),) = made.live()
    copy, history, by_arrow, passing = made.undeclared(written)
    assert (copy, history, by_arrow) == ("home/.s3t-history", "runs/run/cache/records", "tmpdir/s3t-by-arrow")
    assert fnmatchcase(passing, "tmpdir/s3t-passing-*")
    words, wanted = made.words(ALONE), {f"id of {ALONE[0]}", f"text of {ALONE[0]}"}
    holding = [path for path in written if path.is_file() and wanted <= found_in(path, words)]
    assert Path(made.plan["run"]) / "cache" / "records" in holding
    assert len(holding) == 2  # and the slice that the record lies in
