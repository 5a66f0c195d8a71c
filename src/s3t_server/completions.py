"""Texts for OpenAI's clients: `/v1/completions` and `/v1/chat/completions`, whole or as server-sent events.

Fields that change nothing here are ignored; what would change the text and cannot be honoured is refused.
"""

import json
import logging
import secrets
import time
import uuid
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import Field, StrictBool, StrictInt, StrictStr, WithJsonSchema

from s3t.errors import OvertakenError, S3TError
from s3t.prediction.generation import Finish, Likely, Piece, Sampling, WrittenToken
from s3t.records.ingest import IngestedInputs
from s3t.run.pending import PendingTexts
from s3t.run.writer import Collected
from s3t_server.answering import EVENTS, FencedResponse, check_model, may_leave
from s3t_server.documents import ForeignBody, RequestBody
from s3t_server.problems import Refused, refusal_of, wrong_input
from s3t_server.routes import OF_A_BODY, SHAPES, Served, group, refusals
from s3t_server.served import ServedRun
from s3t_server.writing import Order

DEFAULT_TOKENS = 16
"""Tokens of a completion whose request names none, as OpenAI has it."""
IGNORED = {
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("prediction", "request_id", "parallel_tool_calls"),
}
"""Fields that change no text here, whatever they say."""
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("top_logprobs", "audio", "reasoning_effort", "verbosity", "web_search_options"), ()),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "min_p", "min_tokens", "priority"), (0,)),
    **dict.fromkeys(("tools", "functions", "stop_token_ids"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("echo", "ignore_eos"), (False,)),
    **dict.fromkeys(("best_of", "repetition_penalty"), (1,)),
    "suffix": ("",),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "top_k": (0, -1),
}
"""Fields of OpenAI, and of vLLM, that cannot be honoured, and their values that change nothing; null is always one."""
_TEXT = {"type": "string"}
_ROW = {"type": "object", "description": "A row with the columns of the recipe's template."}
_Likeliest = Annotated[StrictInt, Field(ge=0, le=20)] | None
_Stop = Annotated[StrictStr, Field(min_length=1, max_length=1000)]


class StreamOptions(RequestBody):
    """Options of a stream."""

    include_usage: StrictBool | None = Field(default=None, description="Count tokens in an event of its own, the last.")
    include_obfuscation: Literal[False] | None = None
    continuous_usage_stats: Literal[False] | None = None


class TextRequest(ForeignBody):
    """Fields of both routes."""

    ignored = IGNORED
    without_effect = WITHOUT_EFFECT

    model: StrictStr | None = Field(default=None, description="The run's name, as GET /v1/models has it.")
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = Field(default=None, description="Tokens of a text at most.")
    temperature: Annotated[float, Field(strict=True, ge=0)] | None = Field(
        default=None, description="0: the likeliest token each time. Without it, 1."
    )
    top_p: Annotated[float, Field(strict=True, gt=0, le=1)] | None = Field(default=None, description="Without it, 1.")
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = Field(
        default=None, description="Texts at which a text ends; they are no part of it."
    )
    seed: StrictInt | None = Field(
        default=None, description="Seed of the random draws. Without it, another one each time."
    )
    n: Annotated[StrictInt, Field(ge=1)] | None = Field(default=None, description="Texts after each prompt.")
    stream: StrictBool | None = Field(default=None, description="Send the text in parts, as server-sent events.")
    stream_options: StreamOptions | None = None


class CompletionRequest(TextRequest):
    """Prompts to write after."""

    logprobs: _Likeliest = Field(
        default=None, description="Tell each token's probability, and so many of the likeliest tokens at its place."
    )
    # Checked by hand: of a long list pydantic would report each element.
    prompt: Annotated[
        Any,
        WithJsonSchema({"anyOf": [_TEXT, _ROW, {"type": "array", "items": {"anyOf": [_TEXT, _ROW]}, "minItems": 1}]}),
    ]


class ChatRequest(TextRequest):
    """A chat whose next turn is the assistant's."""

    max_completion_tokens: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="The same as max_tokens."
    )
    logprobs: StrictBool | None = Field(default=None, description="Tell each token's probability.")
    top_logprobs: _Likeliest = Field(default=None, description="With logprobs: so many of the likeliest tokens, too.")
    messages: Annotated[
        Any,
        WithJsonSchema(
            {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["role", "content"],
                    "properties": {
                        "role": _TEXT,
                        "content": {"anyOf": [_TEXT, {"type": "array", "items": {"type": "object"}}]},
                    },
                },
                "description": "Each with a role and a content: a text, or a list of parts of the type text.",
            }
        ),
    ]


