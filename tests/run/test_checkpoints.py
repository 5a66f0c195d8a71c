"""A training that is killed goes on from its last checkpoint, and what it makes has the bytes of an undisturbed one."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

import s3t
from s3t.events import EpochEnd, StageEnd, WorkStep
from s3t.ledger.state import Checkpoint
from testing import tiny
from testing.roles import roles

OFTEN = {"epochs": 3, "checkpoint_minutes": 1e-9}
ONE_STAGE = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}, "adapter": {"dropout": 0.2}}


class Killed(BaseException):
    """In the place of a signal."""


def created(folder, model, **training):
    recipe = tiny.recipe(model, **ONE_STAGE, training=OFTEN | training)
    return s3t.Run.create(folder, recipe=recipe, data=tiny.text_table())


def trained_to(run, step):
    """Train, and be killed at a step."""
    left = [step]

    def act(event):
        if isinstance(event, WorkStep) and event.count:
            left[0] -= 1
            if not left[0]:
                raise Killed

    with pytest.raises(Killed):
        run.train(progress=act)


def kept(run):
    with roles(run).ledger.reading() as transaction:
        return transaction.rows.all(Checkpoint)


def stored(run, each):
    return (run.path / "artifacts" / f"shard-{each.stage.shard:03}" / f"{each.key}.safetensors").exists()


@pytest.fixture(scope="module")
def whole(text_model, tmp_path_factory):
    """Artifacts of a run that nothing disturbed, without a checkpoint."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with created(folder, text_model, checkpoint_minutes=None) as run:
        run.train()
        assert kept(run) == []
    return tiny.artifacts(folder)


@pytest.mark.parametrize("step", [5, 13])
def test_it_goes_on_and_the_bytes_are_the_same(step, whole, text_model, tmp_path):
    with created(tmp_path / "run", text_model) as run:
        trained_to(run, step)
        (before,) = kept(run)
        assert stored(run, before)
    steps, ends = [], []
    with s3t.Run.open(tmp_path / "run") as run:
        assert kept(run) == [before]  # the opening has swept
        assert run.audit().ok

        def hear(event):
            if isinstance(event, WorkStep) and event.count:
                steps.append(event)
            elif isinstance(event, EpochEnd | StageEnd):
                ends.append(event)

        done = run.train(progress=hear)
        assert run.audit().ok
        assert kept(run) == []
    assert tiny.artifacts(tmp_path / "run") == whole
    missing = 2 if step <= 9 else 1
    assert sum(each.count for each in steps) == 3 * (11 + 24 if missing == 2 else 24)  # the bar is whole
    assert len(steps) < (27 if missing == 2 else 18)
    assert [each.epoch for each in ends if isinstance(each, EpochEnd)] == [1, 2, 3] * missing
    assert [len(each.losses) for each in done.summaries] == [3] * missing


def test_a_deletion_takes_the_checkpoints_of_what_its_slice_trained_and_no_others(text_model, tmp_path):
    with created(tmp_path / "run", text_model, epochs=6) as run:
        trained_to(run, 3)
        (kept_first,) = kept(run)
        first = kept_first.stage.prefix[0]
        where = {each.name: each.places[0].slice for each in run.locate(records=list(tiny.text_table().id))}
        inside = next(name for name, slice in where.items() if slice == first)
        outside = next(name for name, slice in where.items() if slice != first)
        run.delete(records=[outside])
        assert kept(run) == [kept_first]
        assert stored(run, kept_first)
        run.delete(records=[inside])
        assert kept(run) == []
        assert not stored(run, kept_first)
        assert all(entry.erased_at for entry in run.log())
        run.train()
    without = tiny.text_table()
    without = without[~without.id.isin([inside, outside])]
    recipe = tiny.recipe(text_model, **ONE_STAGE, training=OFTEN | {"epochs": 6})
    with s3t.Run.create(tmp_path / "never", recipe=recipe, data=without) as never:
        never.train()
    assert tiny.artifacts(tmp_path / "run") == tiny.artifacts(tmp_path / "never")


def test_one_of_a_stage_that_is_not_trained_any_more_goes(text_model, tmp_path):
    """What was added meanwhile makes other stages of the same prefixes."""
    with created(tmp_path / "run", text_model) as run:
        trained_to(run, 3)
        (before,) = kept(run)
        run.add(tiny.text_table(2, seed=9).assign(id=["new0", "new1"]))
        run.train()
        assert kept(run) == []
    with s3t.Run.open(tmp_path / "run"):
        assert not stored(run, before)


