"""Records that come later: learned, served and deleted as if they had been there, or had never been."""

import datetime
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pandas as pd
import pyarrow as pa
import pytest

import s3t
from s3t.core import Inventory
from s3t.deletion.protocol import Deleter, Eraser
from s3t.deletion.witness import Witness
from s3t.ledger import Transaction
from s3t.recipe import recipe_from
from s3t.recipe.schema import Retention
from s3t.run import adding, deleting
from s3t.store.artifacts import Artifacts
from s3t.store.folder import Layout, read_description
from s3t.store.slices import Slices
from testing import tiny
from testing.roles import roles
from tests.run.worlds import SMALL, artifacts_after, records_by_slice, trained_run

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
QUICK = ("head", "forest", "ridge")
"""Of the cases those that `make test` runs."""
COLUMNS = {"id": "id", "text": "text", "label": "label", "subject": "who"}
PROBE = ["w1 w2", "w3 w30"]
LATER = tiny.text_table(24, seed=1).assign(id=[f"later{number:02}" for number in range(24)])
"""Records that are in no run at first; their ids stand in no other bytes by chance."""


def recipe_of(case, model, folder, **changes):
    own = CASES[case]
    recipe = tiny.recipe(model, **SMALL, training={"epochs": 1}) | own | changes
    if own.get("method") in ("sisa", "protosisa", "ridge") or case == "forest":
        del recipe["sequences"]
    if "prediction" in own:
        public = tiny.text_table(16, seed=7).drop(columns="id")
        public[:-1][public[:-1].text.str.len() > 12].to_csv(folder / "public.csv", index=False)
        recipe["prediction"] = own["prediction"] | {"validation": str(folder / "public.csv")}
    return recipe


PEOPLE = tiny.text_table(36, seed=3).assign(who=[f"p{number // 2}" for number in range(36)])
VERBS = {
    "add": lambda run, table: run.add(table),
    "replace": lambda run, table: run.add(table, replace=True),
    "back": lambda run, table: run.add(table, readmit=True),
    "sync": lambda run, table: run.sync(table, max_deletions=1),
    "train": lambda run, _: run.train(),
    "repair": lambda run, _: run.repair(),
}


def follow(folder, recipe, steps, *, without=frozenset()):
    """What a run holds and answers, once it is repaired, wherever the steps say so: it begins with 12 people's records,
    and never had those that are among `without`. A step has the records that it concerns, each with the version of
    its text."""
    looks = []
    run = trained_run(folder, recipe, PEOPLE.loc[[row for row in range(12) if row not in without]])
    for what, versions in steps:
        left = [number for number in versions if number not in without]
        table = PEOPLE.loc[left]
        table = table.assign(text=[f"{text} w{versions[row]}" for row, text in table.text.items()])
        if what in VERBS:
            VERBS[what](run, table)
        elif what == "refused":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Transaction, "add", lambda *_arguments: False)
                with pytest.raises(s3t.InputError):
                    run.add(table)
        elif what == "delete" and left:
            run.delete(records=list(table.id))
        elif what == "delete person" and left:
            run.delete(subjects=[table.who[left[0]]])
        elif what == "reopen":
            run.close()
            run = s3t.Run.open(folder)
        elif what == "look":
            assert run.audit(replay=1).ok
            status, answers = run.status(), run.predict(PROBE)
            looks.append((tiny.artifacts(folder), answers.probabilities.tolist(), status.records, status.to_learn))
    assert run.status().missing == 0
    run.close()
    return looks


def numbers(*some, version=0):
    return dict.fromkeys(some, version)


HITS = [
    ("add", numbers(*range(12, 20))),
    ("delete", numbers(13)),  # before anything has learned it
    ("train", {}),
    ("add", numbers(*range(20, 24))),
    ("delete", numbers(3, 16, 22)),
    ("repair", {}),
    ("look", {}),
    ("train", {}),
    ("look", {}),
]
COMINGS_AND_GOINGS = [
    ("back", numbers(3, 24, version=1)),
    ("train", {}),
    ("replace", numbers(3, 4, version=2) | numbers(6, 25)),
    ("repair", {}),
    ("delete", numbers(3)),
    ("repair", {}),
    ("sync", numbers(*range(7, 12), *range(17, 21), 25, 26) | numbers(6, 24, version=3)),
    ("train", {}),
    ("look", {}),
]


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in QUICK else pytest.mark.integration) for case in CASES]
)
def test_what_came_later_and_was_deleted_never_was(case, text_model, tmp_path):
    recipe = recipe_of(case, text_model, tmp_path, columns=COLUMNS)
    steps = HITS + COMINGS_AND_GOINGS * (case in ("s3t", "head", "protosisa", "ridge"))
    forgot = follow(tmp_path / "one", recipe, steps)
    assert forgot == follow(tmp_path / "two", recipe, steps, without={3, 13, 16, 22})
    (before, *_, waiting), (after, *_, left) = forgot[:2]
    learned_at_once = case == "ridge"
    assert (waiting, left, before == after) == (0 if learned_at_once else 3, 0, learned_at_once)


