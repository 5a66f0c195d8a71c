"""Records that come later: learned, served and deleted as if they had been there, or had never been."""

import datetime
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

import s3t
from s3t.core import Inventory
from s3t.deletion.protocol import Deleter, Eraser
from s3t.deletion.witness import Witness
from s3t.ledger import Transaction
from s3t.recipe.schema import Retention
from s3t.run import adding
from s3t.store.artifacts import Artifacts
from s3t.store.folder import Layout, read_description
from s3t.store.slices import Slices
from testing import tiny
from testing.roles import roles
from tests.run.worlds import SMALL

CASES = {
    "s3t": {},
    "head": {"head": "ridge"},
    "forest": {"deletion": {"repair": {"policy": "as-needed", "depth": 2}}},
    "sisa": {"method": "sisa"},
    "protosisa": {"method": "protosisa"},
    "ridge": {"method": "ridge", "ridge": {"projection": 16}},
    "replay": {"method": {"name": "s3t", "replay": 0.5}},
    "chosen by public records": {"prediction": {"select": "validation"}},
}
FIRST = tiny.text_table()[:14]
PROBE = ["w1 w2", "w3 w30"]
LATER = tiny.text_table(24, seed=1).assign(id=[f"later{number:02}" for number in range(24)])
"""Records that are in no run at first; their ids stand in no other bytes by chance."""


def recipe_of(case, model, folder, **changes):
    own = CASES[case]
    recipe = tiny.recipe(model, **SMALL) | own | changes
    if own.get("method") in ("sisa", "protosisa", "ridge") or case == "forest":
        del recipe["sequences"]
    if "prediction" in own:
        public = tiny.text_table(16, seed=7).drop(columns="id")
        public[:-1][public[:-1].text.str.len() > 12].to_csv(folder / "public.csv", index=False)
        recipe["prediction"] = own["prediction"] | {"validation": str(folder / "public.csv")}
    return recipe


def run_of(folder, recipe, *, without=()):
    """A run that was trained on some records, took others in twice, and deleted some at different times, unless it
    never had them; and what it holds and answers, once each deletion is repaired."""
    rows, found = pd.concat([tiny.text_table(), LATER[:6]]), []
    rows = rows[~rows.id.isin(without)]
    first, later, last = (rows[rows.id.isin(ids)] for ids in (FIRST.id, tiny.text_table().id[14:], LATER.id))

    def delete(*names):
        if left := [name for name in names if name not in without]:
            run.delete(records=left)

    def look():
        assert run.audit(replay=2).ok
        status, answers = run.status(), run.predict(PROBE)
        found.append((tiny.artifacts(folder), answers.probabilities.tolist(), status.records, status.to_learn))

    with s3t.Run.create(folder, recipe=recipe, data=first) as run:
        run.train()
        run.add(later)
        delete("r15")  # before anything has learned it
        run.train()
        run.add(last)
        delete("r3", "r16", "later02")
        run.repair()
        look()
        run.train()
        look()
        assert (run.status().missing, run.status().to_learn) == (0, 0)
    return found


@pytest.mark.parametrize("case", CASES)
def test_what_came_later_and_was_deleted_never_was(case, text_model, tmp_path):
    recipe = recipe_of(case, text_model, tmp_path)
    forgot = run_of(tmp_path / "one", recipe)
    assert forgot == run_of(tmp_path / "two", recipe, without=["r3", "r15", "r16", "later02"])
    (before, *_, waiting), (after, *_) = forgot
    learned_at_once = case == "ridge"
    assert (waiting, before == after) == (0 if learned_at_once else 5, learned_at_once)


@pytest.fixture
def run(trained):
    return trained


def state_of(run):
    """All that a refused addition may not change: the ledger's counter, and the names and bytes of files."""
    kept = {name: content for name, content in tiny.all_files(run.path).items() if not name.startswith("ledger")}
    return run.parts.ledger.snapshot(), kept


def names_in(run):
    """Records whose ids are in any file of a run."""
    files = tiny.all_files(run.path).values()
    return {name for name in LATER.id if any(name.encode() in each for each in files)}


WRONG = {
    "row 1: its id is in the run already": {"id": ["later00", "r3"]},
    "row 0: the record was deleted": {"id": ["r5", "later00"]},
    "rows 0, 1: its subject was deleted": {"person": ["p1", "p1"]},
    "duplicate of row 0": {"id": ["later00", "later00"]},
    "row 1: the label (column 'label') is outside the run's labels": {"label": ["a", "new"]},
    "columns.text": {"text": None},
}


@pytest.mark.parametrize("problem", WRONG)
def test_wrong_records_are_refused_with_their_rows_and_nothing_is_taken_in(problem, text_model, tmp_path):
    rows = tiny.text_table(subjects=6)
    recipe = tiny.recipe(text_model, **SMALL, columns={"subject": "person"})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=rows) as run:
        run.delete(records=["r5"], subjects=["p1"])
        before = state_of(run)
        table = pd.DataFrame(
            {"id": ["later00", "later01"], "text": ["w1 w2", "w3"], "label": ["a", "b"], "person": ["q1", "q2"]}
        )
        wrong = table.assign(**WRONG[problem])
        with pytest.raises(s3t.InputError) as caught:
            run.add(wrong.drop(columns=[name for name, values in WRONG[problem].items() if values is None]))
        assert problem in "; ".join(caught.value.problems)
        assert state_of(run) == before


