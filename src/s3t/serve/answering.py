"""A run that is served, and its answers on their way to a client: they leave only while no deletion overtakes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from s3t.serve.batching import Batcher
from s3t.serve.callers import Callers
from s3t.serve.metrics import Metrics
from s3t.serve.repairing import Repairer
from s3t.serve.settings import Settings

if TYPE_CHECKING:
    from s3t.records.ingest import IngestedInputs
    from s3t.run import Run
    from s3t.run.answers import Predictions

GENERATION_HEADER = "S3T-Generation"


@dataclass(frozen=True, kw_only=True)
class ServedRun:
    """A run that is served, and what its routes share."""

    name: str
    run: Run
    callers: Callers
    batcher: Batcher
    metrics: Metrics
    settings: Settings
    repairer: Repairer | None
    """None: repairs begin only when they are asked for."""


class Form:
    """A shape in which clients want answers. Subclass it."""

    def document(self, predictions: Predictions) -> Any:
        """The body."""
        raise NotImplementedError


class PendingResponse(Response):
    """Predictions that deletions wait for until they are handed to the connection.

    Args:
        served: the run that answers.
        inputs: checked.
        form: of the body.
    """

    def __init__(self, served: ServedRun, inputs: IngestedInputs, form: Form) -> None:
        super().__init__()
        self._served = served
        self._inputs = inputs
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and answer again for as long as deletions overtake it. Each takes a stage, so there is an end."""
        while True:
            share = await self._served.batcher.answer(self._inputs)
            try:
                generation, count = share.predictions.generation, len(share.predictions)
                headers = {GENERATION_HEADER: str(generation)}
                response = JSONResponse(self._form.document(share.predictions), headers=headers)
                if share.may_leave():
                    scope["state"].setdefault("log", {}).update(generation=generation, inputs=count)
                    await response(scope, receive, send)
                    self._served.metrics.answered(self._served.name, count)
                    return
            finally:
                share.release()
