"""A small engine with LoRA adapters: a real HTTP server with vLLM's routes, a real model and real PEFT adapters.

It does what vLLM's documents say of `/v1/models`, `/v1/load_lora_adapter`, `/v1/unload_lora_adapter` and `/classify`
(read in vLLM's sources: `entrypoints/openai/models/serving.py`, `entrypoints/pooling/classify`), and, by switches, what
engines were seen to do instead.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
import uvicorn
from peft import PeftModel
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from s3t.models.base import ALONE

BASE = "base"
_STARTED_SECONDS = 30.0


@dataclass
class Bugs:
    """What the engine does wrong. Tests change it while the engine runs."""

    keeps_answering: bool = False
    """Unloading takes the name off the list and answers 200; requests under the name are answered on."""
    keeps_listing: int = 0
    """Unloading answers 200, and does nothing for so many looks at the list or requests under the name."""
    refuses_to_unload: bool = False
    """Unloading answers 500, as vLLM does where its workers do not remove the adapter."""
    caches_by_name: bool = False
    """Answers are kept by adapter's name and prompt, also when the adapter is unloaded (vllm-project/vllm#42125)."""
    answers_nothing: bool = False
    """/classify answers 404 to everybody, and names the model, as a proxy with a wrong route may."""
    refuses_to_load: bool = False
    """Loading answers 500."""
    loads_late: threading.Event | None = None
    """Loading reads the files at once, and comes to its end when this is set."""
    seconds: float = 0.0
    """Time that each answer takes more."""