@pytest.mark.parametrize("point", [(Slices, "put"), (Transaction, "add")])
def test_what_is_not_taken_in_leaves_nothing(point, run, monkeypatch):
    """Killed while its files are put, before or within the transaction that takes them in."""
    owner, name = point
    calls, act = [], getattr(owner, name)

    def dies(*arguments, **options):
        if len(calls) == 2 or owner is Transaction:
            raise s3t.StorageError("killed", remedy="try again")
        calls.append(act(*arguments, **options))
        return calls[-1]

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(s3t.StorageError):
            run.add(LATER)
    run.close()
    with s3t.Run.open(run.path) as reopened:
        assert names_in(reopened) == set()
        assert reopened.audit().ok
        assert reopened.add(LATER).addition == 1
        assert {each.records for each in reopened.locate(records=list(LATER.id))} == {1}
        assert names_in(reopened) != set()


def test_a_public_record_does_not_come_later_as_a_private_one(text_model, tmp_path):
    """A stage that is chosen by it would go on telling of it after its deletion."""
    recipe = recipe_of("chosen by public records", text_model, tmp_path)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        shared = pd.read_csv(tmp_path / "public.csv")[:1].assign(id="later00")
        with pytest.raises(s3t.DataError, match="row 1: is a public record of"):
            run.add(pd.concat([LATER[1:2], shared]))
        assert run.status().records == 24


def test_until_they_are_learned_the_run_answers_as_before_and_their_deletion_costs_nothing(run):
    before, artifacts = run.predict(PROBE), tiny.artifacts(run.path)
    assert run.add(LATER[:4]).due is False
    assert (run.status().records, run.status().to_learn, run.status().missing) == (28, 4, 0)
    done = run.delete(records=["later00", "later01"])
    assert (done.deleted, done.stages_lost, done.state) == (2, 0, "erased")
    after = run.predict(PROBE)
    assert (after.generation, after.members) == (1, before.members)
    assert after.probabilities.tolist() == before.probabilities.tolist()
    assert (tiny.artifacts(run.path), run.status().to_learn) == (artifacts, 2)
    assert names_in(run) <= {"later02", "later03"}


def test_while_they_are_learned_what_was_learned_before_serves_until_another_is_as_deep(run, monkeypatch):
    depths, commit = [], Transaction.commit

    def looking(transaction, *arguments, **options):
        done = commit(transaction, *arguments, **options)
        depths.append(run.status().depths)
        return done

    run.add(LATER)
    monkeypatch.setattr(Transaction, "commit", looking)
    run.train()
    seen = {stage.seen for stage in run.inventory().alive}
    assert (set(depths), seen) == ({(3, 3)}, {1})


@pytest.mark.parametrize("every", [1, 2])
def test_the_recipe_says_after_how_many_additions_they_are_learned(every, text_model, tmp_path, monkeypatch):
    recipe = tiny.recipe(text_model, **SMALL, additions={"learn_every": every})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        first, second = run.add(LATER[:2]), run.add(LATER[2:3], train=False)
        assert [first.training is not None, second.due] == [every == 1, True]
        assert run.status().to_learn == (1 if every == 1 else 3)
        assert run.repair().trained > 0
        assert run.status().to_learn == 0


def test_what_was_learned_before_is_forgotten_by_whoever_goes_on(run, monkeypatch):
    """Killed when others were trained, and before the old ones were taken out of use."""
    run.add(LATER)
    with monkeypatch.context() as patch:
        patch.setattr(Inventory, "unwanted", lambda _inventory: {})
        run.train()
    assert (run.status().missing, {stage.seen for stage in run.inventory().alive}) == (0, {0, 1})
    assert all(member.seen == 1 for member in run.predict(PROBE).members)
    assert len(run.inventory().serving_all[0]) <= 3  # no order answers twice
    run.repair()
    assert {stage.seen for stage in run.inventory().alive} == {1}


@pytest.mark.parametrize("case", ["head", "protosisa"])
def test_half_learned_the_members_are_what_prefixes_may_name(case, text_model, tmp_path):
    """And the head that answers stays the same, however many additions wait to be learned."""
    with s3t.Run.create(tmp_path / "run", recipe=recipe_of(case, text_model, tmp_path), data=tiny.text_table()) as run:
        run.train()
        before = run.predict(PROBE)
        for number in range(3):
            run.add(LATER[2 * number : 2 * number + 2])
        assert run.predict(PROBE).probabilities.tolist() == before.probabilities.tolist()
        with roles(run).ledger.writing() as transaction:
            transaction.learn()
        run.repair(hours=0)  # what takes a pass alone
        half = run.predict(PROBE)
        assert run.predict(PROBE, prefixes=half.members).probabilities.tolist() == half.probabilities.tolist()
        run.train()
        assert run.predict(PROBE).probabilities.tolist() != before.probabilities.tolist()


def test_a_trainer_that_is_overtaken_by_an_addition_commits_nothing_that_lacks_it(run, monkeypatch):
    announce = Transaction.announce

    def overtaken(transaction, trained):
        monkeypatch.setattr(Transaction, "announce", announce)
        transaction.learn()
        return announce(transaction, trained)

    run.add(LATER[:5])
    run.delete(records=["r3"])
    monkeypatch.setattr(Transaction, "announce", overtaken)
    assert run.repair().discarded == 1
    run.train()
    assert {stage.seen for stage in run.inventory().alive} == {1}