PROMPTS, CHATS = group(SHAPES, "predict"), group(SHAPES, "predict")
_RESPONSES = refusals(*OF_A_BODY, 404) | {
    200: {"description": "The text, or its parts", "model": dict[str, Any], "content": {EVENTS: {}}}
}


@PROMPTS.post("/v1/completions", summary="Write after prompts, as OpenAI does", responses=_RESPONSES)
def complete(asked: CompletionRequest, served: Served) -> Response:
    """The text after each prompt, by the newest generation, which `system_fingerprint` and a header name."""
    prompts = asked.prompt if isinstance(asked.prompt, list) else [asked.prompt]
    if not prompts or not all(isinstance(prompt, str | dict) for prompt in prompts):
        raise wrong_input(["prompt: is no text, row, or list of them; tokens are not taken"])
    most = asked.max_tokens or min(DEFAULT_TOKENS, served.settings.max_new_tokens)
    return _response(served, asked, prompts, most=most, logprobs=asked.logprobs)


@PROMPTS.post("/v1/chat/completions", include_in_schema=False)
def no_chat() -> Response:
    raise Refused(HTTPStatus.NOT_FOUND, "this run has learned texts, not chats; send `prompt` to /v1/completions")


@CHATS.post("/v1/chat/completions", summary="Write after a chat, as OpenAI does", responses=_RESPONSES)
def chat(asked: ChatRequest, served: Served) -> Response:
    """The assistant's next turn, by the newest generation, which `system_fingerprint` and a header name."""
    most = min(filter(None, (asked.max_tokens, asked.max_completion_tokens)), default=None)
    if asked.top_logprobs is not None and not asked.logprobs:
        raise wrong_input(["top_logprobs: tells of tokens that are not asked for; give logprobs: true, too"])
    logprobs = asked.top_logprobs or 0 if asked.logprobs else None
    return _response(served, asked, [_messages(asked.messages)], most=most, logprobs=logprobs)


@CHATS.post("/v1/completions", include_in_schema=False)
def no_completion() -> Response:
    raise Refused(HTTPStatus.NOT_FOUND, "this run has learned chats; send `messages` to /v1/chat/completions")


def _response(
    served: ServedRun, asked: TextRequest, prompts: list[Any], *, most: int | None, logprobs: int | None
) -> Response:
    check_model(served, asked.model)
    longest = served.settings.max_new_tokens
    problems = [] if most is None or most <= longest else [f"max_tokens: give at most {longest}"]
    if asked.stream_options is not None and not asked.stream:
        problems.append("stream_options: are of a stream; leave them out, or give stream: true")
    asked.check_others(problems)
    stop = asked.stop if isinstance(asked.stop, list) else [asked.stop] if asked.stop else []
    sampling = Sampling(
        max_new_tokens=longest if most is None else most,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        stop=tuple(stop),
        seed=secrets.randbelow(2**63) if asked.seed is None else asked.seed % 2**63,
        n=asked.n or 1,
        logprobs=logprobs,
    )
    return TextsResponse(served, asked, served.run.parts.writer.checked(prompts), sampling)


def _messages(messages: Any) -> list[Any]:
    """Messages with contents of one text each; the run checks all else."""
    if not isinstance(messages, list):
        raise wrong_input(["messages: is no list of messages"])
    found, problems = [], []
    for place, message in enumerate(messages):
        if isinstance(message, dict) and isinstance(parts := message.get("content"), list):
            texts = [part["text"] for part in parts if _is_text(part)]
            if len(texts) < len(parts):
                problems.append(f"messages.{place}.content: has parts that are not of the type text")
            message = message | {"content": "\n".join(texts)}  # as vLLM does
        found.append(message)
    if problems:
        raise wrong_input(problems)
    return found


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


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


