"""Answers that a server is sending: however a client or a lease ends, nothing more leaves, and no deletion waits on.

Runs and batches are real; the connection is a function, so that each moment can be chosen.
"""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import s3t
from s3t.ledger.sessions import LEASE_SECONDS
from s3t_server import answering
from s3t_server import batching as server_batching
from s3t_server.answering import ABORT, PendingResponse
from s3t_server.batching import Batcher
from s3t_server.callers import Caller
from s3t_server.guard import NotTaken
from s3t_server.problems import Refused
from s3t_server.writing import Order
from testing import tiny
from testing.roles import roles

PARTS = 3
NOBODY = Caller("", frozenset())


@pytest.fixture(scope="module")
def run(trained_once, tmp_path_factory):
    """Its threads look at the ledger an hour later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
        patch.setenv("S3T_STATE", str(tmp_path_factory.mktemp("state")))
        with s3t.Run.open(tiny.copy_run(trained_once, tmp_path_factory.mktemp("runs") / "run")) as run:
            run.predict(["w1"])
            yield run


@pytest.fixture
def hours(monkeypatch):
    """Hours that the machine has slept, to be set."""
    clock, slept = s3t.ledger.presence.boot_clock, {"seconds": 0.0}
    monkeypatch.setattr("s3t.ledger.presence.boot_clock", lambda: clock() + slept["seconds"])
    return slept


@contextmanager
def batching(run, *, most=4, waits=False):
    """What answers requests, with each answer that it made (`kept`: garbage collection would let go of what nobody has
    released), an event that tells that it computes, and one that it waits for before. At the end all is let go of."""
    kept, computing, go_on = [], threading.Event(), threading.Event()

    def hold(*inputs):
        computing.set()
        assert not waits or go_on.wait(10)
        kept.append(run.hold(*inputs))
        return kept[-1]

    answers = Batcher(hold, most=most, wait=0.0, max_queued=100, max_queued_bytes=1 << 20)
    answers.kept, answers.computing, answers.go_on = kept, computing, go_on
    try:
        yield answers
    finally:
        go_on.set()
        answers.close()
    assert waited_for(run) == 0


async def connected():
    """What a connection hears from a client that stays."""
    await asyncio.sleep(3600)


def waited_for(run):
    """Computations and answers that deletions wait for."""
    return len(roles(run).presence._running)


async def respond(run, answers, render, *, send=None, abort=lambda: None, **settings):
    """Respond to a request as the server does."""
    given = SimpleNamespace(**{"send_seconds": 10.0, "answer_seconds": 60.0} | settings)
    metrics = SimpleNamespace(answered=lambda *_about: None)
    served = SimpleNamespace(name="run", batcher=answers, settings=given, metrics=metrics)
    response = PendingResponse(served, run.checked(["w1"]), render)
    await response({"state": {"caller": NOBODY}, ABORT: abort}, connected, send)


ENDS = [("reset", 0), ("cancelled", 1), ("never takes", PARTS - 1), *(("sleeps", at) for at in range(PARTS))]


@pytest.mark.parametrize(("how", "at"), ENDS)
def test_an_answer_whose_client_or_lease_ends_is_let_go_of_and_no_part_after_it_leaves(
    run, hours, monkeypatch, how, at
):
    monkeypatch.setattr(answering, "_PART_SECONDS", 0.2)
    left, aborted, tasks = [], [], []
    body = "x" * (PARTS - 1) * answering._PART_BYTES  # and the quotation marks: a part more

    async def send(message):
        assert waited_for(run) == 1
        left.append(message)
        if len(left) <= at:
            return
        if how == "reset":
            raise ConnectionResetError
        if how == "cancelled":
            tasks[0].cancel()
        if how == "sleeps":
            hours["seconds"] = LEASE_SECONDS
        await asyncio.sleep(3600 if how == "never takes" else 0)

    async def ask(answers):
        tasks.append(asyncio.current_task())
        await respond(run, answers, lambda _predictions: body, send=send, abort=lambda: aborted.append(True))

    error = {"reset": ConnectionResetError, "cancelled": asyncio.CancelledError}.get(how, NotTaken)
    with batching(run) as answers, pytest.raises(error):
        asyncio.run(ask(answers))
    assert len(left) == at + 1
    assert bool(aborted) is (error is NotTaken)


def test_an_answer_that_cannot_be_rendered_is_let_go_of(run):
    def fail(_predictions):
        raise MemoryError

    with batching(run) as answers, pytest.raises(MemoryError):
        asyncio.run(respond(run, answers, fail))


@pytest.mark.parametrize("when", ["before it is computed", "while it is computed", "when it is given", "for good"])
def test_an_answer_that_nobody_takes_is_let_go_of(run, when, monkeypatch):
    """The client is gone; or, for good, the whole loop of the server."""

    async def ask(answers):
        inputs, tasks = run.checked(["w1"]), []
        if when == "before it is computed":
            tasks.append(asyncio.create_task(answers.answer(inputs, caller="")))
            await asyncio.to_thread(answers.computing.wait)  # the first keeps the thread
        if when == "when it is given":
            loop = asyncio.get_running_loop()

            class Given(Future):
                def set_result(self, share):
                    loop.call_soon_threadsafe(self.give_and_cancel, share)

                def give_and_cancel(self, share):
                    super().set_result(share)
                    loop.call_soon(tasks[-1].cancel)  # before the task goes on

            monkeypatch.setattr(server_batching, "Future", Given)
        tasks.append(asyncio.create_task(answers.answer(inputs, caller="")))
        await asyncio.sleep(0)
        if when == "before it is computed":
            tasks[1].cancel()
            answers.go_on.set()
            (await tasks[0]).release()
        elif when == "while it is computed":
            await asyncio.to_thread(answers.computing.wait)
            tasks[0].cancel()
            answers.go_on.set()
            await asyncio.to_thread(answers.close)  # it has told the loop, which goes on
        elif when == "when it is given":
            answers.go_on.set()
        else:
            await asyncio.to_thread(answers.computing.wait)  # or it is dropped before it is computed
            return
        with pytest.raises(asyncio.CancelledError):
            await tasks[-1]

    with batching(run, waits=True) as answers:
        asyncio.run(ask(answers))  # ends what is left of it


def test_a_request_that_is_not_answered_in_time_is_refused_and_let_go_of(run):
    """Another one keeps the thread. What was refused is not computed."""

    async def ask(answers):
        first = asyncio.create_task(answers.answer(run.checked(["w1"]), caller=""))
        await asyncio.to_thread(answers.computing.wait)
        with pytest.raises(Refused, match=r"not answered within 0\.05 seconds") as refused:
            await respond(run, answers, lambda _predictions: "", answer_seconds=0.05)
        assert refused.value.headers == {"Retry-After": "1"}
        answers.go_on.set()
        (await first).release()

    with batching(run, most=0, waits=True) as answers:
        asyncio.run(ask(answers))
    assert len(answers.kept) == 1


def test_callers_take_turns_however_much_one_of_them_asks(run):
    """One request, of a first caller, keeps the thread while nine of it and one of another come."""
    order = []

    async def ask(answers, caller, number):
        (await answers.answer(run.checked(["w1"]), caller=caller)).release()
        order.append((caller, number))

    async def ask_all(answers):
        first = asyncio.create_task(ask(answers, "greedy", 0))
        await asyncio.to_thread(answers.computing.wait)
        others = [asyncio.create_task(ask(answers, "greedy", number)) for number in range(1, 10)]
        await asyncio.sleep(0)
        others.append(asyncio.create_task(ask(answers, "other", 0)))
        await asyncio.sleep(0)
        answers.go_on.set()
        await asyncio.gather(first, *others)

    with batching(run, most=0, waits=True) as answers:
        asyncio.run(ask_all(answers))
    assert order.index(("other", 0)) <= 2
    assert [number for caller, number in order if caller == "greedy"] == [*range(10)]


@pytest.mark.parametrize("when", ["before they are begun", "after", "for good"])
def test_texts_whose_client_is_gone_are_let_go_of(when):
    released = []
    texts = SimpleNamespace(release=lambda: released.append(True))

    async def ask():
        order = Order(None, None)
        if when == "before they are begun":
            order.leave()
        order.begun(SimpleNamespace(), texts)
        if when == "after":
            order.leave()
        return order

    order = asyncio.run(ask())
    if when == "for good":  # the loop is closed, and the thread that writes goes on
        assert not released
        order.put(())
    assert released
    assert order.left