def test_a_ledger_from_before_an_addition_is_an_older_one(run, tmp_path):
    """Its records would be in the folder, and nobody would know them."""
    path, backup = run.path, tmp_path / "ledger.sqlite"
    run.close()
    shutil.copy(path / "ledger.sqlite", backup)
    with s3t.Run.open(path) as run:
        run.add(LATER)
        run.delete(records=["later05"])
    for file in path.glob("ledger.sqlite*"):
        file.unlink()
    shutil.copy(backup, path / "ledger.sqlite")
    (Witness.of_run(read_description(Layout(path)).run).path).unlink()  # of another machine: it has seen no deletion
    with pytest.raises(s3t.RestoredError, match="of an addition that its ledger does not know"):
        s3t.Run.open(path)
    s3t.Run.reconcile(path)
    with s3t.Run.open(path) as run:
        assert names_in(run) == set()
        assert run.audit().ok
        assert run.add(LATER).addition == 1


def test_once_the_secret_is_destroyed_nothing_is_taken_in(run, monkeypatch):
    """Also if another process destroys it while records come: they could not be deleted alone."""
    take_in = adding._take_in

    def overtaken(*arguments):
        with s3t.Run.open(run.path) as other:
            other.destroy_key()
        return take_in(*arguments)

    monkeypatch.setattr(adding, "_take_in", overtaken)
    with pytest.raises(s3t.KeyDestroyedError):
        run.add(LATER)
    assert names_in(run) == set()
    with pytest.raises(s3t.KeyDestroyedError):
        run.add(LATER)


def test_who_has_lost_the_lock_takes_nothing_in(run, monkeypatch):
    """Another host has erased what was put, since it was condemned."""
    put = Slices.put

    def erased(slices, place, rows):
        done = put(slices, place, rows)
        with roles(run).ledger.writing() as transaction:
            _, versions = transaction.condemned()
            transaction.note_removed(versions=versions)
        slices.erase(versions)
        return done

    monkeypatch.setattr(Slices, "put", erased)
    with pytest.raises(s3t.InputError, match="run the same command again"):
        run.add(LATER)
    assert run.status().records == 24
    assert run.audit().ok


def test_a_subject_has_one_group_whenever_its_records_come(text_model, tmp_path):
    group = {"column": "age", "slices": {"young": [0], "old": [1, 2]}, "deletion": {"young": 0.5, "old": 0.1}}
    recipe = tiny.recipe(text_model, partition={"shards": 1, "group": group}, columns={"subject": "person"})
    rows = tiny.text_table(subjects=6).assign(age=["young", "old"] * 12)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=rows) as run:
        later = LATER[:4].assign(person=["p0", "p1", "q", "q"], age=["young", "young", "old", "old"])
        with pytest.raises(s3t.InputError, match="row 1: the other records of its subject are in another group"):
            run.add(later)
        assert run.add(later.drop(index=1)).records == 3


def test_advice_counts_slices_and_not_segments(text_model, tmp_path):
    recipe, rows = tiny.recipe(text_model, **SMALL), tiny.text_table()
    found = []
    for folder, first in (("one", rows[:12]), ("two", rows)):
        with s3t.Run.create(tmp_path / folder, recipe=recipe, data=first) as run:
            if len(first) < len(rows):
                run.add(rows[12:])
            found.append(run.status().advice)
    assert found[0] == found[1]


