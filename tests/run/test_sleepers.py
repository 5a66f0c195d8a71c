"""A process that is stopped in the midst of its work holds up what a deletion can promise, and never breaks it."""

import time

import pytest

import s3t
from s3t.core import Place
from s3t.deletion.protocol import PATIENCE_SECONDS
from testing import tiny
from testing.roles import roles
from tests.run.meanwhile import until
from tests.run.sleeper import Sleeper

pytestmark = pytest.mark.integration


def states(run):
    return [entry.state for entry in run.log()]


def test_a_deletion_waits_for_a_stopped_prediction_only_so_long(trained):
    sleeper = Sleeper(trained.path, work="predict")
    before = roles(trained).ledger.snapshot().stages
    started = time.monotonic()
    report = trained.delete(records=["r3"])
    seconds = time.monotonic() - started
    assert report.deleted == 1
    assert [entry.state for entry in report.log] == ["accepted"]
    assert PATIENCE_SECONDS <= seconds < PATIENCE_SECONDS + 10
    assert states(trained) == ["erased", "accepted"]  # what it has in memory has not left yet
    assert trained.predict(["w1"]).generation == 1  # who is awake goes on: no lock is held
    tainted = set(before.values()) - set(roles(trained).ledger.snapshot().stages.values())
    said = sleeper.wake()
    until(lambda: "accepted" not in states(trained))
    assert said["generation"] == 1
    assert tainted
    assert not tainted & set(said["keys"])
    assert states(trained) == ["erased", "erased"]
    assert trained.audit().ok


def test_what_a_stopped_training_makes_of_a_deleted_record_is_thrown_away(text_model, tmp_path):
    recipe, table = tiny.recipe(text_model), tiny.text_table()
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=table)
    sleeper = Sleeper(run.path, work="train")  # at stage (0,) of shard 0
    record = next(name for name in table.id if run.locate(records=[name])[0].places == (Place(0, 0),))
    run.delete(records=[record])
    assert states(run) == ["erased", "effective"]  # nothing of it was in service, but somebody has it in memory
    said = sleeper.wake()
    assert said["discarded"] >= 1
    assert states(run) == ["erased", "erased"]
    run.repair()
    assert run.audit().ok
    never_knew = s3t.Run.create(tmp_path / "never-knew", recipe=recipe, data=table[table.id != record])
    never_knew.train()
    assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)
