"""Something that happens while a run works."""

import threading
import time
from contextlib import contextmanager

from s3t import StageStart, WorkStep
from s3t.prediction.generation import TextBatch
from testing.roles import roles


class Meanwhile:
    """Progress that keeps what it hears, and does something at the first step, or at the first of a stage."""

    def __init__(self, action=lambda: None, *, stage=None):
        self.action, self.stage = action, stage
        self.events, self.now, self.done = [], None, False

    def __call__(self, event):
        self.events.append(event)
        if isinstance(event, StageStart):
            self.now = event.stage
        if isinstance(event, WorkStep) and not self.done and self.stage in (None, self.now):
            self.done = True
            self.action()

    def heard(self, *kinds):
        return [event for event in self.events if isinstance(event, kinds)]


def until(true, *, seconds=30.0):
    """Wait for what takes a tenth of that."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def deletion_after_a_step(run, record, monkeypatch):
    """A record is deleted, in another thread, between the first token that is written and the second; all steps."""
    step, threads, steps = TextBatch.step, [], []

    def with_a_deletion(self):
        pieces = step(self)
        if steps and not threads:
            threads.append(threading.Thread(target=run.delete, kwargs={"records": [record]}))
            threads[0].start()
            while roles(run).ledger.snapshot().generation == 0:
                time.sleep(0.01)
        steps.append(pieces)
        return pieces

    monkeypatch.setattr(TextBatch, "step", with_a_deletion)
    yield steps
    threads[0].join()
