"""Texts that are written in turns and held: deletions wait for who computes and for who sends, and for nobody else."""

import gc
import threading
import weakref

import pytest

import s3t
from s3t.errors import ClosedError, OvertakenError
from s3t.models.base import ALONE
from s3t.prediction.generation import Sampling
from testing import tiny
from testing.roles import roles
from tests.run.test_overtaken import state_of

PROMPTS = ["w1 w2", "w3"]
HOW = {"max_new_tokens": 9, "temperature": 2.0, "seed": 3}


@pytest.fixture
def run(language_once, tmp_path, monkeypatch):
    """Its threads look at the ledger an hour later; tests look in their place."""
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
    with s3t.Run.open(tiny.copy_run(language_once, tmp_path / "run")) as run:
        yield run


@pytest.fixture
def other(run):
    """The run as another process has it open, which waits for nobody."""
    with s3t.Run.open(run.path) as other:
        roles(other).deleter.patience = 0.0
        yield other


def held(run, prompts=PROMPTS, batches=()):
    writer = run.parts.writer
    return writer.hold(writer.checked(prompts), Sampling(**HOW), batches)


def written(*held):
    """The texts of requests at their batches, a step a turn."""
    found, going = {texts: [""] * len(texts.numbers) for _, texts in held}, {texts: batch for batch, texts in held}
    while going:
        for batch in dict.fromkeys(going.values()):
            for texts, pieces, finished in batch.turn(0):
                for piece in pieces:
                    found[texts][piece.text] += piece.added
                if finished:
                    del going[texts]
    return [tuple(texts) for texts in found.values()]


def test_a_request_joins_texts_under_way_and_each_is_written_as_if_alone(run):
    batch, one = held(run)
    begun = "".join(piece.added for _, pieces, _ in batch.turn(0) for piece in pieces if piece.text == 0)
    same, two = held(run, ["w4 w5"], [batch])
    assert same is batch
    assert one.prompt_tokens == 3
    (first, other), (late,) = written((batch, one), (batch, two))
    assert (begun + first, late) == (run.generate(PROMPTS, **HOW).texts[0], *run.generate(["w4 w5"], **HOW).texts)
    assert other
    for each in (one, two):
        each.release()


def test_a_request_that_leaves_ends_its_own_texts_alone(run):
    batch, one = held(run)
    _, two = held(run, ["w4 w5"], [batch])
    batch.turn(0)
    batch.leave(one)
    assert [texts for texts, _, _ in batch.turn(0)] == [two]
    written((batch, two))
    assert not batch.takes(roles(run).ledger.snapshot(), [])  # it has stopped
    for each in (one, two):
        each.release()


def test_two_batches_take_turns_with_the_model_and_leave_each_other_alone(run):
    both = [held(run), held(run, ["w4 w5"])]
    assert written(*both) == [run.generate(prompts, **HOW).texts for prompts in (PROMPTS, ["w4 w5"])]
    for _, request in both:
        request.release()


def test_between_turns_another_thread_has_the_model(run):
    batch, texts = held(run)
    with texts:
        ((_, _, finished),) = batch.turn(0)
        assert not finished
        taken = []
        thread = threading.Thread(target=lambda: taken.append(ALONE.acquire(timeout=20)) or ALONE.release())
        thread.start()
        thread.join()
        assert taken == [True]
        batch.stop()


@pytest.mark.parametrize(("ends", "between"), [(("stop", "release"), "accepted"), (("release", "stop"), "effective")])
def test_a_deletion_is_effective_when_all_has_left_and_erased_when_computing_has_stopped_too(run, other, ends, between):
    batch, texts = held(run)
    _, joined = held(run, ["w4 w5"], [batch])
    end = {"stop": [batch.stop], "release": [texts.release, joined.release]}
    batch.turn(0)
    assert texts.may_leave()
    assert joined.may_leave()
    other.delete(records=["r3"])
    roles(run).presence.look()
    assert batch.overtaken
    assert not texts.may_leave()
    assert not joined.may_leave()
    assert state_of(other) == "accepted"
    for last in (False, True):
        for each in end[ends[last]]:
            roles(run).presence.look()
            assert state_of(other) == (between if last else "accepted")
            each()
    roles(run).presence.look()
    assert state_of(other) == "erased"


@pytest.mark.parametrize("repaired", [False, True])
def test_nobody_joins_texts_that_a_deletion_has_overtaken(run, other, repaired):
    """This process has not looked at the ledger; a repair gives the same members, trained on other records."""
    batch, texts = held(run)
    batch.turn(0)
    other.delete(records=["r3"])
    if repaired:
        other.repair()
    fresh, late = held(run, ["w4 w5"], [batch])
    assert fresh is not batch
    for each in (batch, fresh):
        each.stop()
    for each in (texts, late):
        each.release()


def test_nothing_of_a_turn_leaves_that_a_deletion_has_overtaken(run, other):
    """This process has not looked at the ledger; the turn asks it."""
    batch, texts = held(run)
    with texts:
        batch.turn(0)
        other.delete(records=["r3"])
        assert texts.may_leave()  # what was written before: the deletion waits for it
        with pytest.raises(OvertakenError):
            batch.turn(0)
        assert not texts.may_leave()


def test_texts_that_have_stopped_keep_nothing_that_they_were_written_with(run):
    batch, texts = held(run)
    batch.turn(0)
    block = weakref.ref(batch._batch._chains[0][0])
    roles(run).loaded.get().resident.keep(set())
    batch.stop()
    gc.collect()
    assert block() is None
    texts.release()


def test_texts_of_a_closed_run_do_not_go_on(run):
    batch, texts = held(run)
    batch.turn(0)
    run.close()
    assert not texts.may_leave()
    with pytest.raises(OvertakenError):
        batch.turn(0)
    texts.release()
    with pytest.raises(ClosedError):
        held(run)


def test_a_prompt_that_is_too_long_lets_go_of_the_model_and_of_deletions(run):
    with pytest.raises(s3t.InputError, match="give 1 to 47"):
        held(run, ["w1 " * 60])
    batch, texts = held(run)
    with pytest.raises(s3t.InputError, match="give 1 to 47"):
        held(run, ["w1 " * 60], [batch])
    with texts:
        assert written((batch, texts)) == [run.generate(PROMPTS, **HOW).texts]
    assert not roles(run).presence._running