@pytest.mark.parametrize("when", ["put", pytest.param("announced", marks=pytest.mark.integration)])
def test_a_checkpoint_that_a_deletion_overtakes_is_not_kept(when, text_model, tmp_path, monkeypatch):
    ids, deleted = list(tiny.text_table().id[:12]), []

    def act(name, content):
        if when == "put":
            put(name, content)
        with s3t.Run.open(tmp_path / "run") as other:
            deleted.append(other.delete(records=ids))
        if when == "announced":
            put(name, content)

    def killed_at_the_next_step(event):
        if deleted and isinstance(event, WorkStep):
            raise Killed

    with created(tmp_path / "run", text_model) as run:
        put = roles(run).store.blobs.put
        monkeypatch.setattr(roles(run).store.blobs, "put", act)
        with pytest.raises(Killed):
            run.train(progress=killed_at_the_next_step)
        monkeypatch.undo()
        assert kept(run) == []
    with s3t.Run.open(tmp_path / "run") as run:
        assert tiny.artifacts(tmp_path / "run") == {}
        assert all(entry.erased_at for entry in run.log())


def of_other_slices(run, each):
    with roles(run).ledger.writing() as transaction:
        transaction.rows.discard([each])
        transaction.rows.add(replace(each, stage_key="0" * 64))


def damaged(run, each):
    (run.path / f"artifacts/shard-000/{each.key}.safetensors").write_bytes(b"1")


def gone(run, each):
    (run.path / f"artifacts/shard-000/{each.key}.safetensors").unlink()


def test_the_time_before_the_kill_counts(text_model, tmp_path):
    with created(tmp_path / "run", text_model) as run:
        trained_to(run, 5)
        (before,) = kept(run)
        with roles(run).ledger.writing() as transaction:
            transaction.rows.discard([before])
            transaction.rows.add(replace(before, seconds=before.seconds + 1000))
        ends = []
        run.train(progress=lambda event: ends.append(event) if isinstance(event, StageEnd) else None)
        assert 1000 < ends[0].seconds < 1100
        with roles(run).ledger.reading() as transaction:
            assert transaction.history.durations()[before.stage] == pytest.approx(ends[0].seconds, abs=5)


@pytest.mark.parametrize("spoil", [of_other_slices, damaged, gone])
def test_one_that_is_not_the_stages_own_and_whole_is_left_aside(spoil, whole, text_model, tmp_path):
    with created(tmp_path / "run", text_model) as run:
        trained_to(run, 5)
        spoil(run, *kept(run))
        steps = []
        run.train(progress=lambda event: steps.append(event) if getattr(event, "count", 0) else None)
        assert len(steps) == 9 + 18
        assert run.audit().ok
    assert tiny.artifacts(tmp_path / "run") == whole


def test_a_stage_whose_checkpoints_cannot_be_stored_is_trained_all_the_same(whole, text_model, tmp_path, monkeypatch):
    def act(name, content):
        if b'"generator"' in content:
            put(name, content)  # whole, but nobody heard so
            raise OSError(errno.ENOSPC, "No space left on device", name)
        put(name, content)

    with created(tmp_path / "run", text_model) as run:
        put = roles(run).store.blobs.put
        monkeypatch.setattr(roles(run).store.blobs, "put", act)
        run.train()
        assert kept(run) == []
        assert run.audit().ok
    assert tiny.artifacts(tmp_path / "run") == whole


def test_a_damaged_row_of_a_checkpoint_is_refused_and_reconciled(text_model, tmp_path):
    with created(tmp_path / "run", text_model) as run:
        trained_to(run, 5)
        with roles(run).ledger.writing() as transaction:
            transaction.rows.connection.exec_driver_sql("UPDATE checkpoints SET prefix = '1'")
        with pytest.raises(s3t.IntegrityError, match="reconcile"):
            run.delete(records=["r3"])
    s3t.Run.reconcile(tmp_path / "run")
    assert tiny.artifacts(tmp_path / "run") == {}
    with s3t.Run.open(tmp_path / "run") as run:
        run.delete(records=["r3"])
        assert not run.audit().mismatches
