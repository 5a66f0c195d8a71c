"""Texts on their way to a client, in OpenAI's shapes, whole or as server-sent events.

A whole text that a deletion overtakes is written anew. What has left of a stream cannot be taken back, so an error ends
it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from s3t.errors import OvertakenError, S3TError
from s3t.run.writer import Collected
from s3t_server.answering import EVENTS, Handover, ServedRun, may_leave
from s3t_server.problems import refusal_to
from s3t_server.writing import Gone, Order

if TYPE_CHECKING:
    from s3t.prediction.generation import Finish, Likely, Piece, Sampling, WrittenToken
    from s3t.records.ingest import IngestedInputs
    from s3t.run.pending import PendingTexts


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The shape of one request's answer."""

    chat: bool
    model: str
    counted: bool
    """A stream ends with a count of tokens."""
    logprobs: bool = False
    """Tokens are told one by one, with their probabilities."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, texts: Collected, pending: PendingTexts) -> dict[str, Any]:
        """The document of finished texts."""
        choices: list[dict[str, Any]] = []
        for index, parts in enumerate(texts.texts):
            text = "".join(parts)
            message = {"role": "assistant", "content": text, "refusal": None}
            shown = {"message": message} if self.chat else {"text": text}
            choices.append(self._choice(index, shown, texts.each[index], texts.finish[index]))
        return self._document(pending, choices, usage=_usage(texts, pending))

    def chunks(
        self, pieces: Sequence[Piece] | None, texts: Collected, pending: PendingTexts
    ) -> Iterator[dict[str, Any]]:
        """Documents of what was added, one for each text that has grown or ended; at the end that of the tokens.

        Args:
            pieces: the additions; None at the end.
        """
        if pieces is None and self.counted:
            yield self._document(pending, [], chunk=True, usage=_usage(texts, pending))
        for index in dict.fromkeys(piece.text for piece in pieces or ()):
            own = [piece for piece in pieces or () if piece.text == index]
            text, finish = "".join(piece.added for piece in own), own[-1].finish
            tokens = [token for piece in own for token in piece.tokens]
            if text or tokens or finish:
                role = {} if any(texts.texts[index]) else {"role": "assistant"}
                shown = {"delta": role | {"content": text}} if self.chat else {"text": text}
                choice = self._choice(index, shown, tokens, finish)
                yield self._document(pending, [choice], chunk=True, **({"usage": None} if self.counted else {}))

    def _choice(
        self, index: int, shown: dict[str, Any], tokens: Sequence[WrittenToken], finish: Finish | None
    ) -> dict[str, Any]:
        logprobs = (_of_chat(tokens) if self.chat else _of_completion(tokens)) if self.logprobs else None
        return {"index": index, **shown, "logprobs": logprobs, "finish_reason": finish}

    def _document(
        self, pending: PendingTexts, choices: list[Any], *, chunk: bool = False, **more: Any
    ) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if self.chat else "text_completion"
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": f"s3t-generation-{pending.generation}",
            "choices": choices,
            **more,
        }


def _of_chat(tokens: Sequence[WrittenToken]) -> dict[str, Any]:
    def shown(one: Likely) -> dict[str, Any]:
        return {"token": one.text, "logprob": one.logprob, "bytes": list(one.bytes)}

    content = [shown(token.chosen) | {"top_logprobs": list(map(shown, token.likeliest))} for token in tokens]
    return {"content": content, "refusal": None}


def _of_completion(tokens: Sequence[WrittenToken]) -> dict[str, Any]:
    return {
        "tokens": [token.chosen.text for token in tokens],
        "token_logprobs": [token.chosen.logprob for token in tokens],
        "top_logprobs": [
            {one.text: one.logprob for one in (token.chosen, *reversed(token.likeliest))} for token in tokens
        ],
        "text_offset": [token.offset for token in tokens],
    }


def _usage(texts: Collected, pending: PendingTexts) -> dict[str, int]:
    written, prompt_tokens = sum(texts.tokens), pending.prompt_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": written,
        "total_tokens": prompt_tokens + written,
    }


class TextsResponse(Response):
    """Texts that deletions wait for until they are handed to the connection."""

    def __init__(
        self, served: ServedRun, prompts: IngestedInputs, sampling: Sampling, shape: Shape, *, stream: bool
    ) -> None:
        super().__init__()
        self._served = served
        self._prompts, self._sampling = prompts, sampling
        self._shape = shape
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; and as long as nothing has left, answer again if a deletion overtakes it.

        Each takes a stage, so there is an end. A client that goes away gets nothing, and its texts end.
        """
        gone = asyncio.ensure_future(_disconnected(receive))
        answer = self._parts if self._stream else self._whole
        try:
            done = False
            while not done:
                order = self._served.scribe.order(self._prompts, self._sampling)
                try:
                    done = await answer(order, gone, scope, send)
                finally:
                    order.leave()
        except Gone:
            return
        finally:
            gone.cancel()

    async def _whole(self, order: Order, gone: asyncio.Future[None], scope: Scope, send: Send) -> bool:
        """Send finished texts; False if a deletion has overtaken them."""
        texts = Collected(order.count)
        try:
            while (pieces := await order.part(gone)) is not None:
                texts.add(pieces)
        except OvertakenError:
            return False
        pending = order.pending
        body = json.dumps(self._shape.whole(texts, pending)).encode()
        if not await may_leave(pending):
            return False
        handover = Handover(pending, scope, send, seconds=self._served.settings.send_seconds)
        await handover.whole(body, generation=pending.generation, count=order.count)
        self._served.metrics.answered(self._served.name, order.count)
        return True

    async def _parts(self, order: Order, gone: asyncio.Future[None], scope: Scope, send: Send) -> bool:
        """Send parts until the end, or an error; False if a deletion has come before the first."""
        texts = Collected(order.count)
        handover: Handover | None = None
        try:
            pieces: Sequence[Piece] | None = ()
            while pieces is not None:
                pieces = await order.part(gone)
                pending = order.pending
                for document in self._shape.chunks(pieces, texts, pending):
                    if not await may_leave(pending):
                        raise OvertakenError
                    if handover is None:
                        handover = Handover(pending, scope, send, seconds=self._served.settings.send_seconds)
                        await handover.begin(EVENTS, generation=pending.generation, count=order.count)
                    await handover.part(_event(document))
                texts.add(pieces or ())
        except S3TError as error:
            order.leave()  # nothing that was written leaves any more
            if handover is not None:
                logging.getLogger("s3t_server").info("a stream has ended early: %s", type(error).__name__)
                await handover.part(_event({"error": refusal_to(error).for_openai()}), last=True)
            elif not isinstance(error, OvertakenError):
                raise
            return handover is not None
        if handover is not None:
            await handover.part(b"data: [DONE]\n\n", last=True)
            self._served.metrics.answered(self._served.name, order.count)
        return True


async def _disconnected(receive: Receive) -> None:
    """Wait until the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()  # in ASCII: clients may take rare characters for ends of lines