def random_schedule(seed):
    """Steps: what is done, and the records that it concerns, each with the version of its text; and who is gone at the
    end. Every step that takes records in has one that no step deletes: new ones come by fours."""
    generator, waiting, steps = random.Random(seed), list(range(12, 36)), []
    present, gone, kept = dict.fromkeys(range(12), 0), set(), set(range(0, 36, 4))
    while True:
        what = generator.choice([*VERBS, "add", "delete", "delete person", "reopen", "refused", "end"])
        able, one = sorted(present.keys() - kept), len(steps)
        some = generator.sample(able, min(len(able), 2))
        same = generator.choice(sorted(kept & present.keys()))
        given, taken = {}, set()
        if what in ("add", "refused", "back", "sync"):
            given = dict.fromkeys(waiting[: 4 * generator.randint(1, 2)], 0)
            if not given and what != "sync":
                continue
            del waiting[: len(given)]
        if what == "back":
            given |= dict.fromkeys(generator.sample(sorted(gone), min(len(gone), 2)), one)
        elif what == "replace":
            given = dict.fromkeys([same, *some], one)
        elif what == "sync":
            given, taken = given | dict.fromkeys([same, *some[:1]], one), {*some[1:]}
        elif what in ("delete", "delete person"):
            pair = {number - 1 for number in some[:1] if number % 2} - kept if what == "delete person" else set()
            what, taken = what if pair else "delete", {*some[:1]} | pair
        elif what == "end":
            if waiting:
                continue
            back = {number for what, numbers in steps if what == "back" for number in numbers} & present.keys() - kept
            return [*steps, ("delete", dict.fromkeys(sorted(back), 0))], gone | back
        present = {number: version for number, version in (present | given).items() if number not in taken}
        gone = (gone - given.keys()) | taken
        concerned = dict(present) if what == "sync" else given or dict.fromkeys(taken, 0)
        steps += [("refused", given), ("add", given)] if what == "refused" else [(what, concerned)]


@pytest.mark.integration
@pytest.mark.parametrize("seed", [*range(21), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(21, 500))])
def test_random_schedules_of_what_comes_and_goes_are_exact(seed, text_model, tmp_path):
    case = [name for name in CASES if name != "forest"][seed % (len(CASES) - 1)]
    recipe = recipe_of(case, text_model, tmp_path, columns=COLUMNS)
    steps, deleted = random_schedule(seed)
    steps += [("train", {}), ("repair", {}), ("look", {})]
    assert follow(tmp_path / "one", recipe, steps) == follow(tmp_path / "two", recipe, steps, without=deleted)


@pytest.fixture(scope="module")
def made_once(state_of_all, text_model, tmp_path_factory):
    """The folders of runs to be copied: a trained one of one shard, and one with people that were never learned."""
    folder = tmp_path_factory.mktemp("adding")
    recipe = tiny.recipe(text_model, **SMALL, training={"epochs": 1})
    trained_run(folder / "trained", recipe, tiny.text_table()).close()
    recipe = tiny.recipe(text_model, **SMALL, columns={"subject": "person"})
    s3t.Run.create(folder / "people", recipe=recipe, data=tiny.text_table(subjects=6)).close()
    return folder


@pytest.fixture
def path(made_once, tmp_path):
    """Of a copy of the trained run."""
    return tiny.copy_run(made_once / "trained", tmp_path / "run")


@pytest.fixture
def run(path):
    with s3t.Run.open(path) as run:
        yield run


@pytest.fixture
def people(made_once, tmp_path):
    """A run of six people with four records each."""
    with s3t.Run.open(tiny.copy_run(made_once / "people", tmp_path / "people")) as run:
        yield run


@pytest.fixture
def learning(path):
    """The trained run, as if its recipe said that each addition is learned at once."""
    tiny.change_recipe(path, additions={"learn_every": 1})
    with s3t.Run.open(path) as run:
        yield run


def state_of(run):
    """All that a refused addition may not change: the ledger's counter, and the names and bytes of files."""
    kept = {name: content for name, content in tiny.all_files(run.path).items() if not name.startswith("ledger")}
    return run.parts.ledger.snapshot(), kept


def names_in(run):
    """Records whose ids are in any file of a run."""
    files = tiny.all_files(run.path).values()
    return {name for name in LATER.id if any(name.encode() in each for each in files)}


def is_deleted(run, name):
    return run.locate(records=[name])[0].deleted is not None


def refused(*_arguments, **_options):
    raise s3t.StorageError("the disk refuses")


