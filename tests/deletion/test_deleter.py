"""Requests: batches, idempotency keys, deferral, repairs, and a deletion that moves nobody."""

import contextlib
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from unittest.mock import patch

import numpy as np
import pytest
from sqlalchemy.exc import OperationalError

import s3t
from s3t.core import Place, Secret
from s3t.deletion import protocol
from s3t.deletion.acceptance import Acceptor, Request
from s3t.deletion.protocol import Eraser
from s3t.errors import BlockedError, StorageError
from s3t.events import WorkStep
from s3t.ledger.history import History
from s3t.ledger.locks import hold
from s3t.results.base import utc
from s3t.run.answerer import Answerer
from s3t.run.parts import LazyWorkshop
from s3t.store.slices import Slices
from testing import tiny
from testing.accepted import accept
from testing.roles import roles
from tests.deletion.runs import names_left, patient_copy, states
from tests.run.worlds import trained_run

SECRET = Secret(salt="x")


def request(records=(), subjects=(), key=None):
    return Request.of(SECRET, records=records, subjects=subjects, key=key)


def test_batches_are_the_same_whatever_the_order_and_hold_every_name_once():
    names = [f"r{number}" for number in range(25)]
    one, other = request(names, ["p"], "k"), request(names[::-1], ["p"], "k")
    assert list(one.batches(10)) == list(other.batches(10))
    batches = list(one.batches(10))
    assert [len(batch.records) + len(batch.subjects) for batch in batches] == [10, 10, 6]
    assert frozenset().union(*(batch.records for batch in batches)) == one.records.keys()
    assert [batch.end for batch in batches] == [10, 20, 26]
    assert [len(batch.records) for batch in request(key="k").batches(10)] == [0]


def test_content_tells_records_from_subjects_and_one_set_from_another():
    contents = {request(*names).content for names in ((["a"],), ([], ["a"]), (["a", "b"],), (["a"], ["b"]))}
    assert len(contents) == 4


def test_the_same_key_does_nothing_more_and_is_answered_alike(run):
    first = run.delete(records=["r3", "r4", "nobody"], key="ticket")
    second = run.delete(records=["nobody", "r4", "r3"], key="ticket")
    assert not first.repeated
    assert second.repeated
    assert (second.deleted, second.already, second.unknown) == (first.deleted, (), ("nobody",))
    assert second.log == first.log
    assert run.status().generation == 1
    without = run.delete(records=["r3", "r4"])
    assert (without.deleted, without.already) == (0, ("r3", "r4"))


def test_a_key_that_took_nothing_stays_free(run):
    """It may have been a mistake: the id of a record where that of a subject was meant."""
    run.delete(records=["r4"])
    for nothing in (["nobody"], ["r4"], ["nobody", "r4"], ["nobody"]):
        assert not run.delete(records=nothing, key="ticket").repeated
    assert run.delete(records=["r3", "nobody"], key="ticket").deleted == 1
    for others in (["nobody"], ["r3", "r5"]):
        with pytest.raises(s3t.InputError, match="other names"):
            run.delete(records=others, key="ticket")
    assert run.status().generation == 2


def test_a_long_keyed_request_whose_first_batches_take_nothing_is_carried_out_once(run, monkeypatch):
    monkeypatch.setattr(protocol, "BATCH_NAMES", 1)
    secret = roles(run).secret
    names = sorted(["x", "y", "r3", "z"], key=lambda name: secret.token("ledger", "record", name))
    assert names.index("r3") > 0
    assert run.delete(records=names, key="ticket").deleted == 1
    again = run.delete(records=names, key="ticket")
    assert (again.deleted, again.repeated, again.already, sorted(again.unknown)) == (1, True, (), ["x", "y", "z"])
    assert run.status().generation == 1


def test_a_strict_request_deletes_nothing_unless_every_name_is_known(run):
    run.delete(records=["r4"])
    before = run.log()
    with pytest.raises(s3t.UnknownNamesError, match=r"1 of 3 names are unknown.*nobody.*nothing was changed") as caught:
        run.delete(records=["r3", "r4", "nobody"], key="ticket", strict=True)
    assert caught.value.unknown == ("nobody",)
    assert run.log() == before
    report = run.delete(records=["r3", "r4"], key="ticket", strict=True)
    assert (report.deleted, report.already) == (1, ("r4",))


