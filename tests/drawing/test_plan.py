"""The picture of a plan."""

import pytest

from s3t.drawing import draw_plan
from s3t.planning import Demand, plan

SMALL = {"max_shards": 3, "max_slices": 3, "max_sequences": 2}


@pytest.mark.parametrize("budget", [30, 0.5])
def test_it_is_drawn_with_and_without_a_proposal(budget, tmp_path):
    found = plan(Demand(deletions_per_month=4, months=3, share=0.2, budget=budget, **SMALL))
    picture = tmp_path / "plan.svg"
    draw_plan(found, picture)
    text = picture.read_text()
    assert ("proposed: " in text) == (found.proposal is not None)
    assert "training and repairs, full trainings" in text
    best = found.frontier[-1]
    assert f"{best.shards} / {best.slices} / {best.budget}" in text


def test_a_single_system_is_drawn_too(tmp_path):
    found = plan(
        Demand(deletions_per_month=1, months=1, share=1, budget=5, max_shards=1, max_slices=1, max_sequences=1)
    )
    draw_plan(found, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 10_000