WRONG = {
    "row 1: its id is in the run already": {"id": ["later00", "r3"]},
    "row 0: the record was deleted": {"id": ["r5", "later00"]},
    "rows 0, 1: its subject was deleted": {"person": ["p1", "p1"]},
    "duplicate of row 0": {"id": ["later00", "later00"]},
    "row 1: the label (column 'label') is outside the run's labels": {"label": ["a", "new"]},
    "columns.text": {"text": None},
}


def test_wrong_records_are_refused_with_their_rows_and_nothing_is_taken_in(people):
    people.delete(records=["r5"], subjects=["p1"])
    before = state_of(people)
    table = LATER[:2].assign(person=["q1", "q2"])
    for problem, change in WRONG.items():
        wrong = table.drop(columns="text") if change == {"text": None} else table.assign(**change)
        with pytest.raises(s3t.InputError) as caught:
            people.add(wrong)
        assert problem in "; ".join(caught.value.problems)
    assert state_of(people) == before


def test_what_is_not_taken_in_leaves_nothing(run, monkeypatch):
    """Killed while its files are put."""
    put, calls = Slices.put, []

    def dies(*arguments):
        if len(calls) == 2:
            refused()
        calls.append(put(*arguments))
        return calls[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Slices, "put", dies)
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
    status = run.status()
    assert (status.records, status.to_learn, status.missing, status.learned_after) == (28, 4, 0, None)
    assert status.learning_hours > 0
    done = run.delete(records=["later00", "later01"])
    assert (done.deleted, done.stages_lost, done.state) == (2, 0, "erased")
    after = run.predict(PROBE)
    assert (after.generation, after.members) == (1, before.members)
    assert after.probabilities.tolist() == before.probabilities.tolist()
    assert (tiny.artifacts(run.path), run.status().to_learn) == (artifacts, 2)
    assert names_in(run) <= {"later02", "later03"}


@pytest.mark.parametrize("by", ["itself", "another"])
@pytest.mark.parametrize("came", [0, 1])
def test_a_slice_leaves_the_memory_with_a_record_of_any_addition(came, by, path, monkeypatch):
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
    with s3t.Run.open(path) as run, s3t.Run.open(path) as other:
        run.add(LATER)
        run.train()
        material = roles(run).loaded.get().material
        held = {place: material._encoded[place].digest for place in material.held}
        assert {place.segment for place in held} == {1}
        place = min(held)
        record = records_by_slice(tiny.recipe("any", **SMALL), (tiny.text_table(), LATER)[came])[place[:2]][0]
        if by == "itself":
            run.delete(records=[record])
        else:
            other.delete(records=[record])
            run.predict(PROBE)
        assert material.held == held.keys() - {place}


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
    assert (set(depths), seen) == ({(3,)}, {1})


def test_while_they_are_learned_nothing_is_made_for_models_that_are_replaced_and_heads_stay_calibrated(
    text_model, tmp_path
):
    def look(event):
        if isinstance(event, s3t.StageEnd):
            now = run.parts.latest.snapshot()
            models = tuple(run.inventory().members().values())
            calibrated.append(bool(now.calibration(now.readouts[models])) if models in now.readouts else None)

    calibrated = []
    with trained_run(tmp_path / "run", recipe_of("head", text_model, tmp_path), tiny.text_table()) as run:
        run.add(LATER)
        done = run.train(progress=look)
        readouts = [each.stage for each in done.summaries if each.stage.kind == "readout"]
        assert len(readouts) == 2 * 3  # of the model and of the base model, by each slice
        assert {model.seen for stage in readouts for model in stage.models} == {1}
        assert {True} <= set(calibrated) <= {True, None}


def test_the_recipe_says_after_how_many_additions_they_are_learned(path):
    tiny.change_recipe(path, additions={"learn_every": 2})
    with s3t.Run.open(path) as run:
        assert (run.status().learned_after, run.status().learning_hours) == (None, 0)
        assert run.add(LATER[:2]).training is None
        assert run.status().learned_after == 1
        second = run.add(LATER[2:3], train=False)
        status = run.status()
        assert (second.training, second.due, status.to_learn, status.learned_after) == (None, True, 3, 0)
        assert status.learning_hours == status.missing_hours > 0
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
    with trained_run(tmp_path / "run", recipe_of(case, text_model, tmp_path), tiny.text_table()) as run:
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


def test_a_ledger_from_before_an_addition_is_an_older_one(path, tmp_path):
    """Its records would be in the folder, and nobody would know them."""
    backup = shutil.copy(path / "ledger.sqlite", tmp_path / "ledger.sqlite")
    with s3t.Run.open(path) as run:
        run.add(LATER)
        run.delete(records=["later05"])
    for file in path.glob("ledger.sqlite*"):
        file.unlink()
    shutil.copy(backup, path / "ledger.sqlite")
    Witness.of_run(read_description(Layout(path)).run).path.unlink()  # of another machine: it has seen no deletion
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
    for _ in range(2):
        with pytest.raises(s3t.KeyDestroyedError):
            run.add(LATER)
        assert names_in(run) == set()


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


