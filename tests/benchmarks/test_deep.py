"""A deep model of random weights is measured with every variant, and not again."""

from itertools import pairwise

import pytest
import transformers

from benchmarks import deep
from tests.benchmarks.test_data_sets import run_of


@pytest.mark.integration
def test_a_deep_model_is_measured_with_every_variant_and_not_again(real_data, tmp_path, monkeypatch):
    asked, layers = [], []

    def measured(job):
        asked.append(job)
        layers.append(transformers.AutoConfig.from_pretrained(job.recipe["base_model"]).num_hidden_layers)
        return run_of(1.0, [[1.0, 1.0]] * 6, 0.5)

    monkeypatch.setattr(deep, "measure", measured)
    for _ in range(2):
        result = deep.resumed(tmp_path, quick=True)
    assert [job.variant for job in asked] == [*deep.VARIANTS]
    assert all(one.recipe == other.recipe for one, other in pairwise(asked))
    assert all(
        deep.SLICES * job.recipe["adapter"]["layers_per_slice"] == count
        for job, count in zip(asked, layers, strict=True)
    )
    assert result["times_as_fast_by_stage"] == [1.0] * 6