@dataclass
class Engine:
    """State of the engine."""

    model: Any
    """The base model with a head, in eval mode."""
    bugs: Bugs = field(default_factory=Bugs)
    adapters: dict[str, Any] = field(default_factory=dict)
    """What it answers with, by name."""
    listed: dict[str, str] = field(default_factory=dict)
    """Folders, by name."""
    leaving: dict[str, int] = field(default_factory=dict)
    """Requests after which an adapter is unloaded, by name."""
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Every request: what it asked for, and the name."""
    answered: list[tuple[str, float]] = field(default_factory=list)
    """Names under which /classify gave answers, and when (monotonic seconds)."""
    cache: dict[tuple[str, tuple[int, ...]], list[float]] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def restart(self) -> None:
        """Forget all adapters."""
        with self.turn:
            self.adapters.clear()
            self.listed.clear()
            self.cache.clear()

    def load(self, name: str, path: str) -> Response:
        """As `POST /v1/load_lora_adapter`."""
        with self.turn:
            self.seen.append(("load", name))
            if self.bugs.refuses_to_load:
                return _refusal(500, "InternalServerError", "no room")
            if name in self.listed:
                return _refusal(400, "InvalidUserInput", f"The lora adapter '{name}' has already been loaded.")
            if not (Path(path) / "adapter_config.json").is_file():
                return _refusal(404, "NotFoundError", f"Loading lora {name} failed: No adapter found for {path}")
            with ALONE, warnings.catch_warnings():  # a gateway in this process exports, and catches warnings, too
                warnings.simplefilter("ignore", FutureWarning)  # of names that PEFT reads in transformers
                made = PeftModel.from_pretrained(copy.deepcopy(self.model), path).eval()
            late = self.bugs.loads_late
        if late is not None:
            late.wait(_STARTED_SECONDS)
        with self.turn:
            self.adapters[name], self.listed[name] = made, path
            return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    def unload(self, name: str) -> Response:
        """As `POST /v1/unload_lora_adapter`."""
        with self.turn:
            self.seen.append(("unload", name))
            if name not in self.listed:
                return _refusal(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
            if self.bugs.refuses_to_unload:
                return _refusal(500, "InternalServerError", f"Failed to remove lora adapter '{name}' from the engine.")
            if self.bugs.keeps_listing:
                self.leaving.setdefault(name, self.bugs.keeps_listing)
            else:
                del self.listed[name]
                if not self.bugs.keeps_answering:
                    del self.adapters[name]
            return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    def models(self) -> Response:
        """As `GET /v1/models`."""
        with self.turn:
            for name in tuple(self.leaving):
                self._leave_late(name)
            adapters = [{"id": name, "root": root, "parent": BASE} for name, root in self.listed.items()]
        models: list[dict[str, Any]] = [{"id": BASE, "parent": None}, *adapters]
        data = [{"object": "model", "owned_by": "vllm", **each} for each in models]
        return JSONResponse({"object": "list", "data": data})

    def classify(self, name: str, given: Any) -> Response:
        """As `POST /classify`, of token ids alone: the test engine has no tokenizer."""
        prompts = [given] if given and isinstance(given[0], int) else given
        self.seen.append(("classify", name))
        time.sleep(self.bugs.seconds)
        with self.turn:
            self._leave_late(name)
            model = self.model if name == BASE else self.adapters.get(name)
            if model is None or self.bugs.answers_nothing:
                return _refusal(404, "NotFoundError", f"The model `{name}` does not exist.")
            rows = [self._probabilities(name, model, prompt) for prompt in prompts]
            self.answered.append((name, time.monotonic()))
        labels = self.model.config.id2label
        data = [
            {"index": index, "label": labels[row.index(max(row))], "probs": row, "num_classes": len(row)}
            for index, row in enumerate(rows)
        ]
        tokens = sum(map(len, prompts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}
        head = {"id": f"classify-{uuid.uuid4().hex}", "object": "list", "created": int(time.time()), "model": name}
        return JSONResponse({**head, "data": data, "usage": usage})

    def _leave_late(self, name: str) -> None:
        if name in self.leaving:
            self.leaving[name] -= 1
            if self.leaving[name] <= 0:
                del self.leaving[name], self.listed[name], self.adapters[name]

    def _probabilities(self, name: str, model: Any, prompt: Sequence[int]) -> list[float]:
        key = (name, tuple(prompt))
        if self.bugs.caches_by_name and key in self.cache:
            return self.cache[key]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt])).logits[0]
        row: list[float] = logits.softmax(-1).tolist()
        self.cache[key] = row
        return row


def app_of(engine: Engine) -> Starlette:
    """The engine's routes."""

    async def load(request: Request) -> Response:
        asked = await request.json()
        return await run_in_threadpool(engine.load, asked["lora_name"], asked["lora_path"])

    async def unload(request: Request) -> Response:
        return await run_in_threadpool(engine.unload, (await request.json())["lora_name"])

    async def models(_request: Request) -> Response:
        return engine.models()

    async def classify(request: Request) -> Response:
        asked = await request.json()
        return await run_in_threadpool(engine.classify, asked["model"], asked["input"])

    return Starlette(
        routes=[
            Route("/v1/load_lora_adapter", load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", unload, methods=["POST"]),
            Route("/v1/models", models),
            Route("/classify", classify, methods=["POST"]),
        ]
    )


def base_model(folder: Path, *, labels: int) -> Any:
    """A base model with a head of so many labels, as an engine loads it."""
    transformers.utils.logging.disable_progress_bar()
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # of the head, which each adapter brings
    try:
        auto: Any = transformers.AutoModelForSequenceClassification
        return auto.from_pretrained(folder, num_labels=labels, ignore_mismatched_sizes=True).eval()
    finally:
        transformers.logging.set_verbosity(verbosity)


class EngineServer:
    """An engine and its address. The port stays when it stops and starts again.

    Attributes:
        engine: its state, to look at and to change.
        url: its address.
    """

    def __init__(self, model: Any, *, port: int = 0) -> None:
        self.engine = Engine(model)
        with socket.create_server(("127.0.0.1", port)) as listener:
            self._port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._server: uvicorn.Server | None = None

    def start(self) -> None:
        """Answer, with no adapters."""
        self.engine.restart()
        listener = socket.create_server(("127.0.0.1", self._port))
        config = uvicorn.Config(app_of(self.engine), log_config=None, access_log=False, ws="none")
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(target=server.run, args=([listener],), name="engine")
        self._thread.start()
        until = time.monotonic() + _STARTED_SECONDS
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("the engine did not start")
            time.sleep(0.01)

    def stop(self) -> None:
        """Answer no more; the port is closed when it returns."""
        if self._server is not None:
            self._server.should_exit = True
            self._thread.join()
            self._server = None


@contextmanager
def running(model: Any) -> Iterator[EngineServer]:
    """An engine that answers within."""
    server = EngineServer(model)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _refusal(status: int, kind: str, message: str) -> Response:
    body = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return Response(json.dumps(body), status, media_type="application/json")
