"""Labels that come with an addition: learned, answered and deleted as if they had been there from the beginning."""

import numpy as np
import pytest

import s3t
from s3t.run import adding
from testing import tiny
from tests.run.worlds import SMALL, trained_run

PROBE = ["w1 w2", "w30 w31", "w5 w35"]
GONE = {"0-3", "0-7", "1-1", "1-5", "2-2"}
"""Records of every time that are deleted once all have come: "1-5" has a label that came with it."""


def recipe_of(model, **changes):
    recipe = tiny.recipe(model, **SMALL, method="ridge", ridge={"layers": 1, "projection": 4}) | changes
    del recipe["sequences"]
    return recipe


def table(time, size=9, labels="ab"):
    rows = tiny.text_table(size, seed=time)
    each = [labels[row % len(labels)] for row in rows.index]
    return rows.assign(id=[f"{time}-{row}" for row in rows.index], label=each)


@pytest.mark.parametrize("size", [9, 90])  # slices leave features; or, with more records than these, their sums
def test_they_are_answered_and_every_deletion_is_exact(size, text_model, tmp_path):
    """What is left of a slice is made anew with the labels of its time, whatever came later."""
    found = []
    for name, without in (("forgot", set()), ("never knew", GONE)):
        first, second, third = (
            rows[~rows.id.isin(without)]
            for rows in (table(0, size), table(1, size, "abx"), table(2, size, ("a", "x", "y y")))
        )
        run = trained_run(tmp_path / name, recipe_of(text_model), first)
        run.add(second, new_labels=["x"])
        run.add(third, new_labels=["x", "y y"])
        if not without:
            assert run.delete(records=sorted(GONE)).deleted == len(GONE)
        run.repair()
        assert run.audit(replay=9).ok
        answers = run.predict(PROBE)
        assert run.labels == answers.classes == ("a", "b", "c", "x", "y y")
        assert (answers.probabilities > 0).all()
        assert run.evaluate(third).n == len(third)
        found.append((tiny.artifacts(run.path), answers.probabilities.tolist()))
        run.close()
    assert found[0] == found[1]


def test_until_they_are_learned_no_answer_has_them(text_model, tmp_path):
    with trained_run(tmp_path / "run", recipe_of(text_model, additions={"learn_every": 2}), table(0)) as run:
        before = run.predict(PROBE)
        with s3t.Run.open(run.path) as other:
            run.add(table(1, labels="ax"), new_labels=["x"])
            for each in (run, other):
                answers = each.predict(PROBE)
                assert answers.classes == ("a", "b", "c", "x")
                assert answers.probabilities[:, :3].tolist() == before.probabilities.tolist()
                assert answers.probabilities[:, 3].tolist() == [0, 0, 0]
            run.train()
            assert (other.predict(PROBE).probabilities > 0).all()


def test_a_label_stays_when_its_last_record_has_gone_and_a_copy_knows_it(text_model, tmp_path):
    with trained_run(tmp_path / "run", recipe_of(text_model), table(0)) as run:
        run.add(table(1, 3, labels="aax"), new_labels=["x", "unused"])
        assert run.delete(records=["1-2"]).deleted == 1
        run.repair()
        labels, answers = run.labels, run.predict(PROBE).probabilities.tolist()
        with s3t.Run.clone(run.path, tmp_path / "clone") as clone:
            assert clone.labels == labels == ("a", "b", "c", "x", "unused")
            assert clone.predict(PROBE).probabilities.tolist() == answers
            clone.add(table(2, labels="ax"))
        assert run.sync(table(0), new_labels=["x", "z"], max_deletions=1, dry_run=True).deletion.deleted == 2
        assert run.labels == labels


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("x", "give a list of texts"),
        ([7], "give a list of texts"),
        (["x", " "], "number 2 is blank"),
        (["caf\udce9"], "number 1 is blank, or holds characters that are not printed"),
        (["x", "a\u200a"], "number 2 .* not printed"),
        (["x  y", "x y"], "2 problems .*\n.*number 1 looks like another label"),
        (["1"], "number 1 looks like another label, or stands for one"),
        (["z"], "outside the run's labels, to which `s3t add --new-labels` adds"),
    ],
)
def test_what_is_no_new_label(given, problem, text_model, tmp_path):
    recipe = recipe_of(text_model, label_names={"1": "a", "b  b": "b", "b b": "b"})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table(0)) as run:
        with pytest.raises(s3t.InputError, match=problem):
            run.add(table(1, labels="ax"), new_labels=given)
        assert (run.labels, run.status().records) == (("a", "b", "c"), 9)
        done = run.add(table(1, labels="ax"), new_labels=np.array(["x", "a", "x"]))
        assert done.new_labels == ("x",)
        assert "4 labels" in repr(run)


SHARES = {"a": 1, "b": 1, "c": 1}
NONE = {
    "s3t": {},
    "ordinal": {"method": "ridge", "task": "text-ordinal-classification"},
    "groups": {
        "method": "ridge",
        "partition": {"group": {"column": "label", "slices": {"a": [0], "b": [1], "c": [2]}, "deletion": SHARES}},
    },
}


@pytest.mark.parametrize("why", NONE)
def test_trained_heads_labels_in_order_and_labels_that_are_groups_take_none(why, text_model, tmp_path):
    recipe = tiny.recipe(text_model, **SMALL) | NONE[why]
    if why != "s3t":
        del recipe["sequences"]
    recipe["partition"] = SMALL["partition"] | {"slices": 3, "salt": tiny.SALT} | recipe["partition"]
    with trained_run(tmp_path / "run", recipe, table(0)) as run:
        with pytest.raises(
            s3t.InputError, match=r"a head for the labels of init alone; make a new run with more"
        ) as said:
            run.add(table(1), new_labels=["x"])
        assert ("which took" in str(said.value)) == (why == "s3t")
        with pytest.raises(s3t.InputError, match="fixed at init"):
            run.add(table(1, labels="ax"))
        assert run.add(table(1), new_labels=["a"]).new_labels == ()


def test_two_processes_may_bring_the_same_label(text_model, tmp_path, monkeypatch):
    """Or two that nobody can tell apart: the second is refused."""
    with s3t.Run.create(tmp_path / "run", recipe=recipe_of(text_model), data=table(0)) as run:
        compare = adding._compare

        def meanwhile(label):
            def comparing(parts, change):
                monkeypatch.setattr(adding, "_compare", compare)
                with s3t.Run.open(run.path) as other:
                    other.add(table(len(other.labels)), new_labels=[label])
                compare(parts, change)

            monkeypatch.setattr(adding, "_compare", comparing)

        meanwhile("x")
        assert run.add(table(1, labels="ax"), new_labels=["x"]).addition == 2
        meanwhile("y y")
        with pytest.raises(s3t.InputError, match="number 1 looks like another label"):
            run.add(table(2), new_labels=["y  y"])
        assert run.labels == ("a", "b", "c", "x", "y y")
        assert run.audit().ok
