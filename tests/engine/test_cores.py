"""How many cores a process may use, as a container is told."""

import os

import pytest

from s3t.engine import cores_worth, usable_cores


@pytest.fixture
def groups(tmp_path):
    """A process in the control group pods/one; the limit of each is to be written."""
    (tmp_path / "groups" / "pods" / "one").mkdir(parents=True)
    (tmp_path / "own").write_text("3:cpuset:/elsewhere\n0::/pods/one\n")
    return tmp_path


def worth(folder):
    return cores_worth(own=folder / "own", groups=folder / "groups")


def test_it_is_what_the_system_gives_this_process():
    cores = usable_cores()
    assert set(cores) == os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores[:1])
    try:
        assert usable_cores() == cores[:1]
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(
    ("own", "above", "expected"),
    [
        ("150000 100000", None, 1),
        ("max 100000", "200000 100000", 2),
        ("300000 100000", "200000 100000", 2),
        ("50000 100000", None, 1),
        ("max 100000", None, 4),
        (None, None, 4),
        ("nonsense", None, 4),
    ],
)
def test_a_control_group_and_those_above_it_can_take_some_away(groups, monkeypatch, own, above, expected):
    monkeypatch.setattr("s3t.engine.cores.usable_cores", lambda: (0, 1, 2, 3))
    for content, folder in ((own, "groups/pods/one"), (above, "groups/pods")):
        if content is not None:
            (groups / folder / "cpu.max").write_text(content + "\n")
    assert worth(groups) == expected


def test_no_control_groups_at_all_take_nothing(tmp_path):
    assert worth(tmp_path) == len(usable_cores())
