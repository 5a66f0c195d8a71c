"""`s3t add`: records that come later."""

import pandas as pd

import s3t
from s3t.store.artifacts import Artifacts
from testing import tiny
from tests.cli.typed import document, invoke, problems

MORE = pd.DataFrame({"id": ["n0", "n1"], "text": ["w1 w2", "w3"], "label": ["a", "b"]})


def test_what_is_printed_of_records_that_wait_and_are_learned(run, tmp_path):
    more, rows = tmp_path / "more.csv", MORE.assign(person=["q0", "q1"])
    rows.to_csv(more, index=False)
    added = invoke("add", run, "--data", more)
    assert added.stderr == ""
    assert added.stdout == (
        f"addition 1: 2 records taken in\n2 added records not learned yet; learn with: s3t train {run}\n"
    )
    assert f"2 added records not learned yet; learn with: s3t train {run}" in invoke("status", run).stdout
    assert problems("add", run, "--data", more) == [
        "lines 2, 3: its id is in the run already; drop the row, or, if it has changed, delete the old one and give it "
        "another id"
    ]
    assert "not learned yet" not in invoke("train", run).stdout
    rows.assign(id=["n2", "n3"]).to_csv(more, index=False)
    done = document("add", run, "--data", more)
    assert (done["addition"], done["records"], done["to_learn"], done["training"]) == (2, 2, 2, None)
    assert "repeat the features and the label of another" not in str(done["notices"])


def test_what_is_printed_if_the_recipe_has_them_learned_at_once(text_model, tmp_path, monkeypatch):
    recipe = tiny.recipe(text_model, partition={"shards": 1}, additions={"learn_every": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    more = tmp_path / "more.csv"
    MORE.to_csv(more, index=False)
    with monkeypatch.context() as patch:
        patch.setattr(Artifacts, "put", _full)
        failed = invoke("add", tmp_path / "run", "--data", more)
    assert failed.exit_code == 1
    assert "s3t: they could not be learned: " in failed.stderr
    assert "2 added records not learned yet" in failed.stdout
    MORE.assign(id=["n2", "n3"]).to_csv(more, index=False)
    learned = invoke("add", tmp_path / "run", "--data", more).stdout
    assert "addition 2: 2 records taken in" in learned
    assert "stages trained in" in learned
    assert "not learned yet" not in learned


def _full(*_arguments, **_options):
    raise OSError(28, "No space left on device")
