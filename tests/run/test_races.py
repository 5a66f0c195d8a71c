"""Deletion while something else is going on: training, prediction, an audit, another thread, a full disk."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
import torch
from sqlalchemy import event

import s3t
from s3t.core import Place
from s3t.ledger import Session, schema
from s3t.models.base import load_base
from s3t.results.base import utc
from s3t.run.upkeep import Upkeep
from s3t.store.artifacts import Artifacts
from s3t.store.disk import temporary_name
from testing import tiny
from testing.accepted import accept
from testing.roles import roles
from testing.served import wait_for
from tests.run.meanwhile import Meanwhile
from tests.run.worlds import records_by_slice, trained_run

pytestmark = pytest.mark.integration


def test_no_stage_is_trained_from_a_slice_that_still_holds_an_accepted_record(text_model, tmp_path, monkeypatch):
    """A deletion is accepted as training begins, and erased only once another stage is stored."""
    recipe, table = tiny.recipe(text_model), tiny.text_table()
    record = records_by_slice(recipe, table)[0, 0][0]  # the first stage trains on it
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=table)
    erase_all, waited = Upkeep.erase_all, []

    def erase_late(self):
        now = roles(run).ledger.snapshot()
        if now.generation == 0:
            accept(run, [record])
        if now.stages:
            erase_all(self)
        waited.append(now.slices[Place(0, 0)].pending)

    monkeypatch.setattr(Upkeep, "erase_all", erase_late)
    run.train()
    assert any(waited)
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[table.id != record])
    assert run.audit().ok
    assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)


def test_a_stage_that_another_stored_before_the_claim_is_not_trained_again(text_model, tmp_path, monkeypatch):
    """Who looks, and claims a while later, finds it stored and its claim free."""
    run = s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table())
    claimed, progress = roles(run).presence.claimed, Meanwhile()

    def late(stage, **options):
        monkeypatch.undo()
        with s3t.Run.open(run.path) as other:
            other.train()
        return claimed(stage, **options)

    monkeypatch.setattr(roles(run).presence, "claimed", late)
    report = run.train(progress=progress)
    assert (report.stages, report.discarded, report.missing) == ((), 0, 0)
    assert progress.heard(s3t.WorkStep) == []


def test_a_prediction_whose_artifacts_vanish_under_its_hands_is_made_again(trained, monkeypatch):
    calls, get = [], Artifacts.get

    def erased_first(self, shard, key):
        if not calls:
            calls.append(key)
            with s3t.Run.open(trained.path) as other:
                other.delete(records=["r3", "r4", "r5"])
        return get(self, shard, key)

    monkeypatch.setattr(Artifacts, "get", erased_first)
    assert trained.predict(["w1 w30"]).generation == 1


def test_many_threads_may_predict_with_one_run(trained):
    expected = trained.predict(["w1 w30"]).logits
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: trained.predict(["w1 w30"]).logits, range(20)))
    assert all(np.array_equal(answer, expected) for answer in answers)


def test_deletion_on_an_open_run_sweeps_what_a_killed_trainer_left(trained):
    """A library user may never open the run again."""
    left = trained.path / "artifacts" / "shard-000" / ("0" * 64 + ".safetensors")
    left.write_bytes(b"trained on r3")
    killed = Session(process=999999999)
    with roles(trained).ledger.writing() as transaction:
        transaction.sessions.enter(killed, generation=0)
        transaction.rows.insert(
            schema.claims,
            [{"shard": 0, "prefix": "9", "session": killed.name, "key": "0" * 64, "device": "cpu", "since": 0.0}],
        )
    part = trained.path / "tmp" / temporary_name(999999999)
    part.write_bytes(b"half an artifact")
    trained.delete(records=["r3"])
    assert not left.exists()
    assert not part.exists()


@pytest.mark.parametrize(
    ("change", "restore"),
    [
        (lambda: torch.set_float32_matmul_precision("medium"), lambda: torch.set_float32_matmul_precision("highest")),
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
        (lambda: torch.set_num_threads(1), lambda: torch.set_num_threads(torch.get_num_threads())),
        (lambda: torch.manual_seed(99), lambda: None),
    ],
    ids=["matmul precision", "default dtype", "threads", "seed"],
)
def test_what_torch_was_told_elsewhere_changes_no_stage(change, restore, trained):
    change()
    try:
        assert trained.audit(replay=3).ok
    finally:
        restore()


def test_models_that_another_thread_loads_change_no_stage(text_model, tmp_path):
    """Loading seeds the process's generators, and for a moment transformers lets nothing be drawn."""
    recipe = tiny.recipe(text_model, adapter={"dropout": 0.2})
    trained, run = (
        s3t.Run.create(tmp_path / name, recipe=recipe, data=tiny.text_table()) for name in ("alone", "beside")
    )
    trained.train()
    done = threading.Event()

    def load():
        while not done.is_set():
            load_base(text_model, run.recipe, labels=3)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        run.train()
    finally:
        done.set()
        loading.join()
    assert tiny.artifacts(run.path) == tiny.artifacts(trained.path)


def test_training_that_diverges_stores_nothing_and_says_what_to_lower(text_model, tmp_path):
    training = {"learning_rate": 1000, "weight_decay": 1000, "epochs": 6}
    run = s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model, training=training), data=tiny.text_table())
    with pytest.raises(s3t.TrainingError, match="learning_rate"):
        run.train()
    assert tiny.artifacts(run.path) == {}


def test_a_salt_with_line_ends_is_kept_as_it_is_and_another_is_refused(text_model, tmp_path):
    recipe = tiny.recipe(text_model, partition={"salt": "a salt\r\nof two lines\n"})
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table())
    assert run.delete(records=["r0"]).deleted == 1
    run.close()
    (tmp_path / "run" / "secret").write_text("another")
    with pytest.raises(s3t.IntegrityError, match="not the secret"):
        s3t.Run.open(tmp_path / "run")


def test_no_prediction_that_begins_after_accepted_uses_the_record_however_slow_the_disk_is(trained):
    """By the log's own times: the disk takes its time between what acceptance writes and its commit."""
    answers, done = [], threading.Event()

    def ask(run):
        while not done.is_set():
            began = utc(time.time())
            members = run.predict(["w1 w2"]).members
            answers.append((began, {member.key for member in members}))

    with s3t.Run.open(trained.path) as asked, s3t.Run.open(trained.path) as deleting:
        before = {member.key for member in asked.predict(["w1 w2"]).members}
        asker = threading.Thread(target=ask, args=[asked])
        accept = roles(deleting).deleter._acceptor.accept

        def until_somebody_asks(_connection):
            from_now = utc(time.time()) + timedelta(seconds=1)
            wait_for(lambda: any(began > from_now for began, _ in answers))

        def slow(batches, *incoming, **how):
            event.listen(roles(deleting).ledger.engine, "commit", until_somebody_asks, once=True)
            return accept(batches, *incoming, **how)

        roles(deleting).deleter._acceptor.accept = slow
        asker.start()
        try:
            (entry,) = deleting.delete(records=["r3"]).log
            wait_for(lambda: any(began >= entry.accepted_at for began, _ in answers))
        finally:
            done.set()
            asker.join()
        after = {member.key for member in asked.predict(["w1 w2"]).members}
    tainted = before - after
    late = [began for began, keys in answers if keys & tainted and began > entry.received_at + timedelta(seconds=0.2)]
    assert tainted
    assert late  # some began while it was written
    assert max(late) < entry.accepted_at <= entry.effective_at
    assert entry.accepted_at - entry.received_at > timedelta(seconds=1)
    assert any(began >= entry.accepted_at for began, _ in answers)
