"""Committed results of trainings on real data: a row of each is found again to the last digit."""

import pytest

from benchmarks.machine import kind
from experiments.runner import FOLDER, experiment, results, rounded
from experiments.settings import load

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("slice_wise", {"task": "cb", "system": "slice-wise", "train_seed": 0}),
        ("slice_wise", {"task": "cb", "system": "full", "train_seed": 1}),
        ("design_ablation", {"task": "banking77", "direction": "bottom-up", "replay": 0.5, "train_seed": 0}),
        ("layers_per_slice", {"task": "banking77", "layers": 2, "slices": 2, "train_seed": 2}),
    ],
)
def test_a_committed_row_is_found_again_on_such_a_machine(name, chosen, real_data, monkeypatch):
    if not (FOLDER / name / "results.json").exists():
        pytest.skip("it is not measured yet")
    found = results(name)
    here = kind()
    if here != found["machine"]:
        pytest.skip(f"the results are of {found['machine']}, and this is {here}")
    monkeypatch.setenv("S3T_DATA", str(real_data))
    own = experiment(name)
    config = load(own.Config, FOLDER / name / "config.yaml", smoke=False)
    (point,) = [point for point in own.points(config) if chosen.items() <= point.items()]
    (row,) = [row for row in found["rows"] if point.items() <= row.items()]
    again = rounded({**point, **own.measure(config, point)})
    assert again == {key: value for key, value in row.items() if key not in ("commit", "recipes")}