def test_a_subject_has_one_group_whenever_its_records_come_and_a_lone_record_may_change_it(text_model, tmp_path):
    group = {"column": "age", "slices": {"young": [0], "old": [1, 2]}, "deletion": {"young": 0.5, "old": 0.1}}
    recipe = tiny.recipe(text_model, partition={"shards": 1, "group": group}, columns={"subject": "person"})
    rows = tiny.text_table(subjects=24).assign(age=["young", "old"] * 12)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=rows) as run:
        later = LATER[:4].assign(person=["p0", "p1", "q", "q"], age=["young", "young", "old", "old"])
        with pytest.raises(s3t.InputError, match="row 1: the other records of its subject are in another group"):
            run.add(later)
        assert run.add(later.drop(index=1)).records == 3
        assert run.add(rows[4:5].assign(age="old"), replace=True).replaced == 1
        assert run.sync(rows, max_deletions=1).replaced == 1


def test_what_could_not_be_learned_stays_taken_in_and_what_did_not_change_is_no_addition(learning, monkeypatch):
    done = learning.add(tiny.text_table()[:3], replace=True)
    assert (done.addition, done.unchanged, done.training, done.deletion) == (None, 3, None, None)
    with monkeypatch.context() as patch:
        patch.setattr(Artifacts, "put", refused)
        done = learning.add(LATER[:2])
    assert "the disk refuses" in done.training_failed
    assert (done.due, learning.status().to_learn) == (True, 2)
    learning.delete(records=["later00"])
    learning.repair()
    assert (learning.status().to_learn, learning.status().missing) == (0, 0)


def test_a_run_that_was_never_trained_learns_all_at_once(text_model, tmp_path):
    """And its advice counts slices, not segments."""
    rows, recipe = tiny.text_table(), tiny.recipe(text_model, **SMALL, training={"epochs": 1})
    advice = []
    for name, first in (("one", rows[:10]), ("two", rows)):
        with s3t.Run.create(tmp_path / name, recipe=recipe, data=first) as run:
            if len(first) < len(rows):
                assert (run.add(rows[10:]).due, run.status().to_learn) == (False, 14)
            advice.append(run.status().advice)
            run.train()
            assert {stage.seen for stage in run.inventory().alive} == ({0} if len(first) == len(rows) else {1})
    assert advice[0] == advice[1] != ()


def add(rows):
    return lambda run: run.add(rows)


def sync_without_r0(run):
    return run.sync(pd.concat([tiny.text_table()[1:], LATER]), max_deletions=0.1)


@pytest.mark.parametrize(
    ("first", "second", "records", "seconds"),
    [
        (add(LATER[:8]), add(LATER[8:]), 48, "2"),
        (add(LATER[:8]), add(LATER[:8]), 32, "run the same command again|is in the run already"),
        (sync_without_r0, sync_without_r0, 47, "None|run the same command again"),
    ],
    ids=["others", "the same", "a table"],
)
def test_two_at_once_are_both_taken_in_or_the_second_is_refused(first, second, records, seconds, run):
    """Of the same records one alone, whoever is first."""

    def change(act):
        with s3t.Run.open(run.path) as other:
            try:
                return str(act(other).addition)
            except s3t.InputError as error:
                return error.problems[0]

    with ThreadPoolExecutor(2) as pool:
        found = sorted(pool.map(change, [first, second]))
    assert found[0] == "1"
    assert re.search(seconds, found[1])
    assert run.status().records == records
    assert run.audit().ok


def test_what_another_process_did_since_they_were_looked_up_is_seen(people, monkeypatch):
    """A record that was added, or a record or subject that was deleted, in the meantime."""
    people.delete(records=["r5"], subjects=["p1"])
    before = people.status().records
    monkeypatch.setattr(adding, "_check_names", lambda *_arguments, **_options: [])
    for row in ({"id": "r3"}, {"id": "r5"}, {"person": "p1"}):
        given = pd.DataFrame([{"id": "later07", "text": "w1", "label": "a", "person": "q"} | row])
        with pytest.raises(s3t.InputError, match="run the same command again"):
            people.add(given)
        assert people.status().records == before
        assert "later07" not in names_in(people)
        assert len(list((people.path / "slices").rglob("*.parquet"))) == 3
    assert people.audit().ok


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
    run.extend(budget=3)
    assert {stage.seen for stage in run.inventory().alive} == {1}
    run.export(tmp_path / "export")
    (hit,) = run.delete(records=["later06"]).to_withdraw
    assert hit.to_withdraw
    run.close()
    assert s3t.Run.reconcile(run.path).records == 0


BACK = LATER[:1].assign(id="r3")


@pytest.fixture
def came_back(run):
    """A run with a record that was deleted and came back."""
    run.delete(records=["r3"], key="k")
    with pytest.raises(s3t.InputError, match="row 0: the record was deleted from the run"):
        run.add(BACK)
    assert run.add(BACK, readmit=True).readmitted == 1
    return run


