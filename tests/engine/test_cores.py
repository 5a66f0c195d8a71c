"""How many cores a process may use, as a container is told."""

import os

import pytest

from s3t.engine import cores, cores_worth, usable_cores


def test_it_is_what_the_system_gives_this_process():
    given = usable_cores()
    assert set(given) == os.sched_getaffinity(0)
    os.sched_setaffinity(0, given[:1])
    try:
        assert usable_cores() == given[:1]
    finally:
        os.sched_setaffinity(0, given)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("150000 100000", 1),
        ("300000 100000", 3),
        ("50000 100000", 1),
        ("900000 100000", 4),
        ("max 100000", 4),
        ("nonsense", 4),
        (None, 4),
    ],
)
def test_a_container_can_take_some_away(tmp_path, monkeypatch, limit, expected):
    monkeypatch.setattr(cores, "usable_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(cores, "CGROUP_LIMIT", tmp_path / "cpu.max")
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit + "\n")
    assert cores_worth() == expected
