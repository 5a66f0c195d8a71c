"""Control tokens of a tokenizer, told from the same letters in what people write.

A tokenizer takes the letters of a control token (`<|im_end|>`, `[SEP]`, `</s>`) for the token wherever they stand, so
that anybody could end a turn or begin another's. Here it knows control tokens by marks alone, drawn in each process:
what people write is letters, also what a normaliser turns into a token, and what a chat template writes is marked.
"""

from __future__ import annotations

import copy
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from tokenizers import Tokenizer

from s3t.errors import RecipeError

_BRACKETED = re.compile(r"<.+>|\[.+\]")
_PRIVATE_USE, _MARKS = 0xF0000, 0x100000
"""First characters of Unicode's planes for private use, which no tokenizer normalises."""


class ControlTokens:
    """The control tokens of a tokenizer: the special ones, and added ones in brackets or in a chat template.

    Args:
        plain: people's letters make none of them; else they do, as for transformers.
    """

    def __init__(self, tokenizer: Any, *, plain: bool) -> None:
        self._tokenizer = tokenizer
        self.plain = plain
        templates = tokenizer.chat_template or ""
        written = "\0".join(templates.values()) if isinstance(templates, dict) else templates
        self._ids = {
            token.content: number
            for number, token in sorted(tokenizer.added_tokens_decoder.items())
            if token.content.strip()
            and (token.special or token.content in written or _BRACKETED.fullmatch(token.content))
        }
        drawn = "".join(chr(_PRIVATE_USE + secrets.randbelow(0xFFF0)) for _ in range(4))
        self._marks = {text: f"{drawn}{chr(_MARKS + place)}" for place, text in enumerate(self._ids)}
        self._begin, self._end = (f"{drawn}{chr(_MARKS + 0xFFF0 + place)}" for place in range(2))
        longest_first = sorted(map(re.escape, self._ids), key=len, reverse=True)
        self._texts = re.compile("|".join(longest_first) or "(?!)")

    @property
    def tells_apart(self) -> bool:
        """False if marks would not be known: the tokenizer is none of the library `tokenizers`."""
        return not self.plain or bool(self._tokenizer.is_fast)

    @cached_property
    def tokenize(self) -> Any:
        """The tokenizer, to be called. What it makes of people's texts is plain; what `read` gives has its tokens."""
        if not self.plain:
            return self._tokenizer
        if not self._tokenizer.is_fast:
            return partial(self._tokenizer, split_special_tokens=True)
        try:
            changed = Tokenizer.from_str(_renamed(self._tokenizer.backend_tokenizer.to_str(), self._marks))
        except Exception as error:  # the library has no class of its own
            problem = f"base_model: control tokens of its tokenizer cannot be told from texts ({error})"
            raise RecipeError("the recipe", f"{problem}; name another model, or set special_tokens: control") from error
        tokenizer = copy.copy(self._tokenizer)
        tokenizer._tokenizer = changed
        return tokenizer

    def wrapped(self, chat: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
        """A chat in which the letters of control tokens stand between marks, for a template."""
        if not self.plain:
            return [dict(message) for message in chat]
        between = f"{self._begin}\\g<0>{self._end}"
        return [{name: self._texts.sub(between, value) for name, value in message.items()} for message in chat]

    def read(self, rendered: str) -> str:
        """A template's text of a wrapped chat, with the template's own control tokens as marks."""
        if not self.plain:
            return rendered
        between = re.compile(
            f"{self._begin}({self._texts.pattern}){self._end}|{self._begin}|{self._end}|({self._texts.pattern})"
        )
        return between.sub(lambda found: self._marks[found[2]] if found[2] else found[1] or "", rendered)

    def shown(self, marked: str) -> str:
        """The same with the letters of control tokens for their marks."""
        for text, mark in self._marks.items():
            marked = marked.replace(mark, text)
        return marked

    def first_in(self, text: str) -> int | None:
        """The id of the first control token of a template's text."""
        known = {self._marks[name] if self.plain else name: number for name, number in self._ids.items()}
        found = re.search("|".join(sorted(map(re.escape, known), key=len, reverse=True)) or "(?!)", text)
        return None if found is None else known[found[0]]


def _renamed(tokenizer: str, names: Mapping[str, str]) -> str:
    """A tokenizer, as JSON, whose tokens have other names: it finds these in texts, and makes none of the old."""
    parts = json.loads(tokenizer) | {"truncation": None, "padding": None}
    for token in parts["added_tokens"]:
        if token["content"] in names:
            token |= {"content": names[token["content"]], "normalized": False}
    model = parts["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(piece, piece): number for piece, number in vocabulary.items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        model["merges"] = [pair for pair in pairs if not {*pair, "".join(pair)} & names.keys()]
    return json.dumps(parts)