def test_what_could_not_be_learned_stays_taken_in(text_model, tmp_path, monkeypatch):
    recipe = tiny.recipe(text_model, **SMALL, additions={"learn_every": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        with monkeypatch.context() as patch:
            patch.setattr(Artifacts, "put", lambda *_arguments, **_options: (_ for _ in ()).throw(OSError(28, "full")))
            done = run.add(LATER[:2])
        assert "full" in done.training_failed
        assert (done.due, run.status().to_learn) == (True, 2)
        run.delete(records=["later00"])
        run.repair()
        assert (run.status().to_learn, run.status().missing) == (0, 0)


def test_a_run_that_was_never_trained_learns_all_at_once(text_model, tmp_path):
    rows = tiny.text_table()
    for folder, first in (("one", rows[:10]), ("two", rows)):
        with s3t.Run.create(tmp_path / folder, recipe=tiny.recipe(text_model, **SMALL), data=first) as run:
            if len(first) < len(rows):
                assert (run.add(rows[10:]).due, run.status().to_learn) == (False, 14)
            run.train()
            assert {stage.seen for stage in run.inventory().alive} == ({0} if len(first) == len(rows) else {1})


@pytest.mark.parametrize("same", [True, False])
def test_two_at_once_are_both_taken_in_or_the_second_is_refused(same, run):
    """Of the same records one alone, whoever is first."""

    def add(rows):
        with s3t.Run.open(run.path) as other:
            try:
                return other.add(rows).addition
            except s3t.InputError as error:
                return error.problems[0]

    with ThreadPoolExecutor(2) as pool:
        found = sorted(map(str, pool.map(add, [LATER[:8], LATER[:8] if same else LATER[8:]])))
    assert found[0] == "1"
    assert (
        ("run the same command again" in found[1] or "is in the run already" in found[1]) if same else found[1] == "2"
    )
    assert run.status().records == (32 if same else 48)
    assert run.audit().ok


@pytest.mark.parametrize("row", [{"id": "r3"}, {"id": "r5"}, {"person": "p1"}])
def test_what_another_process_did_since_they_were_looked_up_is_seen(row, text_model, tmp_path, monkeypatch):
    """A record that was added, or a record or subject that was deleted, in the meantime."""
    recipe = tiny.recipe(text_model, **SMALL, columns={"subject": "person"})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(subjects=6)) as run:
        run.delete(records=["r5"], subjects=["p1"])
        monkeypatch.setattr(adding, "_check_names", lambda *_arguments, **_options: [])
        given = pd.DataFrame([{"id": "later07", "text": "w1", "label": "a", "person": "q"} | row])
        with pytest.raises(s3t.InputError, match="run the same command again"):
            run.add(given)
        assert run.status().records == 19
        assert "later07" not in names_in(run)
        assert len(list((run.path / "slices").rglob("*.parquet"))) == 3
        assert run.audit().ok


def test_what_else_works_with_them(run, tmp_path):
    """Clones, exports, reconciling and more orders, after an addition and a deletion in it."""
    run.add(LATER)
    run.train()
    run.delete(records=["later05"])
    located = run.locate(records=["later05", "later06", "r3"])
    assert [len(each.places) for each in located] == [0, 1, 1]
    assert {place.segment for each in located for place in each.places} == {0}
    with s3t.Run.clone(run.path, tmp_path / "clone") as clone:
        assert clone.audit(replay=1).ok
        assert (clone.status().missing, clone.status().to_learn) == (run.status().missing, 0)
        assert clone.predict(PROBE).probabilities.tolist() == run.predict(PROBE).probabilities.tolist()
    run.extend(budget=4)
    assert {stage.seen for stage in run.inventory().alive} == {1}
    run.export(tmp_path / "export")
    (hit,) = run.delete(records=["later06"]).to_withdraw
    assert hit.to_withdraw
    path = run.path
    run.close()
    assert s3t.Run.reconcile(path).records == 0


def test_reconciling_knows_records_that_a_damaged_ledger_has_lost(run):
    """Segment by segment, as slices."""
    run.add(LATER)
    path = run.path
    with roles(run).ledger.writing() as transaction:
        token = run.parts.secret.token("ledger", "record", "later03")
        transaction.rows.remove(s3t.ledger.schema.records, [{"token": token}])
    assert not run.audit().ok
    run.close()
    assert s3t.Run.reconcile(path).rows == 1
    with s3t.Run.open(path) as run:
        assert run.audit().ok
        assert run.delete(records=["later03"]).deleted == 1
        assert "later03" not in names_in(run)


def run_that_follows(folder, recipe, *, without=()):
    """A run whose records come, go, change, come back and are synchronised with tables, of which some have a record
    that it never had if it is among `without`; and what it holds and answers."""
    rows = pd.concat([tiny.text_table(), LATER[:6]])
    rows, found = rows[~rows.id.isin(without)], []

    def some(*names, **changes):
        return rows[rows.id.isin(names)].assign(**changes)

    def look():
        assert run.audit(replay=2).ok
        status, answers = run.status(), run.predict(PROBE)
        found.append((tiny.artifacts(folder), answers.probabilities.tolist(), status.records, status.to_learn))

    with s3t.Run.create(folder, recipe=recipe, data=rows[rows.id.isin(FIRST.id)]) as run:
        run.train()
        if "r3" not in without:
            run.delete(records=["r3"])
        run.add(some("r3", "later00", text="w7 w8"), readmit=True)
        run.train()
        done = run.add(pd.concat([some("r3", "r4", text="w5"), some("later01", "r6")]), replace=True)
        assert (done.records, done.replaced, done.unchanged) == ((3, 2, 1) if "r3" not in without else (2, 1, 1))
        run.repair()
        if "r3" not in without:
            run.delete(records=["r3"])
        run.repair()
        look()
        table = pd.concat([some(*FIRST.id[6:]), some("later00", "r6", text="w9"), some("later02", "later03")])
        table = table[(table.id != "r6") | (table.text == "w9")]
        done = run.sync(table, max_deletions=1)
        assert (done.records, done.replaced, done.unchanged) == (4, 2, 7)
        again = run.sync(table, max_deletions=0)
        assert (again.addition, again.records, again.unchanged, again.deletion) == (None, 0, 11, None)
        run.repair()
        look()
        run.train()
        look()
    return found


@pytest.mark.parametrize("case", [name for name in CASES if name != "forest"])  # its chains follow from what was hit
def test_what_changed_came_back_and_left_with_a_table_never_was(case, text_model, tmp_path):
    recipe = recipe_of(case, text_model, tmp_path)
    forgot = run_that_follows(tmp_path / "one", recipe)
    assert forgot == run_that_follows(tmp_path / "two", recipe, without=["r3"])


@pytest.fixture
def came_back(run):
    """A run with a record that was deleted and came back."""
    run.delete(records=["r3"])
    with pytest.raises(s3t.InputError, match="row 0: the record was deleted from the run"):
        run.add(LATER[:1].assign(id="r3"))
    assert run.add(LATER[:1].assign(id="r3"), readmit=True).readmitted == 1
    return run


def test_who_came_back_is_there_and_can_be_deleted_again(came_back):
    (found,) = came_back.locate(records=["r3"])
    assert (found.records, found.deleted) == (1, None)
    assert came_back.audit().ok
    path = came_back.path
    came_back.close()
    assert s3t.Run.reconcile(path).records == 0
    with s3t.Run.open(path) as run:
        assert run.status().records == 24
        assert (run.delete(records=["r3"]).deleted, run.delete(records=["r3"]).already) == (1, ("r3",))
        assert run.audit().ok


def test_records_that_wait_for_erasure_may_come_back_and_go_again(text_model, tmp_path, monkeypatch):
    """What is deleted and still in its file does not count as there. Each of its segments is rewritten by itself."""
    recipe = tiny.recipe(text_model, **SMALL, deletion={"erase_within": 3600, "repair": "manual"})
    table = tiny.text_table()
    put_next = Eraser._put_next

    def refused(eraser, place, tokens, *, state):
        if place.segment:
            return put_next(eraser, place, tokens, state=state)
        raise s3t.StorageError("the disk refuses")

    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train()
        run.delete(records=["r3"])
        run.add(table[3:4], readmit=True)
        assert run.sync(table).addition is None
        run.delete(records=["r3"])
        assert run.sync(table.drop(index=3)).deletion is None
        assert run.sync(table, readmit=True).records == 1
        run.delete(records=["r3"])
        with monkeypatch.context() as patch:
            patch.setattr(Eraser, "_put_next", refused)
            with pytest.raises(s3t.StorageError):
                run.erase()
        assert [entry.state for entry in run.log()][1] == "effective"
        run.erase()
        assert {entry.state for entry in run.log()} == {"erased"}
        assert run.audit().ok
        names = [name for file in (run.path / "slices").rglob("*.parquet") for name in pd.read_parquet(file).record]
        assert sorted(names) == sorted(table.id.drop(index=3))


def test_an_older_state_forgets_no_second_deletion(came_back, tmp_path):
    """A backup from between: the record came back in it, and was deleted since."""
    path, backup = came_back.path, tmp_path / "backup"
    came_back.close()
    shutil.copytree(path, backup)
    with s3t.Run.open(path) as run:
        run.delete(records=["r3"])
    shutil.rmtree(path)
    shutil.move(backup, path)
    with pytest.raises(s3t.RestoredError):
        s3t.Run.open(path)
    assert s3t.Run.reconcile(path).records == 1
    with s3t.Run.open(path) as run:
        assert run.locate(records=["r3"])[0].deleted is not None
        assert run.audit().ok


def test_a_lost_row_of_who_came_back_is_no_deletion(came_back):
    """That the record was deleted before explains nothing that lies in a newer segment."""
    path = came_back.path
    with roles(came_back).ledger.writing() as transaction:
        token = came_back.parts.secret.token("ledger", "record", "r3")
        transaction.rows.remove(s3t.ledger.schema.records, [{"token": token}])
    for ask in (came_back.delete, came_back.locate):
        with pytest.raises(s3t.IntegrityError, match="the ledger is damaged"):
            ask(records=["r3"])
    came_back.close()
    assert s3t.Run.reconcile(path).rows == 1
    with s3t.Run.open(path) as run:
        assert run.delete(records=["r3"]).deleted == 1


def test_people_come_back_as_a_whole(text_model, tmp_path):
    recipe = tiny.recipe(text_model, **SMALL, columns={"subject": "person"})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(subjects=6)) as run:
        run.delete(subjects=["p1"])
        back = LATER[:3].assign(person=["p1", "p1", "q"])
        with pytest.raises(s3t.InputError, match="rows 0, 1: its subject was deleted"):
            run.add(back)
        assert run.add(back[:1], readmit=True).readmitted == 1
        assert run.add(back[1:]).readmitted == 0  # now the person is there
        (found,) = run.locate(subjects=["p1"])
        assert (found.records, found.deleted) == (2, None)
        assert run.delete(subjects=["p1"]).deleted == 2
        with pytest.raises(s3t.InputError, match="row 0: its subject was deleted"):
            run.add(LATER[3:4].assign(person="p1"))