def test_who_came_back_is_there_and_can_be_deleted_again(came_back):
    again = came_back.delete(records=["r3"], key="k")
    assert (again.deleted, again.repeated, again.already) == (1, True, ())  # not told to be gone already
    (found,) = came_back.locate(records=["r3"])
    assert (found.records, found.deleted) == (1, None)
    assert came_back.audit().ok
    came_back.close()
    assert s3t.Run.reconcile(came_back.path).records == 0
    with s3t.Run.open(came_back.path) as run:
        assert run.status().records == 24
        assert (run.delete(records=["r3"]).deleted, run.delete(records=["r3"]).already) == (1, ("r3",))
        assert run.audit().ok


def test_records_that_wait_for_erasure_may_come_back_and_go_again(path, monkeypatch):
    """What is deleted and still in its file does not count as there. Each of its segments is rewritten by itself."""
    tiny.change_recipe(path, deletion={"erase_within": 3600, "repair": "manual"})
    table, put_next = tiny.text_table(), Eraser._put_next

    def refused_for_the_first(eraser, place, tokens, *, state):
        return put_next(eraser, place, tokens, state=state) if place.segment else refused()

    with s3t.Run.open(path) as run:
        run.delete(records=["r3"])
        run.add(table[3:4], readmit=True)
        assert run.sync(table).addition is None
        run.delete(records=["r3"])
        assert run.sync(table.drop(index=3)).deletion is None
        assert run.sync(table, readmit=True).records == 1
        run.delete(records=["r3"])
        with monkeypatch.context() as patch:
            patch.setattr(Eraser, "_put_next", refused_for_the_first)
            with pytest.raises(s3t.StorageError):
                run.erase()
        assert [entry.state for entry in run.log()][1] == "effective"
        run.erase()
        assert {entry.state for entry in run.log()} == {"erased"}
        assert run.audit().ok
        names = [name for file in (path / "slices").rglob("*.parquet") for name in pd.read_parquet(file).record]
        assert sorted(names) == sorted(table.id.drop(index=3))


@pytest.mark.parametrize("waits", [False, True])
def test_an_older_state_forgets_no_second_deletion(waits, path, tmp_path):
    """A backup from between: the record came back in it, while its first bytes may wait for erasure, and was deleted
    since."""
    if waits:
        tiny.change_recipe(path, deletion={"erase_within": 3600})
    with s3t.Run.open(path) as run:
        run.delete(records=["r3"])
        run.add(BACK, readmit=True)
    backup = shutil.copytree(path, tmp_path / "backup")
    with s3t.Run.open(path) as run:
        run.delete(records=["r3"])
    shutil.rmtree(path)
    shutil.move(backup, path)
    with pytest.raises(s3t.RestoredError):
        s3t.Run.open(path)
    assert s3t.Run.reconcile(path).records == 1
    with s3t.Run.open(path) as run:
        assert is_deleted(run, "r3")
        assert (run.status().records, run.audit().ok) == (23, True)


def test_a_lost_row_is_no_deletion_also_of_who_came_back(came_back):
    """That the record was deleted before explains nothing that lies in a newer segment."""
    came_back.add(LATER[1:])
    names = ["r3", "later03"]
    with roles(came_back).ledger.writing() as transaction:
        rows = [{"token": came_back.parts.secret.token("ledger", "record", name)} for name in names]
        transaction.rows.remove(s3t.ledger.schema.records, rows)
    for ask in (came_back.delete, came_back.locate):
        with pytest.raises(s3t.IntegrityError, match="the ledger is damaged"):
            ask(records=["r3"])
    assert not came_back.audit().ok
    came_back.close()
    assert s3t.Run.reconcile(came_back.path).rows == 2
    with s3t.Run.open(came_back.path) as run:
        assert run.audit().ok
        assert run.delete(records=names).deleted == 2
        assert "later03" not in names_in(run)


def test_people_come_back_as_a_whole(people):
    people.delete(subjects=["p1"])
    back = LATER[:3].assign(person=["p1", "p1", "q"])
    with pytest.raises(s3t.InputError, match="rows 0, 1: its subject was deleted"):
        people.add(back)
    assert people.add(back[:1], readmit=True).readmitted == 1
    assert people.add(back[1:]).readmitted == 0  # now the person is there
    (found,) = people.locate(subjects=["p1"])
    assert (found.records, found.deleted) == (2, None)
    assert people.delete(subjects=["p1"]).deleted == 2
    with pytest.raises(s3t.InputError, match="row 0: its subject was deleted"):
        people.add(LATER[3:4].assign(person="p1"))


