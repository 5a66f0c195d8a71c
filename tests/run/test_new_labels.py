"""Labels that come with an addition: learned, answered and deleted as if they had been there from the beginning."""

import pytest

import s3t
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
        ("x", "give a list"),
        (["x", " "], "' ' is blank"),
        ([7], "7 is blank, or no text"),
        (["a\u200b"], "differ in unseen characters"),
        (["1"], "'1' stands for 'a'"),
        (["z"], "outside the run's labels, to which `s3t add --new-labels` adds"),
    ],
)
def test_what_is_no_new_label(given, problem, text_model, tmp_path):
    recipe = recipe_of(text_model, label_names={"1": "a"})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table(0)) as run:
        with pytest.raises(s3t.InputError, match=problem):
            run.add(table(1, labels="ax"), new_labels=given)
        assert (run.labels, run.status().records) == (("a", "b", "c"), 9)


def test_trained_heads_and_labels_in_order_take_none(text_model, tmp_path):
    ordinal = recipe_of(text_model, task="text-ordinal-classification")
    for name, recipe in (("s3t", tiny.recipe(text_model, **SMALL)), ("ordinal", ordinal)):
        with s3t.Run.create(tmp_path / name, recipe=recipe, data=table(0)) as run:
            with pytest.raises(s3t.InputError, match=r"labels of init alone .*make a new run"):
                run.add(table(1), new_labels=["x"])
            assert run.add(table(1), new_labels=["a"]).addition == 1