def test_who_left_with_a_table_may_come_with_another_unless_they_asked_to_be_deleted(text_model, tmp_path):
    recipe = tiny.recipe(text_model, **SMALL, columns={"subject": "person"})
    table = tiny.text_table(subjects=12)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        gone = table.person.isin(["p1", "p2"])
        assert run.sync(table[~gone], max_deletions=1).deletion.deleted == 4
        assert run.delete(subjects=["p2"]).already == ("p2",)  # asked for after the fact
        assert run.sync(table[table.person != "p2"]).records == 2
        with pytest.raises(s3t.InputError, match="rows 2, 14: its subject was deleted"):
            run.sync(table)
        assert run.audit().ok


def test_who_came_back_is_not_told_to_be_gone_already(came_back):
    first = came_back.delete(records=["r3"], key="k")
    came_back.add(LATER[:1].assign(id="r3"), readmit=True)
    again = came_back.delete(records=["r3"], key="k")
    assert (first.deleted, again.repeated, again.already) == (1, True, ())


def test_what_another_history_deleted_is_deleted_by_reconcile_whatever_the_numbers(text_model, tmp_path):
    """A backup was put back, without the memory of deletions, and lived on; then the memory came back, too."""
    path, backup, kept = tmp_path / "run", tmp_path / "backup", tmp_path / "kept"
    s3t.Run.create(path, recipe=tiny.recipe(text_model, **SMALL), data=tiny.text_table()).close()
    shutil.copytree(path, backup)
    witness = Witness.of_run(read_description(Layout(path)).run).path
    with s3t.Run.open(path) as run:
        run.add(LATER[:1])
        run.delete(records=["later00"])
    shutil.rmtree(path)
    shutil.move(backup, path)
    shutil.move(witness, kept)
    with s3t.Run.open(path) as run:
        run.delete(records=["r1"])
        run.add(LATER[:1])
    shutil.move(kept, witness)
    assert s3t.Run.reconcile(path).records == 1
    with s3t.Run.open(path) as run:
        assert run.locate(records=["later00"])[0].deleted is not None
        assert run.audit().ok


