"""A run whose answers an engine computes: the engine's probabilities, combined as the recipe says."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from s3t.core import Stage
from s3t.errors import InputError
from s3t.events import Progress, WorkStep, silent
from s3t.ledger import Snapshot
from s3t.models.encoders import Encoder, encoder_for
from s3t.models.source import model_folder
from s3t.records.ingest import IngestedInputs
from s3t.run import Run
from s3t.run.parts import Parts
from s3t.run.pending import PendingAnswers
from s3t.tasks.aggregate import Scores
from s3t_server.gateway.keeper import Keeper
from s3t_server.gateway.lora_engine import LoraEngine, UnknownAdapterError

_LEAST = float(np.finfo(np.float32).smallest_subnormal)
"""In the place of a probability that the engine has rounded to 0."""
_TRIES = 3
"""Answers that find the engine without an adapter, before the client is told."""
_MOST_REQUESTS = 32
"""Requests of one answer that the engine computes at a time, one a shard."""


class Gateway:
    """Answers for one run from an engine. Safe to share among threads.

    Args:
        run: open. Its own model is not loaded.
        folder: that this process and the engine see under the same path; exports go into a folder of the run in it.
        seconds: longest wait of an answer for the engine.
    """

    def __init__(self, run: Run, url: str, folder: Path, seconds: float) -> None:
        self._parts = parts = run.parts
        base = model_folder(parts.recipe.base_model, revision=parts.recipe.revision)
        self._encoder = encoder_for(base, parts.recipe)
        _refuse_unfit(parts, self._encoder)
        self._engine = LoraEngine(url, seconds=seconds)
        prompt = self._encoder.encode(self._encoder.trial(["text"]))[0]["input_ids"].tolist()
        self.keeper = Keeper(parts, folder, self._engine, prompt=prompt)
        self._asking = ThreadPoolExecutor(min(parts.recipe.partition.shards, _MOST_REQUESTS), "s3t-ask")
        self.keeper.start()

    def close(self) -> None:
        """Unload what the engine has of the run, as far as it can be reached."""
        self.keeper.close()
        self._asking.shutdown()
        self._engine.close()

    def hold(self, *requests: IngestedInputs) -> PendingAnswers:
        """As `Run.hold`."""
        hold, routed = self._parts.answerer.hold, self.keeper.routed
        for _ in range(_TRIES - 1):
            with suppress(UnknownAdapterError):
                return hold(requests, choose=routed, computer=self)
        return hold(requests, choose=routed, computer=self)

    def counts(self, rows: pa.Table) -> None:
        """None: the engine gives one answer to each input."""
        return

    def cut(self, rows: pa.Table) -> list[bool]:
        return self._encoder.cut(rows).longer

    def logits(
        self, stages: Sequence[Stage], snapshot: Snapshot, inputs: pa.Table, progress: Progress = silent
    ) -> Scores:
        """Logits of members, M x N x C: the logarithms of the engine's probabilities."""
        prompts = [record["input_ids"].tolist() for record in self._encoder.encode(inputs)]
        labels = len(self._parts.description.labels)
        if not prompts:
            return np.zeros((len(stages), 0, labels))
        names = [self.keeper.name_of(stage, snapshot) for stage in stages]
        asked = [self._asking.submit(self._engine.classify, name, prompts, labels=labels) for name in names]
        found = [each.result() for each in asked]
        progress(WorkStep(count=len(prompts) * len(stages)))
        return np.log(np.maximum(np.stack(found), _LEAST))


def _refuse_unfit(parts: Parts, encoder: Encoder) -> None:
    """Refuse a run whose answers would be others from an engine."""
    recipe, problems = parts.recipe, []
    if recipe.task.name != "text-classification":
        problems.append(
            f"the run is of {recipe.task}; engines give probabilities of one label a text, so only text-classification "
            "can be averaged. Serve it without --engine"
        )
    elif "text_pair" in recipe.columns.named():
        (first, *_) = encoder.encode(encoder.trial(["text", "text_pair"]))
        if any(first.get("token_type_ids", ())):
            problems.append(
                "the base model tells the two texts of a pair apart by token types, which engines do not take with "
                "token ids. Serve it without --engine"
            )
    if recipe.head == "ridge":
        problems.append("head: ridge has heads that are solved by the run, and no engine has them")
    if recipe.method.of_slices:
        answering = f"the {recipe.method.of_slices} of slices"
        problems.append(f"method {recipe.method} answers with {answering}, which no engine has")
    if recipe.prediction.ensemble == "sequences":
        problems.append("prediction.ensemble: sequences has several chains a shard answer, and one of each is exported")
    if problems:
        raise InputError("--engine", problems)