def test_who_left_with_a_table_may_come_with_another_unless_they_asked_to_be_deleted(people):
    table = tiny.text_table(subjects=6)
    assert people.sync(table[~table.person.isin(["p1", "p2"])], max_deletions=1).deletion.deleted == 8
    assert people.delete(subjects=["p2"]).already == ("p2",)  # asked for after the fact
    assert people.sync(table[table.person != "p2"]).records == 4
    with pytest.raises(s3t.InputError, match="rows 2, 8, 14, 20: its subject was deleted"):
        people.sync(table)
    assert people.audit().ok


def test_a_record_that_was_deleted_by_its_id_bars_nobody(people):
    table = tiny.text_table(24, subjects=24)[:6]
    people.sync(table, max_deletions=1)
    people.delete(records=["r5"])  # the only one of p5
    assert people.sync(pd.concat([table[:5], LATER[:1].assign(person="p5")])).records == 1
    people.delete(subjects=["p5"])
    with pytest.raises(s3t.InputError, match="row 5: its subject was deleted"):
        people.sync(pd.concat([table[:5], LATER[1:2].assign(person="p5")]))


@pytest.mark.parametrize("whole", [True, False])
def test_a_restored_backup_bars_nobody_who_did_not_ask(whole, path, tmp_path):
    """What a table replaced or lacked may come again; who asked to be deleted, also after the fact, may not."""
    backup = shutil.copytree(path, tmp_path / "backup")
    table = tiny.text_table()
    later = table.assign(text=["w9 w8", "w7", *table.text[2:]])[:-2]
    with s3t.Run.open(path) as run:
        run.sync(later, max_deletions=1)
        run.delete(records=["r5"])
        assert run.delete(records=["r23"]).already == ("r23",)
    if whole:
        shutil.rmtree(path)
        shutil.move(backup, path)
    else:
        shutil.copy(backup / "ledger.sqlite", path)
        for rest in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
            (path / rest).unlink(missing_ok=True)
    s3t.Run.reconcile(path)
    with s3t.Run.open(path) as run:
        for name in ("r5", "r23"):
            with pytest.raises(s3t.InputError, match="row 0: the record was deleted"):
                run.add(table[table.id == name])
        assert run.sync(later[later.id != "r5"], max_deletions=1).records == 2
        assert run.add(table[table.id == "r22"]).records == 1
        assert run.audit().ok


def test_who_asked_after_the_backup_that_was_put_back_is_not_taken_in(path, tmp_path):
    """The request made no deletion, so the backup is no older state; and its time is after the run's last one."""
    table = tiny.text_table()
    with s3t.Run.open(path) as run:
        run.sync(table[:-1], max_deletions=1)
    backup = shutil.copytree(path, tmp_path / "backup")
    with s3t.Run.open(path) as run:
        run.delete(records=["r23"])
    shutil.rmtree(path)
    shutil.move(backup, path)
    with s3t.Run.open(path) as run, pytest.raises(s3t.InputError, match="row 0: the record was deleted"):
        run.add(table[-1:])


def test_a_late_request_is_noted_outside_or_refused(path, monkeypatch):
    table = tiny.text_table()
    with s3t.Run.open(path) as run:
        run.sync(table[:-1], max_deletions=1)
        with monkeypatch.context() as patch:
            patch.setattr(Witness, "_append", refused)
            with pytest.raises(s3t.StorageError):
                run.delete(records=["r23"])
        assert run.delete(records=["r23"]).already == ("r23",)
        assert Witness(roles(run).witness.path).asked_late(0)[1] == 1


def test_overlapping_additions_do_not_keep_deletions_from_being_erased(path, monkeypatch):
    """There may always be one under way."""
    with s3t.Run.open(path) as run, ExitStack() as first:
        roles(run).deleter.patience = 0.5
        first.enter_context(adding._in_memory(run.parts))
        assert run.delete(records=["r1"], repair=False).state == "effective"
        with adding._in_memory(run.parts):
            assert run.delete(records=["r2"], repair=False).state == "effective"
            first.close()
            run.parts.presence.look()
            run.erase()
            assert [each.state for each in run.log()[1:]] == ["erased", "effective"]


def test_what_another_history_deleted_is_deleted_by_reconcile_whatever_the_numbers(path, tmp_path):
    """A backup was put back, without the memory of deletions, and lived on; then the memory came back, too."""
    backup, kept = shutil.copytree(path, tmp_path / "backup"), tmp_path / "kept"
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
        assert is_deleted(run, "later00")
        assert run.audit().ok


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
                roles(other).deleter.patience = 0.0
                other.delete(records=["r1", "r2", "r5"])
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