def test_a_backup_with_records_that_came_back_while_the_first_ones_wait_is_reconciled(text_model, tmp_path):
    path, backup = tmp_path / "run", tmp_path / "backup"
    recipe = tiny.recipe(text_model, **SMALL, deletion={"erase_within": 3600})
    with s3t.Run.create(path, recipe=recipe, data=tiny.text_table()) as run:
        run.delete(records=["r3"])
        run.add(LATER[:1].assign(id="r3"), readmit=True)
    shutil.copytree(path, backup)
    with s3t.Run.open(path) as run:
        run.delete(records=["r3"])
    shutil.rmtree(path)
    shutil.move(backup, path)
    assert s3t.Run.reconcile(path).records == 1
    with s3t.Run.open(path) as run:
        assert (run.status().records, run.audit().ok) == (23, True)


def test_an_audit_finds_who_was_deleted_and_is_there(came_back):
    with roles(came_back).ledger.writing() as transaction:
        transaction.history.remember([came_back.parts.secret.token("ledger", "record", "r3")], generation=9)
    (found, *_) = [each["problem"] for each in came_back.audit().mismatches if "slice" in each]
    assert "1 records in it that were deleted since" in found


def test_a_slice_that_is_rewritten_while_it_is_compared_is_read_again(run, monkeypatch):
    read, deleted = Slices.read, []

    def meanwhile(slices, place, digest, *columns):
        if not deleted and not columns:
            deleted.append(place)
            with s3t.Run.open(run.path) as other:
                other.delete(records=["r1", "r2", "r5"], wait=True)
                other.erase()
        return read(slices, place, digest, *columns)

    table = tiny.text_table()
    monkeypatch.setattr(Slices, "read", meanwhile)
    with pytest.raises(s3t.InputError, match="run the same command again"):
        run.sync(table.assign(text=["w9", *table.text[1:]]), max_deletions=1)
    monkeypatch.undo()
    assert run.sync(table[~table.id.isin(["r1", "r2", "r5"])]).unchanged == 21


def test_what_is_deleted_while_a_table_is_compared_is_not_erased_before_it_is_forgotten(run, monkeypatch):
    """Present records are in the memory, and in the temporary files, of who compares."""
    compare, states = adding._compare, []

    def meanwhile(parts, change, **options):
        with s3t.Run.open(run.path) as other:
            roles(other).deleter.patience = 0.3
            states.append(other.delete(records=["r1"]).state)
        return compare(parts, change, **options)

    monkeypatch.setattr(adding, "_compare", meanwhile)
    with pytest.raises(s3t.InputError, match=r"row 1: the record was deleted|run the same command again"):
        run.sync(tiny.text_table())
    assert states == ["effective"]


@pytest.mark.parametrize("where", ["finish", "record"])
def test_a_refusal_says_what_is_true_of_what_came(where, run, monkeypatch):
    """Once they are in, they are, whatever fails of what is left to do."""

    def refused(*_arguments, **_options):
        raise s3t.StorageError("the disk refuses")

    monkeypatch.setattr(*((Deleter, "finished") if where == "finish" else (Transaction, "add")), refused)
    with pytest.raises(s3t.StorageError) as failed:
        run.sync(pd.concat([tiny.text_table()[1:], LATER[:1]]), max_deletions=1)
    for said in ("taken in all the same", "are out of use"):
        assert (said in str(failed.value)) == (where == "finish")
    assert run.status().records == 24
    assert (run.locate(records=["r0"])[0].deleted is not None) == (where == "finish")


