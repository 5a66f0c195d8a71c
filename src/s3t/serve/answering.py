"""The answer of a model on its way to the client: it leaves only while no deletion has overtaken it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from s3t.serve.batching import Batcher

if TYPE_CHECKING:
    from s3t.records.ingest import IngestedInputs
    from s3t.run.answers import Predictions

GENERATION_HEADER = "S3T-Generation"


class Form:
    """A shape in which clients want answers. Subclass it."""

    def document(self, predictions: Predictions) -> Any:
        """The body."""
        raise NotImplementedError


class HeldResponse(Response):
    """Predictions that deletions wait for until they are handed to the connection.

    Args:
        batcher: answers.
        inputs: checked.
        form: of the body.
    """

    def __init__(self, batcher: Batcher, inputs: IngestedInputs, form: Form) -> None:
        super().__init__()
        self._batcher = batcher
        self._inputs = inputs
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and answer again for as long as deletions overtake it. Each takes a stage, so there is an end."""
        while True:
            share = await self._batcher.answer(self._inputs)
            try:
                document = self._form.document(share.predictions)
                generation = share.predictions.generation
                if share.may_leave():
                    scope["state"].setdefault("told", {}).update(generation=generation, inputs=len(share.predictions))
                    headers = {GENERATION_HEADER: str(generation)}
                    await JSONResponse(document, headers=headers)(scope, receive, send)
                    return
            finally:
                share.release()
