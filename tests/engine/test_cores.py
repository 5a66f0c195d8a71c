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


LIMITS = [(150, 1), (300, 3), (50, 1), (900, 4), (None, 4)]
"""Per cent of a core, and the whole cores that a process may use of four."""
PATHS = [("/", ""), ("/a/b", "a/b"), ("/a/b", "a"), ("/outside/of/the/container", "")]
"""A group as the process sees it, and the one that is limited."""


@pytest.mark.parametrize(("group", "limited"), PATHS)
@pytest.mark.parametrize(("limit", "expected"), LIMITS)
def test_a_quota_of_a_group_or_of_one_above_it_is_kept_to(groups, group, limited, limit, expected):
    (groups / "groups").write_text(f"1:memory:/elsewhere\n0::{group}\n")
    (groups / limited).mkdir(parents=True, exist_ok=True)
    (groups / limited / "cpu.max").write_text("max 100000\n" if limit is None else f"{limit * 1000} 100000\n")
    assert cores_worth() == expected


@pytest.mark.parametrize(("group", "limited"), PATHS)
@pytest.mark.parametrize(("limit", "expected"), LIMITS)
def test_a_quota_of_version_1_is_kept_to(groups, group, limited, limit, expected):
    (groups / "groups").write_text(f"0::/\n3:cpu,cpuacct:{group}\n")
    (groups / "cpu" / limited).mkdir(parents=True, exist_ok=True)
    (groups / "cpu" / limited / "cpu.cfs_quota_us").write_text("-1\n" if limit is None else f"{limit * 1000}\n")
    (groups / "cpu" / limited / "cpu.cfs_period_us").write_text("100000\n")
    assert cores_worth() == expected


@pytest.mark.parametrize("told", [None, "0::/\n"])
def test_where_nothing_is_told_all_cores_are_usable(groups, told):
    if told is not None:
        (groups / "groups").write_text(told)
        (groups / "cpu.max").write_text("nonsense\n")
    assert cores_worth() == 4
