"""What comes together is done in one go, by one caller at a time, and everybody gets an answer."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from s3t.deletion.grouping import Grouped


class Work:
    """Doubles numbers; lets nobody in a second time while it is at it."""

    def __init__(self, *, seconds=0.0, hold=None):
        self.groups = []
        self.seconds = seconds
        self.hold = hold
        self._inside = threading.Lock()

    def __call__(self, numbers):
        assert self._inside.acquire(blocking=False), "two groups at once"
        try:
            self.groups.append(list(numbers))
            if self.hold is not None and len(self.groups) == 1:
                assert self.hold.wait(30)
            time.sleep(self.seconds)
            return [ValueError(f"no {number}") if number < 0 else 2 * number for number in numbers]
        finally:
            self._inside.release()


def ask(grouped, numbers):
    return [grouped(number) for number in numbers]


def gather(work, grouped, numbers):
    """Let numbers queue up while the first call is held at work; then let go."""
    with ThreadPoolExecutor(len(numbers) + 1) as pool:
        first = pool.submit(grouped, 100)
        wait_until(lambda: work.groups)
        jobs = []
        for count, number in enumerate(numbers, start=1):
            jobs.append(pool.submit(grouped, number))
            wait_until(lambda count=count: len(grouped._waiting) == count)
        work.hold.set()
        return [first, *jobs]


def wait_until(found):
    end = time.monotonic() + 30
    while not found():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize(("limit", "groups"), [(8, [[100], [1, 2, 3, 4, 5]]), (2, [[100], [1, 2], [3, 4], [5]])])
def test_those_who_come_while_one_is_at_work_are_the_next_groups_in_their_order(limit, groups):
    work = Work(hold=threading.Event())
    jobs = gather(work, Grouped(work, limit=limit), [1, 2, 3, 4, 5])
    assert [job.result() for job in jobs] == [200, 2, 4, 6, 8, 10]
    assert work.groups == groups


def test_an_items_error_is_its_callers_alone():
    work = Work(hold=threading.Event())
    _, good, bad, last = gather(work, Grouped(work, limit=8), [1, -2, 3])
    assert (good.result(), last.result()) == (2, 6)
    with pytest.raises(ValueError, match="no -2"):
        bad.result()


@pytest.mark.parametrize(
    "answer", [lambda numbers: [], lambda numbers: 1 / 0], ids=["too few answers", "the work fails"]
)
def test_a_group_that_fails_fails_for_each_and_the_next_goes_on(answer):
    work = Work(hold=threading.Event())
    grouped = Grouped(lambda numbers: work(numbers) if 1 not in numbers else answer(numbers), limit=2)
    jobs = gather(work, grouped, [1, 2, 3])
    assert [type(job.exception()) for job in jobs[1:3]] in ([ValueError] * 2, [ZeroDivisionError] * 2)
    assert jobs[3].result() == 6
    assert ask(grouped, [4]) == [8]


def test_a_caller_that_is_interrupted_while_waiting_is_not_worked_for(monkeypatch):
    """As by Ctrl-C."""
    work, interrupt, wait = Work(hold=threading.Event()), threading.Event(), threading.Condition.wait
    grouped = Grouped(work, limit=8)

    def interrupted(self, timeout=None):
        if not threading.current_thread().name.startswith("gives up"):
            return wait(self, timeout)
        while not interrupt.is_set():
            wait(self, 0.01)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(1, "gives up") as other:
        first = pool.submit(grouped, 100)
        wait_until(lambda: work.groups)
        monkeypatch.setattr(threading.Condition, "wait", interrupted)
        given_up = other.submit(grouped, 7)
        wait_until(lambda: len(grouped._waiting) == 1)
        last = pool.submit(grouped, 1)
        wait_until(lambda: len(grouped._waiting) == 2)
        interrupt.set()
        assert isinstance(given_up.exception(30), KeyboardInterrupt)
        work.hold.set()
        assert (first.result(30), last.result(30)) == (200, 2)
    assert work.groups == [[100], [1]]


def test_many_callers_all_get_their_own_answer():
    work = Work(seconds=0.0005)
    grouped = Grouped(work, limit=5)
    with ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(ask, grouped, range(part, 160, 16)) for part in range(16)]
        for part, job in enumerate(jobs):
            assert job.result(timeout=60) == [2 * number for number in range(part, 160, 16)]
    assert sum(map(len, work.groups)) == 160
    assert max(map(len, work.groups)) == 5
