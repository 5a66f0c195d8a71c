"""Pictures of compared systems."""

import pytest

from s3t.comparison import ComparedSystem, Comparison, Point
from s3t.drawing import draw_comparison
from tests.drawing.pictures import assert_is_picture, texts


def comparison(**scores):
    measures = dict.fromkeys(("train_seconds", "train_hours", "delete_milliseconds", "answer_milliseconds"), 1.0)
    systems = [
        ComparedSystem(
            name=name,
            recipe={},
            points=(Point(deleted=2, before=None, after=score, repair_seconds=1),),
            hours_a_year=hours,
            stored_bytes=1,
            **measures,
        )
        for hours, (name, score) in enumerate(scores.items(), start=1)
    ]
    counts = {"records": 90, "trained_on": 8, "scored_on": 2}
    return Comparison(systems=systems, left_out={}, guess=0.25, best="ridge", advice="", **counts)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_is_written_in_every_format(tmp_path, suffix):
    draw_comparison(comparison(ridge=0.9, full=0.8), tmp_path / f"systems{suffix}")
    assert_is_picture(tmp_path / f"systems{suffix}")


def test_each_system_that_answers_is_named_beside_a_guess(tmp_path):
    draw_comparison(comparison(ridge=0.9, full=0.8, sisa=None), tmp_path / "systems.svg")
    found = set(texts(tmp_path / "systems.svg"))
    assert {"ridge", "full", "a guess: 0.25", "8 of 90 records"} <= found
    assert "sisa" not in found
