"""Variants of training are judged alike."""

import numpy as np
import pytest

from benchmarks import competent, plain
from benchmarks.variant import Job, measured_here
from testing import tiny
from tests.benchmarks.small import ADAPTER


def test_the_features_are_what_the_head_makes_logits_of(setting):
    table = tiny.text_table(70)  # more than a batch
    records = plain.encoded(setting, table.text.tolist(), table.label.tolist())
    model, head = plain.load(setting)
    bias, weight = (model.get_parameter(name).numpy(force=True) for name in head if name.startswith("classifier"))
    made = plain.features(setting, records) @ weight.T + bias
    np.testing.assert_allclose(made, plain.logits(model, records, setting), rtol=1e-4, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("variant", ["s3t", "competent", "frozen"])
def test_shards_answer_by_their_mean(variant, text_model, tmp_path, monkeypatch):
    table = tiny.text_table()
    table = table[table.groupby("label").label.transform("size") >= 3]  # folds of the frozen variant
    table.to_parquet(tmp_path / "records.parquet")
    table[:3].assign(label=["a", "b", "a"]).to_parquet(tmp_path / "test.parquet")
    given = iter([[0.0, 2.0, 0.0], [3.0, 0.0, 0.0]] * 3)  # of two shards, for each of three orders
    monkeypatch.setattr(competent, "logits", lambda *_: np.tile(next(given), (3, 1)))
    recipe = tiny.recipe(text_model, adapter=ADAPTER, partition={"shards": 2}, training={"epochs": 1, "threads": 1})
    files = {name: str(tmp_path / f"{name}.parquet") for name in ("records", "test")}
    found = measured_here(Job(variant=variant, recipe=recipe, **files), tmp_path)
    assert found["largest_label"] == 2 / 3
    orders = recipe["sequences"]["budget"]
    assert len(found["accuracy"]) == (1 if variant == "frozen" else orders)
    if variant == "competent":
        assert found["accuracy"] == [2 / 3] * orders
