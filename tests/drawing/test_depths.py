"""Pictures of depth against deletions."""

import numpy as np
import pytest

from s3t.drawing import _quantile, draw_depths
from tests.drawing.pictures import assert_is_picture, texts

NUMBERS = [1, 2, 4, 8, 16]
RETAINED = np.array([[1, 1, 0.9], [1, 0.9, 0.5], [1, 0.6, 0.2], [1, 0.2, 0], [1, 0, 0]])


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_is_written_in_every_format(tmp_path, suffix):
    path = tmp_path / f"depth{suffix}"
    draw_depths(NUMBERS, RETAINED, path, title="two shards")
    assert_is_picture(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_with_repairs_the_depth_without_them_is_beside(tmp_path):
    for name, unrepaired in (("plain", None), ("repaired", np.array([2, 1.5, 1, 0.5, 0]))):
        draw_depths(NUMBERS, RETAINED, tmp_path / f"{name}.svg", title=name, unrepaired=unrepaired)
        found = texts(tmp_path / f"{name}.svg")
        assert {name, "mean"} <= set(found)
        assert ("never repaired" in found) == (name == "repaired")


def test_quantiles_are_depths_that_so_many_shards_do_not_exceed():
    # Depths 0, 1 and 2 with the shares 0.4, 0.4 and 0.2.
    retained = np.array([[1, 0.6, 0.2]])
    assert [int(_quantile(retained, share)[0]) for share in (0.05, 0.4, 0.41, 0.8, 0.81, 1)] == [0, 0, 1, 1, 2, 2]
