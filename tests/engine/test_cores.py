"""How many cores a process may use, as a container is told."""

import os

import pytest

from s3t.engine import cores_worth, usable_cores
from s3t.engine import local as cores


def test_it_is_what_the_system_gives_this_process():
    given = usable_cores()
    assert set(given) == os.sched_getaffinity(0)
    os.sched_setaffinity(0, given[:1])
    try:
        assert usable_cores() == given[:1]
    finally:
        os.sched_setaffinity(0, given)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A machine of four cores: the folder of its control groups, and the file that names this process's."""
    monkeypatch.setattr(cores, "usable_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(cores, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(cores, "GROUPS_OF_PROCESS", tmp_path / "groups")
    return tmp_path


QUOTAS = [
    ("/", "", 150, 1),
    ("/a/b", "a/b", 300, 3),
    ("/a/b", "a", 50, 1),
    ("/a/b", "a", None, 4),
    ("/outside/of/the/container", "", 200, 2),
    ("/", "", 900, 4),
]
"""A group as the process sees it, the one that is limited, per cent of a core, and the cores that are used of four."""


@pytest.mark.parametrize(("group", "limited", "limit", "expected"), QUOTAS)
@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_of_a_group_or_of_one_above_it_is_kept_to(groups, version, group, limited, limit, expected):
    (groups / "groups").write_text(f"1:memory:/elsewhere\n{'0::' if version == 2 else '3:cpu,cpuacct:'}{group}\n")
    folder = groups / limited if version == 2 else groups / "cpu" / limited
    folder.mkdir(parents=True, exist_ok=True)
    if version == 2:
        (folder / "cpu.max").write_text("max 100000\n" if limit is None else f"{limit * 1000} 100000\n")
    else:
        (folder / "cpu.cfs_quota_us").write_text("-1\n" if limit is None else f"{limit * 1000}\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert cores_worth() == expected


@pytest.mark.parametrize("told", [None, "0::/\n"])
def test_where_nothing_is_told_all_cores_are_usable(groups, told):
    if told is not None:
        (groups / "groups").write_text(told)
        (groups / "cpu.max").write_text("nonsense\n")
    assert cores_worth() == 4