def test_what_did_not_change_makes_no_addition(text_model, tmp_path):
    recipe = tiny.recipe(text_model, **SMALL, additions={"learn_every": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        done = run.add(tiny.text_table()[:3], replace=True)
        assert (done.addition, done.unchanged, done.training, done.deletion) == (None, 3, None, None)


def test_a_record_may_change_its_group(text_model, tmp_path):
    group = {"column": "age", "slices": {"young": [0], "old": [1, 2]}, "deletion": {"young": 0.5, "old": 0.1}}
    recipe = tiny.recipe(text_model, partition={"shards": 1, "group": group}, columns={"subject": "person"})
    rows = tiny.text_table(subjects=24).assign(age=["young", "old"] * 12)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=rows) as run:
        assert run.add(rows[:1].assign(age="old"), replace=True).replaced == 1
        assert run.sync(rows, max_deletions=1).replaced == 1


def test_a_table_that_is_cut_short_deletes_nothing(run):
    before, table = state_of(run), tiny.text_table()
    with pytest.raises(s3t.InputError, match=r"12 records would go, and 1 be replaced, more than"):
        run.sync(pd.concat([table[1:12], table[:1].assign(text="w1")]))
    planned = run.sync(table[:12], max_deletions=0.5, dry_run=True)
    assert (planned.deletion.deleted, planned.unchanged, planned.addition) == (12, 12, None)
    for wrong in (table[:0], table.drop(columns="label"), pd.concat([table, table[:1]]), table.assign(id=" x")):
        with pytest.raises(s3t.InputError):
            run.sync(wrong)
    assert state_of(run) == before


def test_a_table_with_somebody_who_was_deleted_is_refused_or_readmits(run):
    run.delete(records=["r3"])
    table = tiny.text_table()
    with pytest.raises(s3t.InputError, match="row 3: the record was deleted"):
        run.sync(table)
    done = run.sync(table, readmit=True)
    assert (done.records, done.readmitted, done.unchanged) == (1, 1, 23)
    assert run.audit().ok


def test_whose_record_it_is_may_change_with_a_table(text_model, tmp_path):
    """It then lies in another slice: deleted in one, taken in in the other."""
    recipe = tiny.recipe(text_model, **SMALL, columns={"subject": "person"})
    table = tiny.text_table(subjects=6)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        moved = table.assign(person=["q", *table.person[1:]])
        done = run.sync(moved, max_deletions=0.1)
        assert (done.records, done.replaced, done.unchanged) == (1, 1, 23)
        assert run.locate(subjects=["q"])[0].records == 1
        assert run.sync(moved).addition is None


def test_without_ids_there_is_nothing_to_compare(text_model, tmp_path):
    recipe = tiny.recipe(text_model, **SMALL)
    del recipe["columns"]["id"]
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        for ask in (run.sync, lambda data: run.add(data, replace=True)):
            with pytest.raises(s3t.RecipeError, match=r"columns\.id"):
                ask(LATER)


def test_of_two_syncs_at_once_the_second_is_refused_or_finds_nothing_to_do(run):
    table = pd.concat([tiny.text_table()[1:], LATER])

    def sync(_number):
        with s3t.Run.open(run.path) as other:
            try:
                return other.sync(table, max_deletions=0.1).addition
            except s3t.InputError as error:
                return error.problems[0]

    with ThreadPoolExecutor(2) as pool:
        found = sorted(map(str, pool.map(sync, range(2))))
    assert found[0] == "1"
    assert found[1] == "None" or "run the same command again" in found[1]
    assert run.status().records == 47
    assert run.audit().ok


def test_killed_between_both_steps_neither_was_done(run, monkeypatch):
    """What is replaced and what replaces it are one transaction."""
    before = run.locate(records=["r3", "later00"])

    def killed(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "add", killed)
    with pytest.raises(KeyboardInterrupt):
        run.sync(pd.concat([tiny.text_table().drop(index=3), LATER[:1]]), max_deletions=1)
    assert run.locate(records=["r3", "later00"]) == before
    assert run.status().generation == 0
    assert run.audit().ok


DATES = ["2026-01-01", "2026-06-01T23:30:00-02:00", "2026-11-01 08:00:00", "2026-11-20"]


@pytest.fixture
def dated(text_model, monkeypatch):
    """A recipe with a retention, a table with dates, and how to set the clock."""
    recipe = tiny.recipe(text_model, **SMALL, retention={"column": "created", "days": 90})
    table = tiny.text_table().assign(created=[DATES[number % 4] for number in range(24)])

    def on(day):
        left = (datetime.date.fromisoformat(day) - datetime.timedelta(days=90)).isoformat()
        monkeypatch.setattr(Retention, "oldest", lambda _retention: left)

    on("2026-03-01")
    return recipe, table, on


def test_records_leave_when_their_time_is_over_and_never_were(dated, tmp_path):
    recipe, table, on = dated
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train()
        assert run.expire().deleted == 0
        on("2026-04-02")  # those of January are older than 90 days since yesterday
        with pytest.raises(s3t.InputError, match=r"6 records from before 2026-01-02 would go.*See whether the clock"):
            run.expire()
        assert run.expire(max_deletions=0.25, dry_run=True).deleted == 6
        done = run.expire(max_deletions=0.25)
        assert (done.deleted, run.status().records) == (6, 18)
        on("2026-03-01")  # a clock that goes back
        assert run.expire().deleted == 0
        run.repair()
        forgot = tiny.artifacts(run.path)
        assert run.audit(replay=1).ok
    left = table[table.created != DATES[0]]
    with s3t.Run.create(tmp_path / "twin", recipe=recipe, data=left) as twin:
        twin.train()
        assert tiny.artifacts(twin.path) == forgot
        kept = {date for file in (twin.path / "slices").rglob("*.parquet") for date in pd.read_parquet(file).date}
    assert kept == {"2026-06-02", "2026-11-01", "2026-11-20"}  # the date in UTC, and no time


def test_what_was_replaced_by_something_newer_does_not_expire(dated, tmp_path):
    """The old one may wait in its file to be erased."""
    recipe, table, on = dated
    with s3t.Run.create(tmp_path / "run", recipe=recipe | {"deletion": {"erase_within": 60}}, data=table) as run:
        run.add(table[:1].assign(created="2026-11-20"), replace=True)
        on("2026-04-02")
        assert run.expire(max_deletions=1).deleted == 5
        assert run.locate(records=["r0"])[0].records == 1


def test_a_table_may_go_on_holding_what_is_too_old(dated, tmp_path):
    recipe, table, on = dated
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table[1:]) as run:
        on("2026-04-02")
        done = run.sync(table, max_deletions=0)
        assert (done.records, done.unchanged, done.expired, done.deletion.deleted) == (0, 18, 5, 5)
        assert done.too_old == 6  # one of them was never there
        assert run.sync(table).deletion is None
        with pytest.raises(s3t.InputError, match=r"row 0: the date .* is older than retention"):
            run.add(table[:1])
        assert run.sync(table.assign(created=["2026-11-30", *table.created[1:]])).records == 1


@pytest.mark.parametrize(
    ("date", "problem"),
    [
        (None, "is empty; give every record one"),
        ("yesterday", "is none by ISO 8601; write 2026-11-30"),
        ("2999-01-01", "lies in the future; correct it"),
        ("9999-12-31T23:59:59-05:00", "has no date in UTC; correct it"),
        ("0900-01-01", "is older than retention.days allows; drop the row"),
    ],
)
def test_a_record_without_a_date_is_refused(date, problem, dated, tmp_path):
    recipe, table, _ = dated
    with pytest.raises(s3t.DataError, match=rf"row 2: the date \(column 'created'\) {problem}"):
        s3t.Run.create(
            tmp_path / "run", recipe=recipe, data=table.assign(created=[*DATES[2:], date, *["2026-11-20"] * 21])
        )
    table = table.assign(created=pd.Timestamp("2026-11-20 10:00"))
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        assert run.status().records == 24


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"columns": {"text": "text", "label": "label"}}, "columns.id"),
        ({"retention": {"column": "text", "days": 3}}, "'text' is one of columns, too"),
        ({"retention": {"column": "created", "days": 0}}, "retention.days"),
    ],
)
def test_what_no_retention_can_be(change, problem, dated, tmp_path):
    recipe, table, _ = dated
    with pytest.raises(s3t.RecipeError, match=problem):
        s3t.Run.create(tmp_path / "run", recipe=recipe | change, data=table)