def test_the_same_key_at_once_from_many_threads_counts_once(run):
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(run.delete, records=["r3", "r4"], key="ticket") for _ in range(8)]
    reports = [job.result() for job in jobs]
    assert [report.deleted for report in reports] == [2] * 8
    assert sum(not report.repeated for report in reports) == 1
    assert run.status().generation == 1


def test_a_keyed_request_that_was_cut_short_goes_on_where_it_was(run, monkeypatch):
    monkeypatch.setattr(protocol, "BATCH_NAMES", 2)
    names, accept, calls = [f"r{number}" for number in range(5)], Acceptor.accept, []

    def once(self, batches, *rest, **how):
        if calls:
            raise StorageError("the disk is full")
        calls.append(batches)
        return accept(self, batches)

    with monkeypatch.context() as patched:
        patched.setattr(Acceptor, "accept", once)
        with pytest.raises(StorageError, match=r"out of use already, the rest.*[Mm]?ake the same request again"):
            run.delete(records=names, key="ticket")
    assert run.status().records == 24 - 2
    report = run.delete(records=names, key="ticket")
    assert report.deleted == 5
    assert report.already == ()
    assert [entry.records for entry in report.log] == [2, 2, 1]
    assert all(entry.state == "erased" for entry in run.log())
    assert run.audit().ok


def test_a_refusal_at_any_look_at_the_log_after_acceptance_says_that_records_are_out_of_use(run, monkeypatch):
    log, left = History.log, [0]

    def at_last_refused(self, generations=None):
        if threading.current_thread() is not threading.main_thread():  # the one that keeps the time looks, too
            return log(self, generations)
        left[0] -= 1
        if left[0] == 0:
            raise OperationalError("SELECT", {}, sqlite3.OperationalError("the connection is lost"))
        return log(self, generations)

    monkeypatch.setattr(History, "log", at_last_refused)
    told = []
    for number in range(1, 10):
        left[0] = number
        try:
            run.delete(records=[f"r{number}"])
        except StorageError as error:
            told.append(str(error))
        else:
            break
    assert len(told) >= 2
    assert all("out of use already" in text and "nothing was changed" not in text for text in told)
    left[0] = 0
    assert [entry.state for entry in run.log()] == ["erased"] * (len(told) + 2)


def test_a_long_request_is_accepted_in_batches_and_each_slice_gets_one_version(run, monkeypatch):
    """Also by the thread that erases meanwhile, which may come between any two batches."""
    monkeypatch.setattr(protocol, "BATCH_NAMES", 4)

    def comes(event):
        if isinstance(event, WorkStep):
            roles(run).upkeep.erase_due()

    put, proper = [], Slices.put
    monkeypatch.setattr(Slices, "put", lambda *args: put.append(args[1]) or proper(*args))
    report = run.delete(records=[f"r{number}" for number in range(12)], progress=comes)
    assert [entry.records for entry in report.log] == [4, 4, 4]
    assert report.deleted == 12
    assert sorted(put) == sorted(set(put))
    assert report.state == "erased"
    assert run.audit().ok


def test_a_deletion_that_touches_no_prefix_in_service_stops_no_prediction(trained, records, monkeypatch):
    """Shard 0 serves the first slices of its first order; another order's slice loses a record meanwhile."""
    first, second = records[Place(0, 0)][:2]
    trained.delete(records=[first])  # now (1, 2, 0) serves to depth 2
    assert 0 not in trained.inventory().serving(0).prefix
    asked, predict = [], Answerer._answer

    def meanwhile(*args, **kwargs):
        asked.append(args)
        if len(asked) == 1:
            report = trained.delete(records=[second])
            assert report.depths_before == report.depths_after
            assert report.log[0].effective_at is not None  # this very prediction goes on
        return predict(*args, **kwargs)

    monkeypatch.setattr(Answerer, "_answer", meanwhile)
    trained.predict(["w1"])
    assert len(asked) == 1