@pytest.mark.parametrize("how", ["beside what waits", "added meanwhile", "by who only adds"])
def test_no_deletion_is_erased_before_who_takes_records_in_lets_go_of_all(how, path, monkeypatch):
    """Any record may be in the temporary files: of a slice that waits to be rewritten, of an addition that came since,
    or of a table that is about to be refused."""
    tiny.change_recipe(path, deletion={"erase_within": 3600, "repair": "manual"})
    compare, states, table = adding._compare, [], tiny.text_table()
    first, second = pd.read_parquet(next((path / "slices").rglob("*.parquet"))).record[:2]
    if how == "added meanwhile":
        table = pd.concat([table, LATER[:3]])
        second = "later00"

    def meanwhile(parts, change):
        monkeypatch.undo()
        with s3t.Run.open(path) as other:
            if how == "added meanwhile":
                other.add(LATER[:3])
            compare(parts, change)
            roles(other).deleter.patience = 0.3
            other.delete(records=[second])
            other.erase()
            states.append(other.log()[-1].state)

    with s3t.Run.open(path) as run:
        if how == "beside what waits":
            run.delete(records=[first])
            table = table[table.id != first]
        monkeypatch.setattr(adding, "_compare", meanwhile)
        if how == "by who only adds":
            run.add(LATER[:2])
        else:
            run.sync(table, max_deletions=1)
        run.erase()
        assert (states, run.log()[-1].state) == (["effective"], "erased")


@pytest.mark.parametrize("lost", ["expired", "gone", "replaced"])
def test_a_newer_version_that_comes_meanwhile_is_not_deleted_for_the_older_one(lost, dated, tmp_path, monkeypatch):
    recipe, table, on = dated
    compare, older = adding._compare, deleting._older_than

    def newer():
        monkeypatch.setattr(adding, "_compare", compare)
        monkeypatch.setattr(deleting, "_older_than", older)
        with s3t.Run.open(tmp_path / "run") as other:
            assert other.add(table[:1].assign(created="2026-02-28", text="w1"), replace=True).replaced == 1

    def then(work):
        return lambda *arguments: (work(*arguments), newer())[0]

    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        if lost == "expired":
            on("2026-04-02")
        monkeypatch.setattr(adding, "_compare", then(compare))
        monkeypatch.setattr(deleting, "_older_than", then(older))
        data = {"expired": None, "gone": table[1:], "replaced": table.assign(text=["w5", *table.text[1:]])}[lost]
        act = run.expire if data is None else partial(run.sync, data)
        with pytest.raises(s3t.InputError, match="run the same command again"):
            act(max_deletions=1)
        assert run.status().records == 24
        assert run.locate(records=["r0"])[0].records == 1


@pytest.mark.parametrize(("owner", "step"), [(Deleter, "finished"), (Transaction, "add"), (Witness, "note")])
def test_a_refusal_says_what_is_true_of_what_came(owner, step, run, monkeypatch):
    """What is replaced and what replaces it are one transaction: before it neither was done; once they are in, they
    are, whatever fails of what is left to do."""
    done = step != "add"
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, refused)
        with pytest.raises(s3t.StorageError) as failed:
            run.sync(pd.concat([tiny.text_table()[1:], LATER[:1]]), max_deletions=1)
    for said in ("taken in all the same", "are out of use"):
        assert (said in str(failed.value)) == done
    assert (run.status().records, run.status().generation) == (24, int(done))
    assert is_deleted(run, "r0") == done
    assert run.locate(records=["later00"])[0].records == int(done)
    assert run.audit().ok


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


def test_whether_a_row_has_changed_does_not_depend_on_others(text_model, tmp_path):
    """Windows are compared at once, and where they differ row by row: both know -0.0 and 0.0 as one number."""
    recipe = tiny.recipe(text_model, partition={"shards": 1, "slices": 1}, labels=None) | {"task": "text-regression"}
    table = tiny.text_table().assign(label=[-0.0, *range(23)])
    with s3t.Run.create(tmp_path / "run", recipe=recipe | {"sequences": {"budget": 1}}, data=table) as run:
        done = run.sync(table.assign(label=[0.0, 7, *range(1, 23)]), max_deletions=1)
        assert (done.replaced, done.unchanged) == (1, 23)


def test_whose_record_it_is_may_change_with_a_table(people):
    """It then lies in another slice: deleted in one, taken in in the other."""
    table = tiny.text_table(subjects=6)
    moved = table.assign(person=["q", *table.person[1:]])
    done = people.sync(moved, max_deletions=0.1)
    assert (done.records, done.replaced, done.unchanged) == (1, 1, 23)
    assert people.locate(subjects=["q"])[0].records == 1
    assert people.sync(moved).addition is None


def test_without_ids_there_is_nothing_to_compare_and_without_a_retention_nothing_expires(text_model, tmp_path):
    recipe = tiny.recipe(text_model, **SMALL)
    del recipe["columns"]["id"]
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        for ask in (run.sync, lambda data: run.add(data, replace=True)):
            with pytest.raises(s3t.RecipeError, match=r"columns\.id"):
                ask(LATER)
        with pytest.raises(s3t.RecipeError, match="retention"):
            run.expire()


DATES = ["2026-01-01", "2026-06-01T23:30:00-02:00", "2026-11-01 08:00:00", "2026-11-20"]


