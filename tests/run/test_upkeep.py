"""Who erases: the process that accepted a deletion goes first, and others do what it has left undone."""

import time
from types import SimpleNamespace

import pytest

import s3t
from s3t.deletion import protocol
from s3t.run import upkeep
from testing.accepted import accept
from testing.roles import roles
from tests.run.test_overtaken import state_of

SECONDS = 30.0
"""For what takes a tenth of one."""


@pytest.fixture
def other(trained):
    """The run as another process has it open."""
    with s3t.Run.open(trained.path) as other:
        yield other


def test_what_another_process_has_accepted_is_left_to_it_for_a_while_and_then_erased(trained, monkeypatch):
    accept(trained, ["r3"])
    roles(trained).upkeep.erase_meanwhile()
    assert state_of(trained) != "erased"
    monkeypatch.setattr(upkeep, "OTHERS_FIRST_SECONDS", 0.0)
    roles(trained).upkeep.erase_meanwhile()
    assert state_of(trained) == "erased"


def test_the_time_counts_from_when_it_was_noticed_and_anew_for_a_further_deletion(trained, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: clock.now, sleep=time.sleep, now=0.0)
    monkeypatch.setattr(upkeep, "time", clock)
    for record in ("r3", "r4"):
        accept(trained, [record])
        clock.now += upkeep.OTHERS_FIRST_SECONDS - 0.1
        roles(trained).upkeep.erase_meanwhile()
    assert state_of(trained) != "erased"
    clock.now += upkeep.OTHERS_FIRST_SECONDS
    roles(trained).upkeep.erase_meanwhile()
    assert state_of(trained) == "erased"


@pytest.mark.parametrize("dies", [False, True])
def test_in_the_background_training_waits_for_who_accepted_unless_he_is_dead(trained, other, dies, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: clock.now, sleep=lambda _: act(), now=0.0)
    roles(trained).upkeep.is_background = True

    def act():
        clock.now += upkeep.OTHERS_FIRST_SECONDS / 10
        if not dies:
            roles(other).eraser.finish()

    monkeypatch.setattr(upkeep, "time", clock)
    accept(other, ["r3"])
    roles(trained).upkeep.erase_all()
    assert state_of(trained) == "erased"
    assert (clock.now < upkeep.OTHERS_FIRST_SECONDS) != dies


def test_erasure_begins_when_other_processes_have_noted_the_deletion(trained, other, monkeypatch):
    monkeypatch.setattr(protocol, "_FIRST_SECONDS", SECONDS)
    trained.predict(["w1"])  # from here on deletions wait for it
    found, eraser = [], roles(other).eraser
    erase = eraser.erase
    monkeypatch.setattr(type(eraser), "erase", lambda _self, **how: found.append(state_of(other)) or erase(**how))
    other.delete(records=["r3"])
    assert found == ["effective"]
