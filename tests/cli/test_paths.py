"""Whatever stands where a path belongs is refused in one sentence, by every command and every option that takes one."""

import json
import os
from pathlib import Path

import pytest

from testing import tiny
from tests.cli.test_cli import commands
from tests.cli.typed import program

# A right call of every command; RUN, DATA and RECIPE stand for what is there.
CALLS = {
    "init": "NEW --data DATA --recipe RECIPE",
    "train": "RUN --evaluate DATA",
    "predict": "RUN --input DATA --output answers.csv",
    "generate": "RUN --input DATA",
    "harness": "RUN --task arc_easy --include TASKS",
    "score": "RUN --input DATA",
    "evaluate": "RUN --data DATA --confusion plot.png",
    "delete": "RUN --file REQUESTS",
    "locate": "RUN --file REQUESTS",
    "log": "RUN",
    "status": "RUN",
    "add": "RUN --data DATA",
    "sync": "RUN --data DATA",
    "expire": "RUN",
    "repair": "RUN",
    "extend": "RUN --budget 4",
    "audit": "RUN",
    "erase": "RUN",
    "reconcile": "RUN",
    "destroy-key": "RUN --yes",
    "ids": "DATA --recipe RECIPE",
    "sequences": "--slices 3 --budget 2 --plot plot.png",
    "simulate": "--shards 2 --slices 3 --budget 2 --plot plot.png",
    "plan": "--deletions-per-month 5 --mean-depth 1 --recipe RECIPE",
    "serve": "RUN",
    "token create": "RUN NAME --scope predict",
    "token list": "RUN",
    "token revoke": "RUN NAME",
    "deletions held": "RUN",
    "deletions approve": "RUN 0",
    "deletions refuse": "RUN 0 --reason no",
    "clone": "RUN NEW",
    "export": "RUN --output NEW",
    "compare": "RECIPE --data DATA --evaluate DATA --plot plot.png",
    "tune": "RECIPE --space SPACE --data DATA --validation DATA --study NEW --out o.yaml",
}
OPTIONAL = {("tune", "private"), ("serve", "engine_adapters")}
"""Options that are read by the code that reads another one."""
KINDS = ("a long name", "half a pair", "a folder", "a pipe")
RIGHT = {
    ("init", "run"): ("half a pair",),
    ("tune", "study"): ("half a pair", "a folder"),
    ("export", "output"): ("half a pair", "a folder"),
}
"""What may stand there."""


def paths():
    for name, command in commands():
        for parameter in command.params:
            if "Path" in str(parameter.type_descriptor.annotation) and (name, parameter.name) not in OPTIONAL:
                yield name, parameter


def test_every_option_that_takes_a_path_is_tried():
    found = {(name, parameter.name) for name, parameter in paths()}
    assert {name for name, _ in found} == {name for name, _ in commands()} == set(CALLS)
    assert {("init", "run"), ("init", "data"), ("predict", "output"), ("sequences", "plot"), ("tune", "out")} <= found
    assert all(one.param_type_name == "argument" or one.opts[0] in CALLS[name] for name, one in paths())


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """What right calls name."""
    folder = tmp_path_factory.mktemp("paths")
    (folder / "requests.csv").write_text("record\nnobody\n")
    (folder / "space.yaml").write_text("training.epochs: [1]\n")
    for suffix in (".csv", ".png", ".yaml"):
        (folder / f"folder{suffix}").mkdir()
        os.mkfifo(folder / f"pipe{suffix}")
    return folder


def odd(kind, folder, suffix):
    suffix = suffix if suffix in (".csv", ".png", ".yaml") else ".csv"
    return {
        "a long name": folder / f"{'x' * 300}{suffix}",
        "half a pair": folder / f"\udcff{suffix}",
        "a folder": folder / f"folder{suffix}",
        "a pipe": folder / f"pipe{suffix}",
    }[kind]


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", CALLS)
def test_no_command_takes_what_is_no_such_file(command, kind, made, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {
        "RUN": made / "run",
        "DATA": made / "records.csv",
        "RECIPE": made / "recipe.yaml",
        "REQUESTS": folder / "requests.csv",
        "SPACE": folder / "space.yaml",
    }
    before = tiny.all_files(made / "run").keys()
    for name, parameter in paths():
        if name != command or kind in RIGHT.get((name, parameter.name), ()):
            continue
        words = [str(known.get(word, word)) for word in CALLS[name].split()]
        at = 0 if parameter.param_type_name == "argument" else words.index(parameter.opts[0]) + 1
        given = odd(kind, folder, Path(words[at]).suffix)
        if kind == "half a pair" and parameter.name in ("output", "plot", "out", "confusion"):
            continue  # a name like any other, where a file is to be made
        ended = program(*command.split(), *words[:at], given, *words[at + 1 :], "--json")
        error = json.loads(ended.stdout)["error"]
        assert (ended.status, "bug" in error) == (2, False), (parameter.name, ended.stderr)
        assert all(len(problem) < 500 for problem in error["problems"]), error
    assert list(tmp_path.iterdir()) == []
    assert tiny.all_files(made / "run").keys() == before
