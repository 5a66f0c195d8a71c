"""Records that come later: learned, served and deleted as if they had been there, or had never been."""

import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

import s3t
from s3t.core import Inventory
from s3t.deletion.witness import Witness
from s3t.ledger import Transaction
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
        monkeypatch.setattr(adding, "_check_names", lambda *_arguments, **_options: None)
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


def random_schedule(seed):
    """Steps, with the records that each concerns; every addition keeps one that no step deletes."""
    generator, waiting, present, steps = random.Random(seed), list(range(12, 36, 2)), list(range(12)), []
    kept = {number for number in range(36) if number % 4 == 0}
    while True:
        what = generator.choice(
            ["add", "add", "delete", "delete person", "train", "repair", "reopen", "refused", "end"]
        )
        if what in ("add", "refused") and waiting:
            pairs = [waiting.pop(0) for _ in range(min(len(waiting), 2 * generator.randint(1, 2)))]
            numbers = [number for pair in pairs for number in (pair, pair + 1)]
            steps += [("refused", numbers)] if what == "refused" else []
            steps.append(("add", numbers))
            present += numbers
        elif what.startswith("delete") and (able := [number for number in present if number not in kept]):
            number = generator.choice(able)
            gone = (
                [number, number - 1] if what == "delete person" and number % 2 and number - 1 not in kept else [number]
            )
            steps.append((what if len(gone) == 2 else "delete", gone))
            present = [number for number in present if number not in gone]
        elif what == "end" and not waiting:
            break
        elif what in ("train", "repair", "reopen"):
            steps.append((what, []))
    return steps


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(21))
def test_random_schedules_of_additions_and_deletions_are_exact(seed, text_model, tmp_path, monkeypatch):
    case = [name for name in CASES if name != "forest"][seed % (len(CASES) - 1)]  # its chains follow from what was hit
    recipe = recipe_of(
        case, text_model, tmp_path, columns={"id": "id", "text": "text", "label": "label", "subject": "who"}
    )
    rows = tiny.text_table(36, seed=3).assign(who=[f"p{number // 2}" for number in range(36)])
    steps = random_schedule(seed)
    deleted = {number for what, numbers in steps if what.startswith("delete") for number in numbers}

    def go(folder, without):
        run = s3t.Run.create(folder, recipe=recipe, data=rows.loc[[row for row in range(12) if row not in without]])
        run.train()
        for what, numbers in [*steps, ("train", []), ("repair", [])]:
            left = [number for number in numbers if number not in without]
            if what == "add":
                run.add(rows.loc[left])
            if what == "refused":
                with monkeypatch.context() as patch:
                    patch.setattr(Transaction, "add", lambda *_arguments: False)
                    with pytest.raises(s3t.InputError):
                        run.add(rows.loc[left])
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
