"""`s3t add` and `s3t sync`: records that come later, and tables that a run follows."""

import sqlite3
from contextlib import closing

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
    told = invoke("status", run).stdout
    assert f"2 added records (7.7 % of all) not learned yet; learn with: s3t train {run} (about " in told
    assert "by this run's own times)\n" in told
    assert problems("add", run, "--data", more) == [
        "lines 2, 3: its id is in the run already; drop the row, or, if it has changed, have it replaced (--replace)"
    ]
    rows.assign(id=["n2", "n3"]).to_csv(more, index=False)
    done = document("add", run, "--data", more)
    assert (done["addition"], done["records"], done["to_learn"], done["training"]) == (2, 2, 4, None)
    assert "repeat the features and the label of another" not in str(done["notices"])


def test_what_is_printed_if_the_recipe_has_them_learned_at_once(text_model, tmp_path, monkeypatch):
    recipe = tiny.recipe(
        text_model, training={"epochs": 1}, partition={"shards": 1, "slices": 1}, additions={"learn_every": 1}
    )
    recipe["sequences"] = {}
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
    assert "1 stage trained in" in learned
    assert "not learned yet" not in learned


def test_labels_that_come_later_are_named(text_model, tmp_path):
    recipe = tiny.recipe(text_model, partition={"shards": 1}, method="ridge")
    del recipe["sequences"]
    s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()).close()
    more = tmp_path / "more.csv"
    MORE.assign(label=["x", "y"]).to_csv(more, index=False)
    assert "--new-labels" in str(problems("add", tmp_path / "run", "--data", more))
    wanted = ("--data", more, "--new-labels", "x", "--new-labels", "y")
    assert "addition 1: 2 records taken in" in invoke("add", tmp_path / "run", *wanted).stdout
    planned = document("sync", tmp_path / "run", *wanted, "--dry-run", "--max-deletions", "100%")
    assert (planned["unchanged"], planned["deletion"]["deleted"]) == (2, 24)


def _full(*_arguments, **_options):
    raise OSError(28, "No space left on device")


def test_a_run_follows_a_table_in_a_database(trained_once, tmp_path):
    path, table = tiny.copy_run(trained_once, tmp_path / "run"), tiny.text_table()

    def of(rows):
        with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
            rows.to_sql("tickets", shop, index=False, if_exists="replace")
        return ["sync", path, "--data", f"sqlite:///{tmp_path}/shop.db", "--query", "select * from tickets"]

    changed = pd.concat([table[2:], MORE]).assign(text=lambda rows: ["w9", *rows.text[1:]])
    assert "2 records would go, and 1 be replaced, more than 0.01 of the run's 24 records" in str(
        problems(*of(changed))
    )
    planned = invoke(*of(changed), "--max-deletions", "20%", "--dry-run").stdout
    assert planned.startswith("2 records would be taken in, 1 replaced, 21 as before\n3 records would be deleted\n")
    done = invoke(*of(changed), "--max-deletions", "20%").stdout
    assert done.startswith("addition 1: 2 records taken in, 1 replaced, 21 as before\n3 records deleted\n")
    assert "3 added records not learned yet" in done
    assert document(*of(changed))["unchanged"] == 24
    assert problems(*of(changed[:0]))
    assert problems("sync", path, "--data", "sqlite:///shop.db")
    assert "the database refused" in str(problems(*of(changed)[:-1], "select nothing"))
    document("delete", path, "--record", "n0")
    assert "came back, have it readmitted" in str(problems(*of(changed)))
    assert "1 of whom had been deleted" in invoke(*of(changed), "--readmit").stdout


def test_the_log_has_what_came_and_how_much_of_it_came_back(run, tmp_path):
    assert "addition" not in invoke("log", run).stdout
    more = tmp_path / "more.csv"
    MORE.assign(person=["q0", "q1"]).to_csv(more, index=False)
    invoke("add", run, "--data", more)
    invoke("delete", run, "--record", "n0")
    MORE[:1].assign(person=["q0"]).to_csv(more, index=False)
    assert invoke("add", run, "--data", more, "--readmit").exit_code == 0
    found = document("log", run)["additions"]
    assert [(each["addition"], each["records"], each["readmitted"]) for each in found] == [(1, 2, 0), (2, 1, 1)]
    assert "2 additions" in invoke("log", run).stdout
