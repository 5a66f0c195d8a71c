"""Pictures of depth against deletions."""

import dataclasses

import numpy as np
import pytest

from s3t.drawing import DepthPicture, draw_depths
from s3t.drawing.depths import _quantile
from tests.drawing.pictures import assert_is_picture, texts

NUMBERS = [1, 2, 4, 8, 16]
RETAINED = np.array([[1, 1, 0.9], [1, 0.9, 0.5], [1, 0.6, 0.2], [1, 0.2, 0], [1, 0, 0]])
ALIVE = DepthPicture(
    title="two shards",
    deletions=NUMBERS,
    retained=RETAINED,
    first_failure=3.25,
    deletion_rate=9.5,
    all_alive=np.array([1, 0.8, 0.2, 0, 0]),
    some_alive=np.array([1, 1, 0.9, 0.4, 0]),
)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_is_written_in_every_format(tmp_path, suffix):
    path = tmp_path / f"depth{suffix}"
    draw_depths(ALIVE, path)
    assert_is_picture(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_deletion_rate_and_first_failure_are_marked(tmp_path):
    draw_depths(ALIVE, tmp_path / "depth.svg")
    found = [text.strip() for text in texts(tmp_path / "depth.svg")]
    assert {"two shards", "first failure 3.25", "deletion rate 9.5", "mean", "every shard alive"} <= set(found)


@pytest.mark.parametrize(
    ("changes", "wanted", "unwanted"),
    [
        ({"first_failure": 9.5}, "first failure = deletion rate 9.5", "first failure 9.5"),
        ({"deletion_rate": None}, "first failure 3.25", "deletion rate"),
        ({"deletion_rate": 1e20}, "first failure 3.25", "deletion rate"),
        ({"first_failure": None, "deletion_rate": None}, "mean", "first failure"),
    ],
)
def test_what_never_happens_is_not_marked_and_what_coincides_once(tmp_path, changes, wanted, unwanted):
    draw_depths(dataclasses.replace(ALIVE, **changes), tmp_path / "depth.svg")
    found = [text.strip() for text in texts(tmp_path / "depth.svg")]
    assert wanted in found
    assert not any(text.startswith(unwanted) and text != wanted for text in found)


def test_with_repairs_the_depth_without_them_is_beside(tmp_path):
    picture = DepthPicture(
        title="repaired", deletions=NUMBERS, retained=RETAINED, unrepaired=np.array([2, 1.5, 1, 0.5, 0])
    )
    draw_depths(picture, tmp_path / "depth.svg")
    found = texts(tmp_path / "depth.svg")
    assert "never repaired" in found
    assert "every shard alive" not in found


def test_quantiles_are_depths_that_so_many_shards_do_not_exceed():
    # Depths 0, 1 and 2 with the shares 0.4, 0.4 and 0.2.
    retained = np.array([[1, 0.6, 0.2]])
    assert [int(_quantile(retained, share)[0]) for share in (0.05, 0.4, 0.41, 0.8, 0.81, 1)] == [0, 0, 1, 1, 2, 2]
