"""Chats: lists of messages, each of a role and a content, kept as JSON in one form."""

from __future__ import annotations

import json
from typing import Any

from s3t.json_text import JsonError, read_json

ASSISTANT = "assistant"
"""The role whose turns a language model learns to write."""


def chat_of(cell: Any) -> tuple[str | None, str]:
    """A chat in its one form, and "" ; or None, and what is wrong with the cell, without a word of it.

    >>> chat_of([{"role": "user", "content": "Hi", "name": None}, {"role": "assistant", "content": "Hello"}])[0]
    '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]'
    >>> chat_of([{"role": "user", "content": "Hi"}])
    (None, 'has no turn of an assistant, so there is nothing to learn; drop the row')
    """
    messages, problem = messages_of(cell)
    if problem:
        return None, problem
    if not any(message["role"] == ASSISTANT for message in messages):
        return None, "has no turn of an assistant, so there is nothing to learn; drop the row"
    return chat_text(messages), ""


def question_of(cell: Any) -> tuple[str | None, str]:
    """A chat that an assistant is to answer, in its one form, and ""; or None, and what is wrong with the cell."""
    messages, problem = messages_of(cell)
    if not problem and messages[-1]["role"] == ASSISTANT:
        problem = "ends with the assistant's turn; end with the one that it is to answer"
    return (None, problem) if problem else (chat_text(messages), "")


def chat_text(messages: list[dict[str, str]]) -> str:
    """Messages as records keep them."""
    return json.dumps(messages, ensure_ascii=False)


def messages_of(cell: Any) -> tuple[list[dict[str, str]], str]:
    """The messages of a cell, and ""; or none, and what is wrong with it, without a word of it."""
    if isinstance(cell, str):
        try:
            cell = read_json(cell)
        except JsonError as error:
            problem = str(error)
            return [], problem if ";" in problem else "is no JSON; write a list of messages"
    if not isinstance(cell, list) or not cell:
        return [], "is no list of messages; fill or drop the row"
    messages: list[dict[str, str]] = []
    for place, message in enumerate(cell, start=1):
        problem = _problem(message)
        if problem:
            return [], f"message {place}: {problem}"
        messages.append({"role": message["role"], "content": message["content"]})
    return messages, ""


def _problem(message: Any) -> str:
    if not isinstance(message, dict):
        return "is no mapping; give each message role and content"
    for name in ("role", "content"):
        value = message.get(name)
        if not isinstance(value, str) or not value.strip():
            return f"has no {name}, or one that is no text; fill it, or drop the message"
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"has a {name} with half a surrogate pair, which is no text; correct it"
    more = [name for name, value in message.items() if name not in ("role", "content") and value is not None]
    if more:
        return f"has {len(more)} more fields than role and content, which s3t does not learn; take them out"
    return ""
