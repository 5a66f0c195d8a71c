"""Something that happens while a run works."""

import threading
import time
from contextlib import contextmanager

from s3t import WorkStep
from s3t.prediction.generation import TextBatch
from testing.roles import roles


class Meanwhile:
    """A progress listener that does something, once, at the first step."""

    def __init__(self, action):
        self.action = action
        self.done = False

    def __call__(self, event):
        if isinstance(event, WorkStep) and not self.done:
            self.done = True
            self.action()


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
