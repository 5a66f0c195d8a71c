"""A ledger that an older version wrote is brought up to date, whole or not at all; a newer one is left alone."""

import json
import shutil
import sqlite3

import pytest
import yaml
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import OperationalError

import s3t
from s3t.errors import RunFolderError, StorageError
from s3t.ledger import Ledger, PostgresAddress, RecordRow, SliceState
from s3t.ledger.engines import engine_at
from s3t.ledger.migrating import HEAD, REVISIONS, _config, revision
from s3t.ledger.schema import metadata
from s3t.partition import Place
from s3t.stages import Stage
from s3t.stages.key import AS_ONCE
from tests import tiny
from tests.ledger import another_process
from tests.ledger.first_release import COLUMNS, make_tables, set_back
from tests.ledger.world import rewrite, walk

ROWS = {
    "generations": [(0, 1.5, 1.5, 0), (1, 2.5, 3.5, 1), (2, 4.5, None, 2)],  # the second deletion is unfinished
    "slices": [(0, 0, 1, 1, "a" * 64), (0, 1, 3, 1, "b" * 64)],
    "records": [(b"1" * 32, b"p" * 32, 0, 0, 1), (b"2" * 32, None, 0, 1, 3)],
    "deleted": [(b"3" * 32, 1), (b"4" * 32, 2), (b"5" * 32, 2)],
    "erasing_records": [(b"4" * 32, 0, 1), (b"5" * 32, 0, 1)],
    "erasing_artifacts": [(0, "k1")],
    "stages": [(0, "0", "k0")],
}


def by_first_revision(connection):
    command.upgrade(_config(connection), REVISIONS[0])


@pytest.fixture(params=[by_first_revision, make_tables], ids=["revision 0001", "before there were revisions"])
def old(request, address):
    """The address of an old ledger with an unfinished deletion."""
    write_old(address, request.param)
    return address


def write_old(address, make):
    engine = engine_at(address)
    with engine.connect().execution_options(s3t_writing=True) as connection, connection.begin():
        if isinstance(address, PostgresAddress):
            connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
        make(connection)
        for table in ("generations", "slices", *(ROWS.keys() - {"generations", "slices"})):
            names = COLUMNS[table].split(", ")
            values = ", ".join(f":{name}" for name in names)
            rows = [dict(zip(names, row, strict=True)) for row in ROWS[table]]
            connection.execute(text(f"INSERT INTO {table} ({COLUMNS[table]}) VALUES ({values})"), rows)
    engine.dispose()


def dump(address):
    """Every table of a database, whatever its revision: its columns and its rows."""
    engine = engine_at(address)
    found = {}
    with engine.connect() as connection:
        for table in inspect(connection).get_table_names():
            columns = [column["name"] for column in inspect(connection).get_columns(table)]
            rows = connection.execute(text(f"SELECT {', '.join(columns)} FROM {table}"))
            found[table] = columns, sorted(repr(tuple(row)) for row in rows)
    engine.dispose()
    return found


def test_an_old_ledger_keeps_all_it_knew(old):
    ledger = Ledger.open(old)
    with ledger.reading() as transaction:
        log, work = transaction.log(), transaction.to_erase()
        located = transaction.locate(records=[b"2" * 32, b"3" * 32, b"4" * 32], subjects=[b"p" * 32])
    snapshot = ledger.snapshot()
    times = [(entry.received_at, entry.accepted_at, entry.effective_at, entry.erased_at) for entry in log]
    assert times == [(1.5, 1.5, 1.5, 1.5), (2.5, 3.5, 3.5, 3.5), (4.5, None, None, None)]
    assert [(entry.records, entry.state) for entry in log] == [(0, "erased"), (1, "erased"), (2, "accepted")]
    assert snapshot.generation == 2
    assert snapshot.slices == {
        Place(0, 0): SliceState(records=1, losses=1, digest="a" * 64, pending=False),
        Place(0, 1): SliceState(records=3, losses=1, digest="b" * 64, pending=True),
    }
    assert snapshot.stages == {Stage(0, (0,)): "k0"}
    assert located.rows == (
        RecordRow(token=b"1" * 32, subject=b"p" * 32, place=Place(0, 0), copies=1),
        RecordRow(token=b"2" * 32, subject=None, place=Place(0, 1), copies=3),
    )
    assert located.gone == {b"3" * 32: 1, b"4" * 32: 2}
    assert work.records == {Place(0, 1): {b"4" * 32, b"5" * 32}}
    assert work.since == {Place(0, 1): 4.5}
    assert work.artifacts == {(0, "k1")}
    ledger.close()


