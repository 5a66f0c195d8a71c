"""A process that was forked off with a run open: it opens the run itself, and its parent goes on."""

import os

import pytest

import s3t
from tests.run.test_closed import USES

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def in_child(act):
    """Fork; what `act` raised there, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            act()
            said = "nothing"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


@pytest.mark.parametrize("use", ["status", "predict", "delete", "train", "audit", "extend"])
def test_it_is_told_to_open_the_run_itself(trained, use):
    trained.predict(["w1"])  # a session is open, and a thread watches
    said = in_child(lambda: USES[use](trained))
    assert said.startswith("ForkedError: the run was opened in process ")
    assert "s3t.Run.open" in said
    assert trained.delete(records=["r3"]).deleted == 1
    assert trained.predict(["w1"]).generation == 1
    assert trained.audit().ok


def test_it_opens_its_own_run_if_its_parent_has_closed_every_run(trained):
    def act():
        with s3t.Run.open(trained.path) as run:
            assert run.delete(records=["r5"]).deleted == 1

    trained.predict(["w1"])
    assert in_child(act).startswith("ForkedError: this process was forked off while its parent had a run")
    trained.close()
    assert in_child(act) == "nothing"
    with s3t.Run.open(trained.path) as again:
        assert again.predict(["w1"]).generation == 1
        assert again.audit().ok
