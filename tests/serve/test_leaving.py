"""Answers that a server is sending: however a client or a lease ends, nothing more leaves, and no deletion waits on.

Runs and batches are real; the connection is a function, so that each moment can be chosen.
"""

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

import s3t
from s3t.ledger.sessions import LEASE_SECONDS
from s3t_server import answering, batching
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
SETTINGS = SimpleNamespace(send_seconds=10.0, answer_seconds=60.0)


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


class Holder:
    """Holds answers of a run, and lets something happen before one is computed.

    It keeps them: garbage collection would let go of what nobody has released.
    """

    def __init__(self, run, before=lambda: None):
        self.run, self.before = run, before
        self.held = []

    def hold(self, *inputs):
        self.before()
        self.held.append(self.run.hold(*inputs))
        return self.held[-1]


def batcher(run, **about):
    return Batcher(Holder(run, **about).hold, most=4, wait=0.0, max_queued=100, max_queued_bytes=1 << 20)


async def connected():
    """What a connection hears from a client that stays."""
    await asyncio.sleep(3600)


def waited_for(run):
    """Computations and answers that deletions wait for."""
    return len(roles(run).presence._running)


def closed_by(name, hours, task):
    """What a connection does with a message."""

    async def reset():
        raise ConnectionResetError

    async def cancelled():
        task().cancel()
        await asyncio.sleep(0)

    async def never_takes():
        await asyncio.sleep(3600)

    async def sleeps():
        hours["seconds"] = LEASE_SECONDS

    return {"reset": reset, "cancelled": cancelled, "never takes": never_takes, "sleeps": sleeps}[name]


@pytest.mark.parametrize("at", range(PARTS))
@pytest.mark.parametrize("how", ["reset", "cancelled", "never takes", "sleeps"])
def test_an_answer_whose_client_or_lease_ends_is_let_go_of_and_no_part_after_it_leaves(
    run, hours, monkeypatch, how, at
):
    monkeypatch.setattr(answering, "_PART_SECONDS", 0.2)
    answers, left, aborted, tasks = batcher(run), [], [], []
    close = closed_by(how, hours, lambda: tasks[0])

    async def send(message):
        assert waited_for(run) == 1
        left.append(message)
        if len(left) == at + 1:
            await close()

    async def ask():
        served = SimpleNamespace(
            name="run",
            batcher=answers,
            settings=SETTINGS,
            metrics=SimpleNamespace(answered=lambda *_about: None),
        )
        body = "x" * (PARTS - 1) * answering._PART_BYTES  # and the quotation marks: a part more
        response = PendingResponse(served, run.checked(["w1"]), lambda _predictions: body)
        tasks.append(asyncio.current_task())
        await response({"state": {"caller": NOBODY}, ABORT: lambda: aborted.append(True)}, connected, send)

    error = {"reset": ConnectionResetError, "cancelled": asyncio.CancelledError}.get(how, NotTaken)
    try:
        with pytest.raises(error):
            asyncio.run(ask())
    finally:
        answers.close()
    assert len(left) == at + 1
    assert bool(aborted) is (error is NotTaken)
    assert waited_for(run) == 0


def test_an_answer_that_cannot_be_rendered_is_let_go_of(run):
    answers = batcher(run)

    def fail(_predictions):
        raise MemoryError

    served = SimpleNamespace(name="run", batcher=answers, settings=SETTINGS)
    with pytest.raises(MemoryError):
        asyncio.run(PendingResponse(served, run.checked(["w1"]), fail)({"state": {"caller": NOBODY}}, connected, None))
    answers.close()
    assert waited_for(run) == 0


@pytest.mark.parametrize("when", ["before it is computed", "while it is computed", "when it is given", "for good"])
def test_an_answer_that_nobody_takes_is_let_go_of(run, when, monkeypatch):
    """The client is gone; or, for good, the whole loop of the server."""
    computing, go_on = threading.Event(), threading.Event()
    answers = batcher(run, before=lambda: (computing.set(), go_on.wait(10)))

    async def ask():
        inputs, tasks = run.checked(["w1"]), []
        if when == "before it is computed":
            tasks.append(asyncio.create_task(answers.answer(inputs, caller="")))
            await asyncio.to_thread(computing.wait)  # the first keeps the thread
        if when == "when it is given":
            loop = asyncio.get_running_loop()

            class Given(Future):
                def set_result(self, share):
                    loop.call_soon_threadsafe(self.give_and_cancel, share)

                def give_and_cancel(self, share):
                    super().set_result(share)
                    loop.call_soon(tasks[-1].cancel)  # before the task goes on

            monkeypatch.setattr(batching, "Future", Given)
        tasks.append(asyncio.create_task(answers.answer(inputs, caller="")))
        await asyncio.sleep(0)
        if when == "before it is computed":
            tasks[1].cancel()
            go_on.set()
            (await tasks[0]).release()
        elif when == "while it is computed":
            await asyncio.to_thread(computing.wait)
            tasks[0].cancel()
            go_on.set()
            await asyncio.to_thread(answers.close)  # it has told the loop, which goes on
        elif when == "when it is given":
            go_on.set()
        else:
            await asyncio.to_thread(computing.wait)  # or it is dropped before it is computed
            return
        with pytest.raises(asyncio.CancelledError):
            await tasks[-1]

    asyncio.run(ask())  # ends what is left of it
    go_on.set()
    answers.close()
    assert waited_for(run) == 0


def test_a_request_that_is_not_answered_in_time_is_refused_and_let_go_of(run):
    """Another one keeps the thread. What was refused is not computed."""
    computing, go_on = threading.Event(), threading.Event()
    holder = Holder(run, before=lambda: (computing.set(), go_on.wait(5)))
    answers = Batcher(holder.hold, most=0, wait=0.0, max_queued=100, max_queued_bytes=1 << 20)
    settings = SimpleNamespace(send_seconds=10.0, answer_seconds=0.05)
    served = SimpleNamespace(name="run", batcher=answers, settings=settings)

    async def ask():
        first = asyncio.create_task(answers.answer(run.checked(["w1"]), caller=""))
        await asyncio.to_thread(computing.wait)
        response = PendingResponse(served, run.checked(["w1"]), lambda _predictions: "")
        with pytest.raises(Refused, match=r"not answered within 0\.05 seconds") as refused:
            await response({"state": {"caller": NOBODY}}, connected, None)
        assert refused.value.headers == {"Retry-After": "1"}
        go_on.set()
        (await first).release()

    asyncio.run(ask())
    answers.close()
    assert len(holder.held) == 1
    assert waited_for(run) == 0


def test_callers_take_turns_however_much_one_of_them_asks(run):
    """One request, of a first caller, keeps the thread while nine of it and one of another come."""
    computing, go_on, order = threading.Event(), threading.Event(), []
    answers = Batcher(
        Holder(run, before=lambda: (computing.set(), go_on.wait(10))).hold,
        most=0,
        wait=0.0,
        max_queued=100,
        max_queued_bytes=1 << 20,
    )

    async def ask(caller, number):
        (await answers.answer(run.checked(["w1"]), caller=caller)).release()
        order.append((caller, number))

    async def ask_all():
        first = asyncio.create_task(ask("greedy", 0))
        await asyncio.to_thread(computing.wait)
        others = [asyncio.create_task(ask("greedy", number)) for number in range(1, 10)]
        await asyncio.sleep(0)
        others.append(asyncio.create_task(ask("other", 0)))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *others)

    asyncio.run(ask_all())
    answers.close()
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