def test_without_a_retention_nothing_expires(run):
    with pytest.raises(s3t.RecipeError, match="retention"):
        run.expire()


def random_schedule(seed):
    """Steps: what is done, and the records that it concerns, each with the version of its text. Every step that takes
    records in has one that no step deletes."""
    generator, waiting, steps = random.Random(seed), list(range(12, 36, 2)), []
    present, gone, kept = dict.fromkeys(range(12), 0), set(), {number for number in range(36) if number % 4 == 0}
    kinds = ["add", "add", "delete", "delete person", "replace", "back", "sync", "train", "repair", "reopen", "refused"]
    while True:
        what = generator.choice([*kinds, "end"])
        able = [number for number in present if number not in kept]
        new = []
        if what in ("add", "refused", "back", "sync") and waiting:
            pairs = [waiting.pop(0) for _ in range(min(len(waiting), 2 * generator.randint(1, 2)))]
            new = [number for pair in pairs for number in (pair, pair + 1)]
        if what in ("add", "refused") and new:
            steps += [("refused", dict.fromkeys(new, 0))] if what == "refused" else []
            steps.append(("add", dict.fromkeys(new, 0)))
            present |= dict.fromkeys(new, 0)
        elif what == "back" and new:
            again = generator.sample(sorted(gone), min(len(gone), 2))
            steps.append((what, dict.fromkeys([*again, *new], len(steps))))
            present |= steps[-1][1]
            gone -= {*again}
        elif what == "replace":
            some = [generator.choice(sorted(kept & present.keys())), *generator.sample(able, min(len(able), 2))]
            steps.append((what, dict.fromkeys(some, len(steps))))
            present |= steps[-1][1]
        elif what == "sync":
            lost = set(generator.sample(able, min(len(able), 2)))
            changed = [generator.choice(sorted(kept & present.keys())), *generator.sample(able, min(len(able), 1))]
            present |= dict.fromkeys(changed, len(steps)) | dict.fromkeys(new, 0)
            present = {number: version for number, version in present.items() if number not in lost}
            gone |= lost
            steps.append((what, dict(present)))
        elif what.startswith("delete") and able:
            number = generator.choice(able)
            pair = what == "delete person" and number % 2 and number - 1 not in kept
            taken = [number, number - 1] if pair else [number]
            steps.append((what if pair else "delete", dict.fromkeys(taken, 0)))
            gone |= present.keys() & {*taken}
            present = {number: version for number, version in present.items() if number not in taken}
        elif what == "end" and not waiting:
            back = {number for what, numbers in steps if what == "back" for number in numbers} & present.keys() - kept
            return [*steps, *([("delete", dict.fromkeys(sorted(back), 0))] if back else [])], gone | back
        elif what in ("train", "repair", "reopen"):
            steps.append((what, {}))


@pytest.mark.integration
@pytest.mark.parametrize("seed", [*range(21), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(21, 500))])
def test_random_schedules_of_what_comes_and_goes_are_exact(seed, text_model, tmp_path, monkeypatch):
    case = [name for name in CASES if name != "forest"][seed % (len(CASES) - 1)]  # its chains follow from what was hit
    recipe = recipe_of(
        case, text_model, tmp_path, columns={"id": "id", "text": "text", "label": "label", "subject": "who"}
    )
    rows = tiny.text_table(36, seed=3).assign(who=[f"p{number // 2}" for number in range(36)])
    steps, deleted = random_schedule(seed)

    def go(folder, without):
        run = s3t.Run.create(folder, recipe=recipe, data=rows.loc[[row for row in range(12) if row not in without]])
        run.train()
        for what, versions in [*steps, ("train", {}), ("repair", {})]:
            left = [number for number in versions if number not in without]
            table = rows.loc[left]
            table = table.assign(text=[f"{text} w{versions[row]}" for row, text in table.text.items()])
            if what == "add":
                run.add(table)
            if what == "replace":
                run.add(table, replace=True)
            if what == "back":
                run.add(table, readmit=True)
            if what == "sync":
                run.sync(table, max_deletions=1)
            if what == "refused":
                with monkeypatch.context() as patch:
                    patch.setattr(Transaction, "add", lambda *_arguments: False)
                    with pytest.raises(s3t.InputError):
                        run.add(table)
            if what == "delete" and left:
                run.delete(records=[rows.id[number] for number in left])
            if what == "delete person" and left:
                run.delete(subjects=[rows.who[left[0]]])
            if what == "train":
                run.train()
            if what == "repair":
                run.repair()
            if what == "reopen":
                run.close()
                run = s3t.Run.open(folder)
        assert run.audit().ok
        probabilities, status = run.predict(PROBE).probabilities.tolist(), run.status()
        run.close()
        return tiny.artifacts(folder), probabilities, status.records, status.missing, status.to_learn

    forgot = go(tmp_path / "one", set())
    assert forgot == go(tmp_path / "two", deleted)
    assert forgot[3:] == (0, 0)
