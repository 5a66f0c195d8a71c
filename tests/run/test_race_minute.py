"""Eight threads, and other processes, delete, predict and repair at once: nothing tainted is answered or stored."""

import pytest

import s3t
from s3t.ledger import Ledger, Snapshot, Transaction
from s3t.ledger.presence import Work
from s3t.run.upkeep import Upkeep
from testing import tiny
from testing.accepted import accept
from testing.roles import roles
from tests.run.meanwhile import Meanwhile
from tests.run.race import Notes, Process, Seen, racers
from tests.run.worlds import records_by_slice

pytestmark = pytest.mark.integration

RECORDS = 240


@pytest.fixture
def table():
    return tiny.text_table(RECORDS)


@pytest.fixture
def recipe(text_model):
    return tiny.recipe(text_model, training={"epochs": 1, "batch_size": 16})


def race(folder, recipe, table, *, seconds, deletions, processes=()):
    """Let everybody run; what was seen, and the records that are gone."""
    gone = list(table.id.sample(deletions, random_state=0))
    path = folder / "notes"
    notes = Notes(path)
    with pytest.MonkeyPatch.context() as patch, s3t.Run.create(folder / "run", recipe=recipe, data=table) as run:
        notes.watch(patch)
        notes.slices_of(run)
        run.train()
        names = {roles(run).secret.token("ledger", "record", name).hex(): name for name in table.id}
        others = [Process(run.path, path, role=role, seconds=seconds) for role in processes]
        for other in others:
            other.wait_until_ready()
        with s3t.Run.open(run.path) as shared, s3t.Run.open(run.path) as own:
            threads = racers(notes, [run, shared, own], records=gone, seconds=seconds)
            for each in (*others, *threads):
                each.begin() if isinstance(each, Process) else each.start()
            for each in (*threads, *others):
                each.join()
    return Seen.read(path, names), gone


def assert_nothing_tainted(seen, *, deletions, seconds):
    assert seen.errors == []
    assert seen.tainted_asked == []
    assert seen.tainted_answers == []
    assert seen.tainted_stored == []
    assert seen.accepted == deletions
    assert seen.answered > 2 * seconds
    assert seen.stored > 18 + seconds / 2  # repairs came to something


def assert_as_if_never_known(folder, recipe, table, gone):
    with s3t.Run.open(folder / "run") as run:
        assert run.audit().ok
        run.repair()
        assert run.audit(replay=3, seed=0).ok
        assert all(entry.state == "erased" for entry in run.log())
    with s3t.Run.create(folder / "never-knew", recipe=recipe, data=table[~table.id.isin(gone)]) as never_knew:
        never_knew.train()
    assert tiny.artifacts(folder / "run") == tiny.artifacts(folder / "never-knew")


@pytest.mark.parametrize(
    ("seconds", "deletions"),
    [pytest.param(6, 30, id="six seconds"), pytest.param(60, 180, id="a minute", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("processes", [(), ("predict", "repair")], ids=["threads", "threads and processes"])
def test_nothing_tainted_is_answered_or_stored(seconds, deletions, processes, tmp_path, recipe, table):
    seen, gone = race(tmp_path, recipe, table, seconds=seconds, deletions=deletions, processes=processes)
    assert_nothing_tainted(seen, deletions=deletions, seconds=seconds)
    assert_as_if_never_known(tmp_path, recipe, table, gone)


@pytest.fixture
def watched(recipe, table, tmp_path, monkeypatch):
    """A trained run, what it does noted, and what the onlooker makes of it."""
    notes = Notes(tmp_path / "notes")
    notes.watch(monkeypatch)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        notes.slices_of(run)
        run.train()
        names = {roles(run).secret.token("ledger", "record", name).hex(): name for name in table.id}
        yield run, notes, lambda: Seen.read(tmp_path / "notes", names)


def delete(run, record):
    with s3t.Run.open(run.path) as other:
        other.delete(records=[record])


def first_record(recipe, table):
    """Of the first slice, on which every kind of answer and stage of the only shard may stand."""
    return records_by_slice(recipe, table)[0, 0][0]


@pytest.mark.parametrize("looks", ["at its end", "once"])
def test_the_onlooker_sees_an_answer_that_no_deletion_stops(looks, watched, recipe, table, monkeypatch):
    """Larger inputs look at the ledger before and at the end, a single batch once."""
    run, notes, look = watched
    monkeypatch.setattr(Work, "look", lambda self, snapshot: None)
    now = roles(run).ledger.snapshot()
    if looks == "once":
        monkeypatch.setattr(Upkeep, "erase_due", lambda self: now)
    else:
        monkeypatch.setattr(Ledger, "recent", lambda self: None)
    notes.ask(run, progress=Meanwhile(lambda: delete(run, first_record(recipe, table))))
    seen = look()
    assert (len(seen.tainted_answers), seen.tainted_asked) == (1, [])


def test_the_onlooker_sees_a_stage_that_is_stored_without_comparison(watched, recipe, table, monkeypatch):
    run, notes, look = watched
    monkeypatch.setattr(Snapshot, "still_as", lambda self, seen: True)
    first, second = records_by_slice(recipe, table)[0, 0][:2]
    delete(run, first)  # there is something to train again
    assert look().tainted_stored == []
    notes.act(lambda: run.repair(progress=Meanwhile(lambda: delete(run, second))))  # what is next finds it out
    assert look().tainted_stored


def test_the_onlooker_sees_tainted_stages_that_stay_in_use(watched, recipe, table, monkeypatch):
    run, notes, look = watched
    notes.ask(run)
    assert look().tainted_asked == []
    monkeypatch.setattr(Transaction, "_take_out_stages", lambda self, numbered: None)
    accept(run, [first_record(recipe, table)])
    notes.ask(run)
    assert look().tainted_asked
