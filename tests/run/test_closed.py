"""A run that was closed, or dropped without that: nothing of it is waited for, and it is used no more."""

import gc
import time

import pytest
from sqlalchemy import select

import s3t
from s3t.core import Place
from s3t.deletion.withdrawal import ExportMemory
from s3t.ledger import Ledger, schema
from s3t.run.parts import LazyWorkshop
from testing import tiny
from testing.roles import roles

pytestmark = pytest.mark.integration


def sessions(run):
    """How many the ledger knows, alive or not: as another process would wait for them."""
    with roles(run).ledger.reading() as transaction:
        return len(transaction.rows.connection.execute(select(schema.sessions)).all())


def all_but_the_ledger(path):
    """A thread that was reading when the run was closed lets go of SQLite's log a moment later, and that goes."""
    return {name: content for name, content in tiny.all_files(path).items() if not name.startswith("ledger.sqlite")}


USES = {
    "status": lambda run: run.status(),
    "predict": lambda run: run.predict(["w1"]),
    "evaluate": lambda run: run.evaluate(tiny.text_table()),
    "delete": lambda run: run.delete(records=["r3"]),
    "erase": lambda run: run.erase(),
    "train": lambda run: run.train(),
    "extend": lambda run: run.extend(budget=4),
    "audit": lambda run: run.audit(),
    "locate": lambda run: run.locate(records=["r3"]),
    "log": lambda run: run.log(),
    "destroy": lambda run: run.destroy_key(),
}


def test_who_uses_it_after_it_was_closed_is_told_to_open_it_again(trained):
    trained.predict(["w1"])
    trained.close()
    before = all_but_the_ledger(trained.path)
    for use in USES.values():
        with pytest.raises(s3t.ClosedError, match=r"s3t\.Run\.open"):
            use(trained)
    assert all_but_the_ledger(trained.path) == before
    with s3t.Run.open(trained.path) as again:
        assert sessions(again) == 0
        assert [entry.state for entry in again.delete(records=["r3"]).log] == ["erased"]


def test_one_that_is_dropped_is_waited_for_no_more(trained):
    trained.close()
    run = s3t.Run.open(trained.path)
    run.predict(["w1"])
    with s3t.Run.open(trained.path) as other:
        assert sessions(other) == 1
        del run
        end = time.monotonic() + 10
        while sessions(other):
            gc.collect()  # again: in just that moment the thread may have had hold of the run
            assert time.monotonic() < end
            time.sleep(0.02)


def test_a_model_that_is_let_go_of_just_when_a_deletion_comes_is_no_error(trained, monkeypatch):
    """Another thread closes the run."""
    snapshot, loaded = roles(trained).ledger.snapshot(), []
    workshop = roles(trained).loaded.get()
    monkeypatch.setattr(LazyWorkshop, "_made", property(lambda lazy: loaded.pop(0)), raising=False)
    for act in (
        lambda: roles(trained).loaded.forget_stale(snapshot),
        lambda: roles(trained).eraser.memory.forget([Place(0, 0)]),
    ):
        loaded[:] = [workshop, None]
        act()
        assert loaded == [None]  # it was read once


def test_a_run_whose_roles_cannot_be_made_leaves_its_ledger_closed(trained, monkeypatch):
    closed, close = [], Ledger.close

    def refused(_run):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(ExportMemory, "of_run", refused)
    monkeypatch.setattr(Ledger, "close", lambda ledger: [closed.append(ledger), close(ledger)])
    with pytest.raises(OSError, match="Input/output error"):
        s3t.Run.open(trained.path)
    assert len(closed) == 1
