"""On a GPU models in true size train a stage faster than a competent user's loop, and a replay gives the same bytes."""

import pandas as pd
import pytest

import s3t
from benchmarks import gpu

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", gpu.KINDS)
def test_a_stage_trains_faster_than_a_competent_loop(cuda, name, monkeypatch):
    # s3t needs it to be exact; torch before 2.13 reads it anew for every product, which costs both the same here.
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    found = gpu.measured(gpu.KINDS[name])
    for variant in gpu.VARIANTS:
        one = found[variant]
        print(f"\n{cuda}, {name}, {variant}: {one['records_a_second']:.0f} records and", end=" ")
        print(f"{one['tokens_a_second']:.0f} tokens a second, {one['share_of_peak']:.0%} of the peak")
        assert 0 < one["share_of_peak"] < 1
    assert found["times_as_fast"] > 1


@pytest.mark.parametrize("name", gpu.KINDS)
def test_a_replay_gives_the_same_bytes(cuda, name, tmp_path):
    job = gpu.prepared(gpu.KINDS[name], tmp_path)
    records = pd.read_parquet(job.records)
    with s3t.Run.create(tmp_path / "run", recipe=job.recipe, data=records) as run:
        run.train()
        assert run.audit(replay=1).ok
    with s3t.Run.open(tmp_path / "run") as run:  # a process that has the model in memory anew
        assert run.audit(replay=1).ok
