"""Requests for texts as OpenAI's clients send them: `/v1/completions` and `/v1/chat/completions`.

Fields that change nothing here are ignored; what would change the text and cannot be honoured is refused.
"""

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema

from s3t.prediction.generation import Sampling
from s3t.wording import counted
from s3t_server.answering import EVENTS, ServedRun, check_model
from s3t_server.documents import RequestBody
from s3t_server.problems import Refused, wrong_input
from s3t_server.routes import OF_A_BODY, problem_responses
from s3t_server.texts import Shape, TextsResponse

DEFAULT_TOKENS = 16
"""Tokens of a completion whose request names none, as OpenAI has it."""
IGNORED = {
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("prediction", "request_id", "parallel_tool_calls"),
}
"""Fields that change no text here, whatever they say."""
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "top_logprobs": (),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "priority": (0,),
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


class TextRequest(BaseModel):
    """Fields of both routes. Others are ignored if they change nothing, and else refused."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False})

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


def add_texts(router: APIRouter, served: ServedRun) -> None:
    """Add both routes. The run answers one; the other refuses with 404 and names it."""

    def complete(asked: CompletionRequest) -> Response:
        """The text after each prompt, by the newest generation, which `system_fingerprint` and a header name."""
        prompts = asked.prompt if isinstance(asked.prompt, list) else [asked.prompt]
        if not prompts or not all(isinstance(prompt, str | dict) for prompt in prompts):
            raise wrong_input(["prompt: is no text, row, or list of them; tokens are not taken"])
        most = asked.max_tokens or min(DEFAULT_TOKENS, served.settings.max_new_tokens)
        return _response(served, asked, prompts, most=most, logprobs=asked.logprobs, chat=False)

    def chat(asked: ChatRequest) -> Response:
        """The assistant's next turn, by the newest generation, which `system_fingerprint` and a header name."""
        most = min(filter(None, (asked.max_tokens, asked.max_completion_tokens)), default=None)
        if asked.top_logprobs is not None and not asked.logprobs:
            raise wrong_input(["top_logprobs: tells of tokens that are not asked for; give logprobs: true, too"])
        logprobs = asked.top_logprobs or 0 if asked.logprobs else None
        return _response(served, asked, [_messages(asked.messages)], most=most, logprobs=logprobs, chat=True)

    chats = served.run.recipe.columns.messages is not None
    own, other = ("/v1/chat/completions", "/v1/completions")[:: 1 if chats else -1]
    described = {"description": "The text, or its parts", "model": dict[str, Any], "content": {EVENTS: {}}}
    router.post(
        own,
        summary="Write after a chat, as OpenAI does" if chats else "Write after prompts, as OpenAI does",
        responses=problem_responses(*OF_A_BODY, HTTPStatus.NOT_FOUND) | {200: described},
    )(chat if chats else complete)

    @router.post(other, include_in_schema=False)
    def other_kind() -> Response:
        learned, field = ("chats", "messages") if chats else ("texts, not chats", "prompt")
        raise Refused(HTTPStatus.NOT_FOUND, f"this run has learned {learned}; send `{field}` to {own}")


def _response(
    served: ServedRun,
    asked: TextRequest,
    prompts: list[Any],
    *,
    most: int | None,
    logprobs: int | None,
    chat: bool,
) -> Response:
    """The response to a request whose prompts are a list."""
    check_model(served, asked.model)
    longest = served.settings.max_new_tokens
    problems = [] if most is None or most <= longest else [f"max_tokens: give at most {longest}"]
    if asked.stream_options is not None and not asked.stream:
        problems.append("stream_options: are of a stream; leave them out, or give stream: true")
    if problems := [*problems, *problems_of_others(asked.model_extra or {}, IGNORED, WITHOUT_EFFECT)]:
        raise wrong_input(problems)
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
    options = asked.stream_options
    counted = options is not None and options.include_usage is True
    return TextsResponse(
        served,
        served.writer.checked(prompts),
        sampling,
        Shape(chat=chat, model=served.name, counted=counted, logprobs=logprobs is not None),
        stream=asked.stream is True,
    )


def problems_of_others(
    fields: Mapping[str, Any], ignored: Collection[str], without_effect: Mapping[str, Sequence[Any]]
) -> list[str]:
    """Problems of other fields: one for each known field that cannot be honoured, one for all unknown ones."""
    problems, unknown = [], 0
    for name, value in fields.items():
        if value is None or name in ignored:
            continue
        if name not in without_effect:
            unknown += 1
        elif not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in without_effect[name]):
            values = " or ".join(map(json.dumps, without_effect[name]))
            problems.append(f"{name}: cannot be honoured; leave it out" + (f", or give {values}" if values else ""))
    if unknown:
        problems.append(f"body: has {counted(unknown, 'field')} that s3t does not know; send none of these")
    return problems


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
