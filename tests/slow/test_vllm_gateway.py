"""The gateway beside a real vLLM server, where `S3T_VLLM_PYTHON` names a Python that has it (see `test_vllm.py`)."""

import socket
import subprocess
import time

import httpx
import pytest
from transformers import AutoModelForSequenceClassification

import s3t
from testing import tiny
from testing.served import serving
from tests.gateway import assert_as_run, delete, predicted, ready, state_of, until
from tests.slow.test_vllm import base, environment, python  # noqa: F401

pytestmark = pytest.mark.slow
START_SECONDS = 600.0


@pytest.fixture
def vllm(python, base, tmp_path):  # noqa: F811
    """Address of a vLLM server of the base model, with a head of three labels that adapters replace."""
    folder = tmp_path / "engine-base"
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=3, pad_token_id=0)
    model.save_pretrained(folder)
    for file in base.glob("*token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    told = (
        f"--model {folder} --served-model-name base --runner pooling --dtype float32 --max-model-len 48 --enforce-eager"
    )
    lora = f"--enable-lora --max-loras 4 --max-lora-rank 16 --port {port}"
    command = [python, "-m", "vllm.entrypoints.openai.api_server", *told.split(), *lora.split()]
    may = environment() | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    log = tmp_path / "vllm.log"
    with log.open("wb") as file, subprocess.Popen(command, env=may, stdout=file, stderr=file) as process:
        try:
            until_it_answers(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def until_it_answers(url, process, log):
    end = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < end, log.read_text()[-4000:]
        try:
            if httpx.get(f"{url}/v1/models").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            time.sleep(1.0)


def test_vllm_answers_as_the_run_and_swaps_for_deletions_and_repairs(vllm, base, tmp_path):  # noqa: F811
    path = tmp_path / "run"
    recipe = tiny.recipe(base, adapter={"rank": 8, "alpha": 16})
    with s3t.Run.create(path, recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    everybody = ("predict", "delete", "operate", "audit")
    with serving(
        path, engine=vllm, engine_adapters=tmp_path / "adapters", open_scopes=everybody, repair=False
    ) as client:
        until(lambda: ready(client))
        assert_as_run(predicted(client), path)
        before = adapters(vllm)
        delete(client, "r0")
        until(lambda: state_of(client) == "erased")
        assert_as_run(predicted(client), path)
        (old,) = before - adapters(vllm)
        refused = httpx.post(f"{vllm}/classify", json={"model": old, "input": [[2, 8]]})
        assert refused.status_code == httpx.codes.NOT_FOUND
        with s3t.Run.open(path) as run:
            run.repair()
        until(lambda: [len(each["prefix"]) for each in predicted(client)["members"]] == [3, 3])
        assert_as_run(predicted(client), path)
    assert adapters(vllm) == set()


def adapters(vllm):
    listed = httpx.get(f"{vllm}/v1/models").json()["data"]
    return {each["id"] for each in listed if each["parent"]}
