"""The gateway as it runs, `s3t serve --engine`: killed, and started again beside an engine that goes on."""

import os
import signal
import subprocess
import sys

import pytest

import s3t
from testing import tiny
from tests.gateway import PEFT_WARNS, TEXTS, assert_as_run, delete, predicted, until_erased
from tests.serve.test_server import SECONDS
from tests.serve.test_server import server as process

pytestmark = [pytest.mark.integration, PEFT_WARNS]
OPEN = ("--no-repair", "--open", "predict", "--open", "delete", "--open", "audit")


def test_a_killed_gateway_leaves_adapters_and_the_next_one_unloads_them_before_it_answers(path, server, folder):
    engine, options = server.engine, ("--engine", server.url, "--engine-adapters", str(folder))
    with process(path, *options, *OPEN) as client:
        assert_as_run(predicted(client), path)
        before = {*engine.adapters}
        os.kill(client.process.pid, signal.SIGKILL)
        client.process.wait(SECONDS)
    assert {*engine.adapters} == before
    with s3t.Run.open(path) as run:
        assert run.delete(records=["r0"]).state == "effective"  # it waits for no killed process, but for the export
    with process(path, *options, *OPEN) as client:
        assert_as_run(predicted(client), path)
        assert len(before - {*engine.adapters}) == 1
        count = len(engine.answered)
        assert_as_run(predicted(client), path)
        assert {name for name, _ in engine.answered[count:]} == {*engine.adapters}
        until_erased(client)
        delete(client, "r1")
        until_erased(client, 2)
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(SECONDS) == 0, "".join(client.lines)
    assert engine.adapters == {}
    said = "".join(client.lines)
    assert "Traceback" not in said
    assert "the engine has what serves, and nothing else" in said
    assert not any(text in said for text in TEXTS)


def test_a_run_that_no_engine_answers_for_is_refused_in_a_sentence(path, folder):
    tiny.change_recipe(path, prediction={"ensemble": "sequences"})
    command = ["s3t", "serve", str(path), "--engine", "http://127.0.0.1:9", "--engine-adapters", str(folder)]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2
    assert "several chains a shard answer" in done.stderr
    assert "Traceback" not in done.stderr
