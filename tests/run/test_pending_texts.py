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
from testing.language import language_recipe, make_language_model, prompt_table
from testing.roles import roles
from tests.run.test_overtaken import state_of
from tests.run.worlds import SMALL, trained_run

PROMPTS = ["w1 w2", "w3"]
HOW = {"max_new_tokens": 9, "temperature": 2.0, "seed": 3}


@pytest.fixture(scope="module")
def folder(state_of_all, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    recipe = language_recipe(make_language_model(folder / "model"), **SMALL)
    trained_run(folder / "run", recipe, prompt_table()).close()
    return folder / "run"


@pytest.fixture
def run(folder, tmp_path, monkeypatch):
    """Its threads look at the ledger an hour later; tests look in their place."""
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
    with s3t.Run.open(tiny.copy_run(folder, tmp_path / "run")) as run:
        yield run


@pytest.fixture
def other(run):
    """The run as another process has it open, which waits for nobody."""
    with s3t.Run.open(run.path) as other:
        roles(other).deleter.patience = 0.0
        yield other


def held(run, prompts=PROMPTS):
    writer = run.parts.writer
    return writer.hold(writer.checked(prompts), Sampling(**HOW))


def written(texts):
    """The texts, a step a turn."""
    found, finished = ["" for _ in PROMPTS], False
    while not finished:
        pieces, finished = texts.turn(0)
        for piece in pieces:
            found[piece.text] += piece.added
    return tuple(found)


@pytest.mark.integration
def test_texts_written_in_turns_are_those_of_one_go(run):
    with held(run) as texts:
        assert written(texts) == run.generate(PROMPTS, **HOW).texts
        assert texts.prompt_tokens == 3
        texts.stop()


def test_two_requests_take_turns_with_the_model_and_leave_each_other_alone(run):
    one, two = held(run), held(run, ["w4 w5"])
    texts, finished = {one: ["", ""], two: [""]}, {one: False, two: False}
    while not all(finished.values()):
        for each in (one, two):
            pieces, finished[each] = each.turn(0) if not finished[each] else ((), True)
            for piece in pieces:
                texts[each][piece.text] += piece.added
    assert tuple(texts[one]) == run.generate(PROMPTS, **HOW).texts
    assert tuple(texts[two]) == run.generate(["w4 w5"], **HOW).texts
    for each in (one, two):
        each.stop()
        each.release()


def test_between_turns_another_thread_has_the_model(run):
    with held(run) as texts:
        _, finished = texts.turn(0)
        assert not finished
        taken = []
        thread = threading.Thread(target=lambda: taken.append(ALONE.acquire(timeout=20)) or ALONE.release())
        thread.start()
        thread.join()
        assert taken == [True]
        texts.stop()


@pytest.mark.parametrize(("ends", "between"), [(("stop", "release"), "accepted"), (("release", "stop"), "effective")])
def test_a_deletion_is_effective_when_all_has_left_and_erased_when_computing_has_stopped_too(run, other, ends, between):
    texts = held(run)
    texts.turn(0)
    assert texts.may_leave()
    other.delete(records=["r3"])
    roles(run).presence.look()
    assert texts.overtaken
    assert not texts.may_leave()
    assert state_of(other) == "accepted"
    getattr(texts, ends[0])()
    roles(run).presence.look()
    assert state_of(other) == between
    getattr(texts, ends[1])()
    roles(run).presence.look()
    assert state_of(other) == "erased"


def test_nothing_of_a_turn_leaves_that_a_deletion_has_overtaken(run, other):
    """This process has not looked at the ledger; the turn asks it."""
    with held(run) as texts:
        texts.turn(0)
        other.delete(records=["r3"])
        assert texts.may_leave()  # what was written before: the deletion waits for it
        with pytest.raises(OvertakenError):
            texts.turn(0)
        assert not texts.may_leave()


def test_texts_that_have_stopped_keep_nothing_that_they_were_written_with(run):
    texts = held(run)
    texts.turn(0)
    block = weakref.ref(texts._steps.gi_frame.f_locals["chains"][0][0])
    roles(run).loaded.get().resident.keep(set())
    texts.stop()
    gc.collect()
    assert block() is None
    texts.release()


def test_texts_of_a_closed_run_do_not_go_on(run):
    texts = held(run)
    texts.turn(0)
    run.close()
    assert not texts.may_leave()
    with pytest.raises(OvertakenError):
        texts.turn(0)
    texts.release()
    with pytest.raises(ClosedError):
        held(run)


def test_a_prompt_that_is_too_long_lets_go_of_the_model(run):
    with held(run, ["w1 " * 60]) as texts:
        with pytest.raises(s3t.InputError, match="give 1 to 47"):
            texts.turn(0)
        with held(run) as others:
            assert written(others) == run.generate(PROMPTS, **HOW).texts
            others.stop()