def test_its_unfinished_deletion_can_be_finished(old):
    ledger = Ledger.open(old)
    with ledger.writing() as transaction:
        transaction.settle()
        assert transaction.log([2])[0].state == "effective"
        rewrite(transaction, Place(0, 1), "c" * 64, [b"4" * 32, b"5" * 32])
        transaction.settle()
        assert transaction.log([2])[0].state == "effective"
        transaction.removed([(0, "k1")])
        transaction.settle()
        assert transaction.log([2])[0].state == "effective"
        walk(transaction)
        transaction.settle()
        assert transaction.log([2])[0].state == "erased"
    assert ledger.snapshot().waiting_since is None
    ledger.close()


def test_what_migrations_make_is_what_the_schema_says(old, tmp_path):
    Ledger.open(old).close()
    assert differences(old) == []


def test_a_new_ledger_is_what_the_schema_says(ledger, address):
    assert differences(address) == []
    with ledger.reading() as transaction:
        assert revision(transaction._connection) == HEAD


def differences(address):
    """Between a database and the tables of `schema.py`."""
    engine = engine_at(address)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        found = compare_metadata(context, metadata)
    engine.dispose()
    return found


def test_the_comparison_would_see_a_difference(ledger, address):
    with ledger.writing() as transaction:
        transaction._connection.execute(text("DROP INDEX deleted_by_generation"))
        transaction._connection.execute(text("ALTER TABLE slices ADD COLUMN label VARCHAR"))
    assert {found[0] for found in differences(address)} == {"remove_column", "add_index"}


def test_a_newer_ledger_is_refused_and_left_alone(ledger, address):
    with ledger.writing() as transaction:
        transaction._connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = dump(address)
    with pytest.raises(RunFolderError, match=r"revision 9999, which a newer s3t wrote.*install the newer version"):
        Ledger.open(address)
    assert dump(address) == before


def test_a_database_of_something_else_is_refused_and_left_alone(address):
    engine = engine_at(address)
    with engine.connect().execution_options(s3t_writing=True) as connection, connection.begin():
        if isinstance(address, PostgresAddress):
            connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
        connection.execute(text("CREATE TABLE records (x INTEGER)"))
    engine.dispose()
    before = dump(address)
    with pytest.raises(RunFolderError, match="no ledger of s3t"):
        Ledger.open(address)
    assert dump(address) == before


