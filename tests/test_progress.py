"""What is shown of long work: a bar on a terminal, lines elsewhere."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from s3t import EpochEnd, ProgressBar, StageEnd, StageStart, TrainingStart, WorkEnd, WorkStart, WorkStep, progress
from s3t.core import Stage
from s3t.progress import watched

FIRST, SECOND, SUMS = Stage(0, (1,)), Stage(0, (1, 0)), Stage(0, (1,), "prototypes")


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def train(shown, wait):
    """Two stages of two epochs, in which an epoch takes 4 seconds; and prototypes."""
    shown(WorkStart(what="training 3 stages on 10 records, 2 epochs each", total=50))
    shown(TrainingStart(stages=3))
    for stage, losses, validation in ((FIRST, (2.0, 1.5), None), (SECOND, (1.25, 0.123456), 0.75)):
        shown(StageStart(stage=stage, records=10, epochs=2))
        shown(WorkStep(count=0))
        for epoch, loss in enumerate(losses, start=1):
            wait(4)
            shown(WorkStep(count=10))
            shown(EpochEnd(stage=stage, epoch=epoch, epochs=2, loss=loss, records=10, seconds=4.0))
        shown(StageEnd(stage=stage, losses=losses, steps=6, seconds=8.0, validation=validation))
    shown(StageStart(stage=SUMS, records=10, epochs=0))
    shown(WorkStep(count=10))
    shown(StageEnd(stage=SUMS, losses=(), steps=0, seconds=0.1, validation=None))
    shown(WorkEnd())


def test_a_log_has_a_line_when_a_stage_begins_and_one_when_it_ends(clock, capsys):
    train(ProgressBar(), clock)
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
    lines = ProgressBar()
    lines(WorkStart(what="training", total=1000))
    for epoch in range(1, 11):
        clock(3)
        lines(EpochEnd(stage=FIRST, epoch=epoch, epochs=10, loss=1 / epoch, records=100, seconds=3.0))
        lines(WorkStep(count=100))
    said = capsys.readouterr().err.splitlines()
    assert [line[:44] for line in said] == [
        "stage (1) of shard 0: epoch 4 of 10, loss 0.",
        "stage (1) of shard 0: epoch 8 of 10, loss 0.",
    ]


def test_other_work_has_a_line_at_its_end_and_before_only_if_it_takes_long(clock, capsys):
    lines = ProgressBar()
    lines(WorkStart(what="predicting", total=30))
    for _ in range(3):
        clock(6)
        lines(WorkStep(count=10))
    lines(WorkEnd())
    lines(WorkStart(what="deleting", total=0))
    lines(WorkEnd())
    assert capsys.readouterr().err.splitlines() == ["predicting: 67%, about 6.0 s left", "predicting: 18.0 s"]


def test_many_losses_are_shortened_a_regressions_error_is_one_and_no_record_is_said(clock, capsys):
    lines = ProgressBar()
    for losses, validation in ((tuple(range(20, 0, -1)), -0.5), ((), None)):
        lines(StageEnd(stage=FIRST, losses=losses, steps=1, seconds=125.0, validation=validation))
    first, second = capsys.readouterr().err.splitlines()
    assert "loss 20, 19, 18, 17, ..., 4, 3, 2, 1 in 1 step, 2 min 5 s, error on public records 0.5" in first
    assert "no record, nothing to optimise" in second


def seen(screen):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n")


def test_a_terminal_has_a_bar_with_the_loss_and_a_line_for_every_stage(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    train(ProgressBar(), lambda seconds: None)
    shown = seen(screen)
    assert "stage (1, 0) of shard 0: loss 1.25, 0.1235 in 6 steps, 8.0 s, accuracy on public records 0.75" in shown
    assert re.search(r"\ntraining 3 stages on 10 records, 2 epochs each .* 100% 0:00:00", shown)


def test_the_bar_names_the_loss_first_and_cuts_the_stage_rather_than_the_numbers():
    screen, deep = io.StringIO(), Stage(10, tuple(range(12)))
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=60))
    bar(WorkStart(what="training 3 stages on 10 records, 2 epochs each", total=50))
    bar(WorkStep(count=20))
    bar(TrainingStart(stages=3))
    bar(EpochEnd(stage=deep, epoch=1, epochs=2, loss=0.123456, records=10, seconds=4.0))
    bar.drawn.refresh()
    shown = seen(screen)
    bar(WorkEnd())
    assert re.search(r"1/3 loss 0\.1235, st.* 40% ", shown)


@pytest.mark.parametrize("is_watched", [False, True])
def test_long_work_shows_a_bar_by_itself_where_somebody_watches(is_watched, monkeypatch):
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: is_watched, write=lambda _text: None))
    assert isinstance(watched(None), ProgressBar) is is_watched
    heard = []
    assert watched(heard.append) == heard.append
