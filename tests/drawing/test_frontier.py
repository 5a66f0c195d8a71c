"""Pictures of cost against the slices that serve."""

import pytest

from s3t.drawing import Curve, draw_frontier
from tests.drawing.pictures import assert_is_picture, texts

OURS, SISA, BOUND = (
    Curve(label=label, depths=[1, 2, 3], costs=[part, 4 * part, 20 * part])
    for label, part in (("ours", 1.0), ("SISA", 2.0), ("bound", 0.9))
)
ORDERS = [Curve(label=f"fixed {count}", depths=[1.5, 3], costs=[8.0 * count, 30.0 * count]) for count in (1, 2)]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_every_curve_and_the_proposal_are_named(tmp_path, suffix):
    path = tmp_path / f"frontier{suffix}"
    shown = {"title": "five shards", "cost": "hours", "slices": 3, "proposal": (2.0, 4.0)}
    draw_frontier([OURS, SISA, BOUND], ORDERS, path, **shown)
    assert_is_picture(path)
    if suffix == ".svg":
        names = {"ours", "SISA", "bound", "fixed 1", "fixed 2", "proposed", "five shards", "hours"}
        assert names | {"slices that serve in the mean (of 3)"} <= {text.strip() for text in texts(path)}