@pytest.fixture
def waiting(trained_once, tmp_path):
    """A trained run that may take an hour to erase."""
    with s3t.Run.open(patient_copy(trained_once, tmp_path / "run")) as run:
        yield run


def test_with_time_to_erase_the_record_is_out_of_use_at_once_and_its_bytes_go_later(waiting):
    before = tiny.all_files(waiting.path / "slices")
    report = waiting.delete(records=["r3"])
    assert report.state == "effective"
    assert report.to_json()["erased_by"] is not None
    assert tiny.all_files(waiting.path / "slices") == before
    assert len(tiny.artifacts(waiting.path)) == 2 * (18 - report.stages_lost)  # dead artifacts do not wait
    assert waiting.audit().ok
    waiting.predict(["w1"])
    assert states(waiting) == ["effective"]
    assert waiting.delete(records=["r3", "r4"]).already == ("r3",)
    assert waiting.erase().unfinished == ()
    assert states(waiting) == ["erased"] * 2
    assert waiting.audit().ok


def test_what_waited_long_enough_is_erased_by_the_next_use(waiting, monkeypatch):
    waiting.delete(records=["r3"])
    user, now = threading.current_thread(), time.time()  # the run's own thread would erase it, too, and later
    monkeypatch.setattr("s3t.deletion.protocol.time.time", lambda: now + 3601 * (threading.current_thread() is user))
    waiting.predict(["w1"])
    assert states(waiting) == ["erased"]


FEW = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}}
"""Changes of a recipe: 2 stages."""


def test_training_erases_first_what_may_still_wait(text_model, tmp_path):
    recipe, table = tiny.recipe(text_model, deletion={"erase_within": 3600}, **FEW), tiny.text_table()
    with trained_run(tmp_path / "run", recipe, table) as run:
        run.delete(records=["r3"])
        run.repair()
        assert states(run) == ["erased"]
    with trained_run(tmp_path / "twin", tiny.recipe(text_model, **FEW), table[table.id != "r3"]) as twin:
        assert tiny.artifacts(twin.path) == tiny.artifacts(run.path)


def test_a_deletion_in_python_repairs_as_the_recipe_says_and_tells_if_it_fails(text_model, tmp_path):
    recipe = tiny.recipe(text_model, deletion={"repair": "eager"}, **FEW)
    with trained_run(tmp_path / "run", recipe, tiny.text_table()) as run:
        assert run.delete(records=["r3"], dry_run=True).repair is None
        report = run.delete(records=["r3"])
        assert len(report.repair.stages) == report.stages_lost > 0
        assert (report.repair.missing, report.repair_failed) == (0, None)
        assert run.audit().ok
        unknown = run.delete(records=["nobody"])
        assert (unknown.repair, unknown.repair_failed) == (None, None)  # nothing is missing
        with patch.object(LazyWorkshop, "train", side_effect=s3t.TrainingError("training diverged")):
            report = run.delete(records=["r4"])
        assert (report.deleted, report.state, report.repair) == (1, "erased", None)
        assert report.repair_failed.startswith("training diverged; every stage that was trained is stored")
        assert run.status().missing == report.stages_lost
        assert len(run.repair().stages) == report.stages_lost


def test_reading_erases_nothing_and_the_status_erases_what_is_due(trained):
    """What another process accepted before it was killed."""
    with s3t.Run.open(trained.path) as run:
        trained.close()  # its thread erases
        accept(run, ["r3"])
        before = tiny.all_files(run.path / "slices") | tiny.all_files(run.path / "artifacts")
        assert not run.locate(records=["r3"])[0].present
        assert run.log()[-1].state == "accepted"
        run.extension(budget=4)
        assert tiny.all_files(run.path / "slices") | tiny.all_files(run.path / "artifacts") == before
        run.status()
        assert run.log()[-1].state == "erased"


def test_a_run_without_its_secret_answers_and_does_nothing_else(trained):
    trained.delete(records=["r3"])
    before = trained.predict(["w1 w30"])
    trained.destroy_key()
    assert not (trained.path / "secret").exists()
    with s3t.Run.open(trained.path) as run:
        after = run.predict(["w1 w30"])
        assert np.array_equal(after.logits, before.logits)
        for do in (lambda: run.delete(records=["r4"]), run.train, run.audit, lambda: run.locate(records=["r4"])):
            with pytest.raises(s3t.KeyDestroyedError, match="removing the whole run"):
                do()
        assert run.log()[-1].state == "erased"


