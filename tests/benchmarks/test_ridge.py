"""Every part of the ridge benchmark measures something."""

from argparse import Namespace

import pytest

from benchmarks import ridge


@pytest.mark.integration
@pytest.mark.parametrize("part", ridge.PARTS)
def test_a_part_is_measured(part, real_data, tmp_path):
    found = ridge.PARTS[part](tmp_path, Namespace(quick=True, records=0))
    if part == "answers":
        assert set(found["data_sets"]) == set(ridge.DATA_SETS)
        assert all(times > 0 for times in found["worst"].values())
        return
    if part == "opponent":
        for each in found["data_sets"].values():
            assert all(way[what] > 0 for way in each["ways"].values() for what in ("training", "deletion", "accuracy"))
        return
    deleted = found["deletions"] if part == "million" else found
    assert 0 < deleted["effective"] <= deleted["erased"]
    assert all(deleted[what] > 0 for what in ("repair", "answer", "answer_repaired", "answer_warm"))
