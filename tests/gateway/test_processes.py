"""The gateway as it runs, `s3t serve --engine`: killed, and started again beside an engine that goes on."""

import json
import os
import signal
import subprocess
import sys

import pytest
from transformers import AutoTokenizer

import s3t
from testing import tiny
from testing.engine import base_model, running
from testing.served import serving
from testing.stories260k import convert
from tests.gateway import PEFT_WARNS, TEXTS, assert_as_run, delete, predicted, ready, state_of, until
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
        until(lambda: state_of(client) == "erased")
        delete(client, "r1")
        until(lambda: state_of(client, 2) == "erased")
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(SECONDS) == 0, "".join(client.lines)
    assert engine.adapters == {}
    said = "".join(client.lines)
    assert "Traceback" not in said
    assert "the engine has what serves, and nothing else" in said
    assert not any(text in said for text in TEXTS)


def test_a_gateway_that_is_stopped_in_the_middle_holds_deletions_up(path, server, folder):
    engine, options = server.engine, ("--engine", server.url, "--engine-adapters", str(folder))
    with process(path, *options, *OPEN) as client:
        before = {*engine.adapters}
        os.kill(client.process.pid, signal.SIGSTOP)
        with s3t.Run.open(path) as run:
            assert run.delete(records=["r0"]).state == "accepted"
        assert {*engine.adapters} == before
        os.kill(client.process.pid, signal.SIGCONT)
        assert predicted(client)["generation"] == 1
        until(lambda: state_of(client) == "erased")


def test_a_run_that_no_engine_answers_for_is_refused_in_a_sentence(path, folder, text_model, tmp_path):
    recipe = tiny.recipe(text_model, task="text-regression", labels=None, columns={"label": "label"})
    del recipe["labels"]
    with s3t.Run.create(tmp_path / "other", recipe=recipe, data=tiny.text_table().assign(label=1.5)):
        pass
    command = [
        "s3t",
        "serve",
        str(tmp_path / "other"),
        "--engine",
        "http://127.0.0.1:9",
        "--engine-adapters",
        str(folder),
    ]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2
    assert "Serve it without --engine" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_is_in_use(real_data, tmp_path, folder):
    """A trained Llama, with rows of a length that the recipe cuts: the engine is asked with the same tokens."""
    weights = real_data / "weights"
    model = convert(weights / "stories260K.bin", weights / "tok512.bin", tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.unk_token
    tokenizer.save_pretrained(model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"pad_token_id": tokenizer.pad_token_id}))
    recipe = tiny.recipe(model, partition={"shards": 2, "slices": 2}, sequences={"budget": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    long = " ".join(["a card that was stolen"] * 10)
    with running(base_model(model, labels=3)) as beside:
        options = {"engine": beside.url, "engine_adapters": folder, "open_scopes": ("predict", "delete", "audit")}
        with serving(tmp_path / "run", repair=False, **options) as client:
            until(lambda: ready(client))
            for _ in range(2):
                assert_as_run(predicted(client, [*TEXTS, long]), tmp_path / "run", [*TEXTS, long])
                delete(client, "r0")