class TextsResponse(FencedResponse):
    """Texts that deletions wait for until they are handed to the connection.

    A whole text that a deletion overtakes is written anew. What has left of a stream cannot be taken back, so an error
    ends it.
    """

    def __init__(self, served: ServedRun, asked: TextRequest, prompts: IngestedInputs, sampling: Sampling) -> None:
        super().__init__(served)
        self._prompts, self._sampling, self._stream = prompts, sampling, asked.stream is True
        self._chat, options = isinstance(asked, ChatRequest), asked.stream_options
        self._counts_tokens = options is not None and options.include_usage is True
        self._id, self._created = uuid.uuid4().hex, int(time.time())
        self._order: Order | None = None

    def _waits(self) -> bool:
        return self._order is None or self._order.batch is None

    async def _attempt(self) -> bool:
        self._order = order = self._served.scribe.order(self._prompts, self._sampling, caller=self._caller)
        try:
            return await (self._streamed(order) if self._stream else self._collected(order))
        finally:
            order.leave()

    async def _collected(self, order: Order) -> bool:
        """Send finished texts; False if a deletion has overtaken them."""
        texts = Collected(order.count)
        try:
            while (pieces := await order.part()) is not None:
                texts.add(pieces)
        except OvertakenError:
            return False
        pending = order.pending
        body = json.dumps(self._finished(texts, pending)).encode()
        return await self._whole(pending, body, generation=pending.generation, count=order.count)

    async def _streamed(self, order: Order) -> bool:
        """Send parts until the end, or an error; False if a deletion has come before the first."""
        texts, begun = Collected(order.count), False
        try:
            pieces: Sequence[Piece] | None = ()
            while pieces is not None:
                pieces = await order.part()
                pending = order.pending
                for document in self._chunks(pieces, texts, pending):
                    if not await may_leave(pending):
                        raise OvertakenError
                    if not begun:
                        begun = True
                        await self._begin(pending, EVENTS, generation=pending.generation, count=order.count)
                    await self._part(pending, _event(document))
                texts.add(pieces or ())
        except S3TError as error:
            order.leave()  # nothing that was written leaves any more
            if begun:
                logging.getLogger("s3t_server").info("a stream has ended early: %s", type(error).__name__)
                await self._part(order.pending, _event({"error": refusal_of(error).for_openai()}), last=True)
            elif not isinstance(error, OvertakenError):
                raise
            return begun
        if begun:
            await self._part(order.pending, b"data: [DONE]\n\n", last=True)
            self._served.metrics.answered(self._served.name, order.count)
        return True

    def _finished(self, texts: Collected, pending: PendingTexts) -> dict[str, Any]:
        choices: list[dict[str, Any]] = []
        for index, parts in enumerate(texts.texts):
            text = "".join(parts)
            message = {"role": "assistant", "content": text, "refusal": None}
            shown = {"message": message} if self._chat else {"text": text}
            choices.append(self._choice(index, shown, texts.each[index], texts.finish[index]))
        return self._document(pending, choices, usage=_usage(texts, pending))

    def _chunks(
        self, pieces: Sequence[Piece] | None, texts: Collected, pending: PendingTexts
    ) -> Iterator[dict[str, Any]]:
        """Documents of what was added, one for each text that has grown or ended; at the end that of the tokens.

        Args:
            pieces: the additions; None at the end.
        """
        if pieces is None and self._counts_tokens:
            yield self._document(pending, [], chunk=True, usage=_usage(texts, pending))
        for index in dict.fromkeys(piece.text for piece in pieces or ()):
            own = [piece for piece in pieces or () if piece.text == index]
            text, finish = "".join(piece.added for piece in own), own[-1].finish
            tokens = [token for piece in own for token in piece.tokens]
            if text or tokens or finish:
                role = {} if any(texts.texts[index]) else {"role": "assistant"}
                shown = {"delta": role | {"content": text}} if self._chat else {"text": text}
                choice = self._choice(index, shown, tokens, finish)
                yield self._document(pending, [choice], chunk=True, **({"usage": None} if self._counts_tokens else {}))

    def _choice(
        self, index: int, shown: dict[str, Any], tokens: Sequence[WrittenToken], finish: Finish | None
    ) -> dict[str, Any]:
        told = _of_chat(tokens) if self._chat else _of_completion(tokens)
        logprobs = None if self._sampling.logprobs is None else told
        return {"index": index, **shown, "logprobs": logprobs, "finish_reason": finish}

    def _document(
        self, pending: PendingTexts, choices: list[Any], *, chunk: bool = False, **more: Any
    ) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if self._chat else "text_completion"
        return {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{self._id}",
            "object": kind,
            "created": self._created,
            "model": self._served.name,
            "system_fingerprint": f"s3t-generation-{pending.generation}",
            "choices": choices,
            **more,
        }


def _event(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()  # in ASCII: clients may take rare characters for ends of lines