def test_who_has_the_run_open_still_deletes_nothing_once_the_secret_is_destroyed(run):
    with s3t.Run.open(run.path) as other:
        run.destroy_key()
        with pytest.raises(s3t.KeyDestroyedError):  # if it were killed now, nobody could erase what it accepted
            other.delete(records=["r3"])
        assert other.status().generation == 0


def test_what_is_accepted_while_the_secret_is_being_destroyed_is_erased_first(run, monkeypatch):
    finish, noted = Eraser.finish, []

    def and_another_comes(self, **options):
        finish(self, **options)
        if options.get("everything") and not noted:  # and not the thread that keeps the time
            noted.extend(accept(run, ["r3"]))

    monkeypatch.setattr(Eraser, "finish", and_another_comes)
    run.destroy_key()
    assert [result.generation for result in noted] == [1]
    with roles(run).ledger.reading() as transaction:
        assert not transaction.to_erase().records
    assert "r3" not in names_left(run.path)


def test_that_it_is_accepted_is_noted_before_it_is_reported_whoever_holds_the_lock(run):
    roles(run).deleter.patience = 0.0
    with s3t.Run.open(run.path) as other, hold(roles(other).lock):
        report = run.delete(records=["r3"])
    assert report.state == "effective"  # it waits only so long for who is erasing
    assert report.log[0].received_at <= report.log[0].accepted_at


def test_a_deadline_counts_from_when_the_request_was_received(patient, monkeypatch):
    """What is promised within an hour is not an hour after a commit that took half of it."""
    accept = Acceptor.accept

    def late(acceptor, batches, *rest, **how):
        requests = [replace(batch.request, received=batch.request.received - 1800) for batch in batches]
        return accept(acceptor, [replace(batch, request=each) for batch, each in zip(batches, requests, strict=True)])

    monkeypatch.setattr(Acceptor, "accept", late)
    report = patient.delete(records=["r3"])
    (entry,) = report.log
    received = entry.received_at.timestamp()
    assert 1800 <= entry.accepted_at.timestamp() - received < 1900
    by = datetime.fromisoformat(report.to_json()["erased_by"]).timestamp()
    assert by == pytest.approx(received + 3600, abs=0.001)
    assert utc(roles(patient).ledger.snapshot().pending_since) == entry.received_at
    assert not in_time(patient, received + 3599)
    assert in_time(patient, received + 3600.001)


def in_time(run, now):
    """Whether the run rewrites its slices at a time."""
    with patch("s3t.deletion.protocol.time.time", lambda: now):
        return roles(run).eraser.due(roles(run).ledger.snapshot())


def test_a_reader_of_the_database_delays_erasure_and_fails_no_deletion(run, monkeypatch):
    monkeypatch.setattr("s3t.ledger.ledger._CHECKPOINT_SECONDS", 0.1)
    roles(run).deleter.patience = 0.2
    with s3t.Run.open(run.path) as other, roles(other).ledger.reading() as transaction:
        transaction.history.log()
        report = run.delete(records=["r3"])
        assert (report.state, report.log[0].erased_at) == ("effective", None)
        with pytest.raises(BlockedError, match="a reader still uses them"):
            run.erase()
    run.erase()
    assert run.log()[-1].erased_at is not None


def test_a_deletion_waits_for_a_reader_of_the_database(run, monkeypatch):
    monkeypatch.setattr("s3t.ledger.ledger._CHECKPOINT_SECONDS", 0.1)
    roles(run).deleter.patience = 60.0
    with s3t.Run.open(run.path) as other, contextlib.ExitStack() as reading:
        reading.enter_context(roles(other).ledger.reading()).history.log()
        wipe = type(roles(run).ledger).wipe

        def at_the_second(ledger):
            """The reader is gone when the ledger is wiped again."""
            done = wipe(ledger)
            reading.close()
            return done

        monkeypatch.setattr("s3t.ledger.Ledger.wipe", at_the_second)
        assert run.delete(records=["r3"]).state == "erased"