@pytest.mark.parametrize("moment", ["add_column", "create_index", "create_table", "execute"])
def test_a_migration_that_fails_leaves_the_old_ledger_whole(moment, old, monkeypatch):
    from alembic import op

    before, calls, proper = dump(old), [], getattr(op, moment)

    def full(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise OperationalError("statement", {}, sqlite3.OperationalError("database or disk is full"))
        return proper(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(op, moment, full)
        with pytest.raises(StorageError, match=r"is full.*run the same command again"):
            Ledger.open(old)
    assert len(calls) == 2
    assert dump(old) == before
    Ledger.open(old).close()
    assert differences(old) == []


def test_two_processes_may_open_an_old_ledger_at_the_same_time(old):
    processes = [another_process.start("open", old) for _ in range(3)]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    assert [another_process.finish(process) for process in processes] == ["2", "2", "2"]
    assert differences(old) == []


@pytest.fixture
def old_run(text_model, tmp_path):
    """A run folder of 0.1: trained, r3 deleted, r5 accepted and not erased."""
    path = tmp_path / "run"
    with s3t.Run.create(path, recipe=tiny.recipe(text_model, training=AS_ONCE), data=tiny.text_table()) as run:
        run.train()
        run.delete(records=["r3"])
        run.repair()
    accepted_and_killed(path, "r5")
    set_back(path)
    return path


def accepted_and_killed(path, record):
    """A deletion that ends with its acceptance."""
    with pytest.MonkeyPatch.context() as patch, s3t.Run.open(path) as run:
        patch.setattr(type(run._deleter), "_after_acceptance", lambda self, generations: None)
        run.delete(records=[record])


def test_a_run_of_the_first_release_goes_on(old_run, text_model, tmp_path, state):
    for witness in state.iterdir():
        witness.unlink()  # there was none
    with s3t.Run.open(old_run) as run:
        assert [(entry.records, entry.state) for entry in run.log()] == [(0, "erased"), (1, "erased"), (1, "erased")]
        again = run.delete(records=["r3", "r5"])
        assert (again.already, again.deleted) == (("r3", "r5"), 0)
        assert run.audit().ok
        run.delete(records=["r9"])
        run.repair()
        assert run.audit(replay=3).ok
    table = tiny.text_table()
    with s3t.Run.create(
        tmp_path / "never-knew",
        recipe=tiny.recipe(text_model, training=AS_ONCE),
        data=table[~table.id.isin(["r3", "r5", "r9"])],
    ) as never_knew:
        never_knew.train()
    assert tiny.artifacts(old_run) == tiny.artifacts(never_knew.path)
    with s3t.Run.open(old_run) as run:
        assert run.status().inventory.generation == 3
    (noted,) = (path.read_text() for path in state.iterdir() if path.stem == run._description.run)
    assert noted.count("\n") == 3  # every deletion, those of the first release too


def test_the_first_release_refuses_a_run_that_was_brought_up_to_date(old_run):
    s3t.Run.open(old_run).close()
    described = json.loads((old_run / "run.json").read_text())
    assert described["format"] == 2  # it looks at nothing else before it refuses


def test_a_run_from_before_lora_was_fused_keeps_its_keys_and_its_procedure(text_model, tmp_path):
    """Format 3: its recipe knew nothing of `fused_lora`, and whatever trains it must not either."""
    path = tmp_path / "run"
    recipe = tiny.recipe(text_model, training={"fused_lora": False})
    with s3t.Run.create(path, recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    made = tiny.artifacts(path)
    stored = yaml.safe_load((path / "recipe.yaml").read_text())
    del stored["training"]["fused_lora"]
    (path / "recipe.yaml").write_text(yaml.safe_dump(stored))
    described = json.loads((path / "run.json").read_text())
    del described["check"], described["recipe_check"]
    (path / "run.json").write_text(json.dumps(described | {"format": 3}))
    with s3t.Run.open(path) as run:
        assert run.recipe.training.fused
        assert not run.recipe.training.fused_lora
        assert run.status().missing == 0
        assert run.audit(replay=3).ok
        run.delete(records=["r3"])
        run.repair()
    kept = tiny.artifacts(path).items() & made.items()
    assert kept
    with s3t.Run.create(
        tmp_path / "never-knew", recipe=recipe, data=tiny.text_table().query("id != 'r3'")
    ) as never_knew:
        never_knew.train()
    assert tiny.artifacts(path) == tiny.artifacts(never_knew.path)


def test_two_old_runs_of_one_salt_remember_each_for_itself(old_run, text_model, tmp_path):
    """A salt may be declared, and more than one run be made with it."""
    path = tmp_path / "other"
    s3t.Run.create(path, recipe=tiny.recipe(text_model, training=AS_ONCE), data=tiny.text_table()).close()
    set_back(path)
    with s3t.Run.open(old_run) as run:
        run.delete(records=["r9"])
    with s3t.Run.open(path) as other:
        assert other.delete(records=["r9"]).deleted == 1


def test_a_copy_of_an_old_run_that_is_put_back_is_recognised(old_run, tmp_path):
    shutil.copytree(old_run, tmp_path / "backup")
    with s3t.Run.open(old_run) as run:
        run.delete(records=["r9"])
    shutil.rmtree(old_run)
    shutil.copytree(tmp_path / "backup", old_run)
    with pytest.raises(s3t.errors.RestoredError):
        s3t.Run.open(old_run)
