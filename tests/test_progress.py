"""What is shown of long work: a bar on a terminal, lines elsewhere."""

import io
import re

import pytest
from rich.console import Console

from s3t import EpochEnd, ProgressBar, StageEnd, StageStart, TrainingStart, progress_bar, progress_lines
from s3t.core import Stage
from s3t.progress import Silent
from s3t.progress_lines import ProgressLines
from s3t.training_events import Observer, tell

FIRST, SECOND, SUMS = Stage(0, (1,)), Stage(0, (1, 0)), Stage(0, (1,), "prototypes")


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [100.0]
    monkeypatch.setattr(progress_lines.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def train(shown, wait):
    """Two stages of two epochs, in which an epoch takes 4 seconds; and prototypes."""
    shown.start("training 3 stages on 10 records, 2 epochs each", 50)
    tell(shown, TrainingStart(stages=3))
    for stage, losses, validation in ((FIRST, (2.0, 1.5), None), (SECOND, (1.25, 0.123456), 0.75)):
        shown.note(str(stage))
        tell(shown, StageStart(stage=stage, records=10, epochs=2))
        shown.advance(0)
        for epoch, loss in enumerate(losses, start=1):
            wait(4)
            shown.advance(10)
            tell(shown, EpochEnd(stage=stage, epoch=epoch, epochs=2, loss=loss, records=10, seconds=4.0))
        tell(shown, StageEnd(stage=stage, losses=losses, steps=6, seconds=8.0, validation=validation))
    tell(shown, StageStart(stage=SUMS, records=10, epochs=0))
    shown.advance(10)
    tell(shown, StageEnd(stage=SUMS, losses=(), steps=0, seconds=0.1, validation=None))
    shown.finish()


def test_a_log_has_a_line_when_a_stage_begins_and_one_when_it_ends(clock, capsys):
    train(ProgressLines(), clock)
    assert capsys.readouterr().err.splitlines() == [
        "training 3 stages on 10 records, 2 epochs each",
        "stage (1) of shard 0 begins: 10 records, 2 epochs",
        "stage (1) of shard 0: loss 2, 1.5 in 6 steps, 8.0 s; 1 of 3 stages, about 12.0 s left",
        "stage (1, 0) of shard 0 begins: 10 records, 2 epochs",
        "stage (1, 0) of shard 0: loss 1.25, 0.1235 in 6 steps, 8.0 s, accuracy on public records 0.75; 2 of 3 stages, "
        "about 4.0 s left",
        "prototypes of slice 1 of shard 0 begins: 10 records",
        "prototypes of slice 1 of shard 0: made, 0.1 s; 3 of 3 stages",
    ]


def test_within_a_stage_a_log_has_a_line_every_ten_seconds_at_most(clock, capsys):
    lines = ProgressLines()
    lines.start("training", 1000)
    tell(lines, StageStart(stage=FIRST, records=100, epochs=10))
    for epoch in range(1, 11):
        clock(3)
        tell(lines, EpochEnd(stage=FIRST, epoch=epoch, epochs=10, loss=1 / epoch, records=100, seconds=3.0))
        lines.advance(100)
    said = capsys.readouterr().err.splitlines()[1:]
    assert [line[:44] for line in said] == [
        "stage (1) of shard 0: epoch 4 of 10, loss 0.",
        "stage (1) of shard 0: epoch 8 of 10, loss 0.",
    ]


def test_other_work_has_a_line_at_its_end_and_before_only_if_it_takes_long(clock, capsys):
    lines = ProgressLines()
    lines.start("predicting", 30)
    for _ in range(3):
        clock(6)
        lines.advance(10)
    lines.finish()
    assert capsys.readouterr().err.splitlines() == [
        "predicting: 67%, about 6.0 s left",
        "predicting: 18.0 s",
    ]
    lines.start("deleting", 0)
    lines.finish()
    assert capsys.readouterr().err == ""


def test_many_losses_are_shortened_a_regressions_error_is_one_and_no_record_is_said(clock, capsys):
    lines = ProgressLines()
    for losses, validation in ((tuple(range(20, 0, -1)), -0.5), ((), None)):
        tell(lines, StageEnd(stage=FIRST, losses=losses, steps=1, seconds=125.0, validation=validation))
    first, second = capsys.readouterr().err.splitlines()
    assert "loss 20, 19, 18, 17, ..., 4, 3, 2, 1 in 1 step, 2 min 5 s, error on public records 0.5" in first
    assert "no record, nothing to optimise" in second


def test_a_terminal_has_a_bar_with_the_loss_and_a_line_for_every_stage(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    train(ProgressBar(), lambda seconds: None)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "stage (1, 0) of shard 0: loss 1.25, 0.1235 in 6 steps, 8.0 s, accuracy on public records 0.75" in shown
    assert re.search(r"\ntraining 3 stages on 10 records, 2 epochs each .* 100% 0:00:00", shown.replace("\r", "\n"))


def test_the_bar_names_the_loss_first_and_cuts_the_stage_rather_than_the_numbers():
    screen = io.StringIO()
    bar = progress_bar._Bar(Console(file=screen, force_terminal=True, width=60))
    bar.start("training 3 stages on 10 records, 2 epochs each", 50)
    bar.advance(20)
    tell(bar, TrainingStart(stages=3))
    deep = Stage(10, tuple(range(12)))
    tell(bar, StageStart(stage=deep, records=10, epochs=2))
    tell(bar, EpochEnd(stage=deep, epoch=1, epochs=2, loss=0.123456, records=10, seconds=4.0))
    bar._progress.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    bar.finish()
    assert re.search(r"1/3 loss 0\.1235, st.* 40% ", shown)


def test_where_stderr_is_no_terminal_the_bar_is_lines(clock, capsys):
    train(ProgressBar(), clock)
    assert len(capsys.readouterr().err.splitlines()) == 7


def test_a_progress_that_observes_no_events_receives_none():
    assert not isinstance(Silent(), Observer)
    tell(Silent(), TrainingStart(stages=1))  # it has no method for them

    class Observing(Silent):
        def __init__(self):
            self.events = []

        def hear(self, event):
            self.events.append(event)

    observing = Observing()
    tell(observing, TrainingStart(stages=1))
    assert observing.events == [TrainingStart(stages=1)]
