"""The server that a competent user would write around shards' merged models: FastAPI, and a queue whose texts are
answered together, each by the mean of all models' probabilities. One thread computes.

    python -m benchmarks.service_opponents PORT FOLDER...

A folder holds what `s3t export --merge` makes of a shard whose head reads the mean of a text's token states.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

MOST = 32
"""Texts that are answered together."""


class Asked(BaseModel):
    """A request's body."""

    inputs: list[str]


class Classifier:
    """A shard's model."""

    def __init__(self, folder: Path) -> None:
        self._backbone = AutoModel.from_pretrained(folder).eval()
        head = load_file(folder / "2_Dense" / "model.safetensors")
        self._weight, self._bias = head["linear.weight"], head["linear.bias"]

    def probabilities(self, batch: dict[str, Tensor]) -> Tensor:
        states, mask = self._backbone(**batch).last_hidden_state.float(), batch["attention_mask"].unsqueeze(-1)
        return nn.functional.linear((states * mask).sum(1) / mask.sum(1), self._weight, self._bias).softmax(-1)


class Service:
    """Answers what waits together, so many texts at a time."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._models = [Classifier(folder) for folder in folders]
        self._tokenizer = AutoTokenizer.from_pretrained(folders[0])
        self._waiting: asyncio.Queue[tuple[list[str], asyncio.Future[list[Any]]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1)

    async def answer(self, texts: list[str]) -> list[Any]:
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        await self._waiting.put((texts, answer))
        return await answer

    async def work(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while not self._waiting.empty() and sum(len(texts) for texts, _ in batch) < MOST:
                batch.append(self._waiting.get_nowait())
            texts = [text for each, _ in batch for text in each]
            try:
                found = await asyncio.get_running_loop().run_in_executor(self._thread, self._computed, texts)
            except Exception as error:
                for _, answer in batch:
                    answer.set_exception(error)
                continue
            for each, answer in batch:
                answer.set_result(found[: len(each)])
                del found[: len(each)]

    @torch.inference_mode()
    def _computed(self, texts: list[str]) -> list[Any]:
        batch = self._tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        mean = torch.stack([model.probabilities(dict(batch)) for model in self._models]).mean(0)
        best, label = mean.max(-1)
        return [
            {"label": name, "probability": share} for name, share in zip(label.tolist(), best.tolist(), strict=True)
        ]


def app_of(service: Service) -> FastAPI:
    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        working = asyncio.create_task(service.work())
        yield
        working.cancel()

    app = FastAPI(lifespan=life)

    @app.get("/readyz")
    def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.post("/v1/predict")
    async def predict(asked: Asked) -> dict[str, Any]:
        return {"predictions": await service.answer(asked.inputs)}

    return app


if __name__ == "__main__":
    service = Service([Path(folder) for folder in sys.argv[2:]])
    uvicorn.run(app_of(service), port=int(sys.argv[1]), log_level="warning", access_log=False)
