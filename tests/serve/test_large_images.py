"""Many large images at once take the memory of a few, and give it back: a server in a process of its own."""

import base64
import io
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from PIL import Image

import s3t
from benchmarks.service import server
from testing import tiny

SIDE, TOGETHER = 4900, 32
"""Pixels of an edge: the server takes 25 million at once. And requests that come together."""
DECODED = 3 * SIDE**2
"""Bytes of one image in RGB."""


@pytest.mark.integration
def test_many_large_images_take_the_memory_of_a_few_and_give_it_back(tmp_path):
    recipe = tiny.recipe(tiny.make_image_model(tmp_path / "model"), kind="image")
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.image_table()) as run:
        run.train()
    with server(tmp_path / "run", "--open", "predict") as url:
        (process,) = processes_of(tmp_path / "run")

        def ask(content):
            answer = httpx.post(f"{url}/v1/predict", json={"inputs": [content]}, timeout=600)
            return answer.status_code

        assert ask(encoded(64)) == 200
        before = memory(process, "VmRSS")
        with ThreadPoolExecutor(TOGETHER) as pool:
            assert {*pool.map(ask, [encoded(SIDE)] * TOGETHER)} == {200}
        peak, after = memory(process, "VmHWM"), memory(process, "VmRSS")
    assert peak - before < 12 * DECODED  # two are decoded at once, each with a few copies
    assert after - before < 3 * DECODED


def encoded(side):
    content = io.BytesIO()
    Image.new("RGB", (side, side), "red").save(content, "png")
    return base64.b64encode(content.getvalue()).decode()


def processes_of(run):
    """Processes of a run's server."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if b"serve\0" + str(run).encode() + b"\0" in path.read_bytes():
            yield path.parent


def memory(process, name):
    """Bytes of a process, by their name in its status."""
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", (process / "status").read_text())[1])