@pytest.fixture
def dated(text_model, monkeypatch):
    """A recipe with a retention, a table with dates, and how to set the clock."""
    recipe = tiny.recipe(text_model, **SMALL, training={"epochs": 1}, retention={"column": "created", "days": 90})
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
    never_knew = artifacts_after(tmp_path / "twin", recipe, table[table.created != DATES[0]])
    assert forgot == never_knew
    kept = {date for file in (tmp_path / "twin" / "slices").rglob("*.parquet") for date in pd.read_parquet(file).date}
    assert kept == {"2026-06-02", "2026-11-01", "2026-11-20"}  # the date in UTC, and no time


def test_what_was_replaced_by_something_newer_does_not_expire(dated, tmp_path):
    """The old one may wait in its file to be erased."""
    recipe, table, on = dated
    with s3t.Run.create(tmp_path / "run", recipe=recipe | {"deletion": {"erase_within": 60}}, data=table) as run:
        run.add(table[:1].assign(created=pd.Timestamp("2026-11-20 10:00")), replace=True)
        on("2026-04-02")
        assert run.expire(max_deletions=1).deleted == 5
        assert run.locate(records=["r0"])[0].records == 1


def test_a_table_may_go_on_holding_what_is_too_old(dated, tmp_path):
    recipe, table, on = dated
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table[1:]) as run:
        on("2026-04-02")
        with pytest.raises(
            s3t.InputError, match=r"5 records would expire, more than 0\.1 .* whether the clock is right"
        ):
            run.sync(table)
        done = run.sync(table, max_deletions=0.3)
        assert (done.records, done.unchanged, done.expired, done.deletion.deleted) == (0, 18, 5, 5)
        assert done.too_old == 6  # one of them was never there
        assert run.sync(table).deletion is None
        with pytest.raises(s3t.InputError, match=r"row 0: the date .* is older than retention"):
            run.add(table[:1])
        assert run.sync(table.assign(created=["2026-11-30", *table.created[1:]])).records == 1


def test_the_status_tells_of_an_expiry_that_was_refused(dated, tmp_path):
    recipe, table, on = dated
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        on("2026-04-02")
        with pytest.raises(s3t.InputError):
            run.expire(dry_run=True)
        assert run.status().warnings == ()
        with pytest.raises(s3t.InputError, match="6 records"):
            run.expire()
        (warning,) = run.status().warnings
        assert warning.startswith("6 records older than retention.days allows")
        with pytest.raises(s3t.InputError, match="6 records would expire"):
            run.sync(table, max_deletions=0.2)
        run.delete(records=list(table.id[:20]))
        assert any(each.startswith("4 records older than") for each in run.status().warnings)
        run.expire(max_deletions=1)
        assert run.status().warnings == ()


WRONG_DATES = {
    None: "is empty; give every record one",
    "yesterday": "is none by ISO 8601; write 2026-11-30",
    "2999-01-01": "lies in the future; correct it",
    "9999-12-31T23:59:59-05:00": "has no date in UTC; correct it",
    "0900-01-01": "is older than retention.days allows; drop the row",
}


def test_records_without_a_date_are_refused(dated, tmp_path):
    recipe, table, _ = dated
    table = table.assign(created=["2026-11-20", *WRONG_DATES, *["2026-11-20"] * 18])
    with pytest.raises(s3t.DataError) as caught:
        s3t.Run.create(tmp_path / "run", recipe=recipe, data=table)
    told = "\n".join(caught.value.problems)
    assert all(
        f"row {row}: the date (column 'created') {problem}" in told
        for row, problem in enumerate(WRONG_DATES.values(), start=1)
    )


def test_dates_that_no_calendar_has_are_refused_with_their_rows(dated, tmp_path):
    recipe, table, _ = dated
    rows = pa.Table.from_pandas(table.drop(columns="created"))
    for kind, far in ((pa.timestamp("us"), 2**62), (pa.date32(), 2**30)):
        created = pa.array([20000 * (86400 * 10**6 if far > 2**40 else 1)] * 3 + [far, None] + [-far] * 19, pa.int64())
        created = created.cast(kind) if far > 2**40 else created.cast(pa.int32()).cast(kind)
        with pytest.raises(s3t.DataError) as caught:
            s3t.Run.create(tmp_path / "run", recipe=recipe, data=rows.append_column("created", created))
        told = str(caught.value)
        assert "row 4: the date (column 'created') is empty" in told
        assert "rows 3, 5, 6, 7, 8, 9, 10, 11, 12, 13 and 10 more: the date (column 'created') is beyond" in told


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"columns": {"text": "text", "label": "label"}}, "columns.id"),
        ({"retention": {"column": "text", "days": 3}}, "'text' is one of columns, too"),
        ({"retention": {"column": "created", "days": 0}}, "retention.days"),
    ],
)
def test_what_no_retention_can_be(change, problem, dated):
    with pytest.raises(s3t.RecipeError, match=problem):
        recipe_from(dated[0] | change)
