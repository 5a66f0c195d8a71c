"""Prompts, completions, chats and texts as tokens of a language model, and which of them are learned.

Each part of a record (prompt, completion, turn of a chat) is tokenised by itself. So a model writes after the very
tokens that it has learned after.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import torch
from jinja2 import TemplateError
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from s3t.errors import DataError, RecipeError
from s3t.models.encode import TRIAL_TEXTS, Cut, Encoded, load_tokenizer
from s3t.recipe import Language
from s3t.records.chats import ASSISTANT
from s3t.tasks.task import ANSWERED
from s3t.wording import counted


class Part(NamedTuple):
    """A part of a record's text."""

    text: str
    learned: bool


class LanguageEncoder:
    """Tokenises records of a language model.

    A token is answered where the next one is learned. Records are cut at their end to `max_length` tokens; batches are
    padded on the right.
    """

    def __init__(self, folder: Path, settings: Language, *, roles: Collection[str] = ()) -> None:
        """Load the tokenizer.

        Args:
            folder: the base model's.
            settings: the recipe's.
            roles: columns that records will have; those of a chat need a chat template.

        Raises:
            RecipeError: there is no tokenizer, or it lacks what these records need.
        """
        self._tokenizer = load_tokenizer(folder)
        self._max_length = settings.max_length
        self._learns_all = settings.loss == "all"
        problems = []
        if self._tokenizer.eos_token_id is None:
            problems.append("base_model: its tokenizer has no end-of-text token (eos_token), so no text would end")
        if "messages" in roles and self._tokenizer.chat_template is None:
            problems.append(
                "columns.messages: the base model's tokenizer has no chat template; name a model that was tuned for "
                "chats, or give prompt and completion"
            )
        if problems:
            raise RecipeError("the recipe", problems)
        self.end = int(self._tokenizer.eos_token_id)
        begun = self._tokenizer("")["input_ids"][:1]
        self._begin: list[int] = begun if begun == [self._tokenizer.bos_token_id] else []

    @property
    def pad_token_id(self) -> int:
        """Id of the padding token, or of the end of text: nothing looks at it."""
        own = self._tokenizer.pad_token_id
        return self.end if own is None else int(own)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer."""
        return self._tokenizer

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Token ids, cut to the recipe's length, without padding; and at which tokens the model answers.

        Raises:
            DataError: the tokenizer's chat template refuses a chat.
        """
        return [self._encoded(*pair) for pair in self._tokens(rows)]

    def encode_later(self, rows: pa.Table) -> list[Encoded]:
        """Token ids take no more memory than texts."""
        return self.encode(rows)

    def answers(self, rows: pa.Table) -> list[int]:
        """Number of learned tokens of each record within its length, but for the first token."""
        return [sum(learned[1 : self._max_length]) for _, learned in self._tokens(rows)]

    def places(self, record: Encoded) -> range:
        """The learned tokens, in their order."""
        return range(int(record[ANSWERED].sum()))

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        """Token ids and masks, batch x longest."""
        padding = {"input_ids": self.pad_token_id, "attention_mask": 0, ANSWERED: False}
        return {
            name: pad_sequence([record[name] for record in records], batch_first=True, padding_value=value)
            for name, value in padding.items()
        }

    def stand_in(self, like: Encoded, count: int) -> None:
        """Masks are made from the tokens."""
        return

    def cut(self, rows: pa.Table) -> Cut:
        """Records with more tokens than the recipe's length, and those without a learned token within it, encoded a
        part at a time to save memory.
        """
        longer = unlearned = 0
        for start in range(0, rows.num_rows, 1000):
            for ids, learned in self._tokens(rows.slice(start, 1000)):
                longer += len(ids) > self._max_length
                unlearned += not any(learned[1 : self._max_length])
        return Cut(longer, unlearned)

    def trial(self, roles: Sequence[str]) -> pa.Table:
        """Texts of one to ten words; chats of one question."""
        chats = [
            json.dumps([{"role": "user", "content": "one two"}, {"role": ASSISTANT, "content": text}])
            for text in TRIAL_TEXTS
        ]
        return pa.table({role: chats if role == "messages" else TRIAL_TEXTS for role in roles})

    def prompts(self, rows: pa.Table) -> list[list[int]]:
        """Token ids after which a model writes: of a prompt, a text, or a chat up to the assistant's turn.

        Raises:
            DataError: the tokenizer's chat template refuses a chat.
        """
        if "messages" in rows.schema.names:
            chats = [json.loads(chat) for chat in rows["messages"].to_pylist()]
            return self._ids([self._rendered(chat, ask=True) for chat in chats])
        (name,) = (name for name in ("prompt", "text") if name in rows.schema.names)
        return [self._begin + ids for ids in self._ids(rows[name].to_pylist())]

    def exchanges(self, rows: pa.Table) -> tuple[list[list[int]], list[str]]:
        """Tokens of each record after which a model writes, and the text that the data has there.

        That text is the completion, or the last turn of the assistant.

        Raises:
            DataError: as `prompts`.
        """
        names = rows.schema.names
        if "prompt" in names:
            return self.prompts(rows), rows["completion"].to_pylist()
        chats, expected = [], []
        for chat in map(json.loads, rows["messages"].to_pylist()):
            last = max(place for place, message in enumerate(chat) if message["role"] == ASSISTANT)
            chats.append(json.dumps(chat[:last]))
            expected.append(chat[last]["content"])
        return self.prompts(pa.table({"messages": chats})), expected

    def _encoded(self, ids: list[int], learned: list[bool]) -> Encoded:
        kept = ids[: self._max_length] or [self.pad_token_id]
        answered = [*learned[1 : len(kept)], False]
        return {
            "input_ids": torch.tensor(kept),
            "attention_mask": torch.ones(len(kept), dtype=torch.int64),
            ANSWERED: torch.tensor(answered),
        }

    def _tokens(self, rows: pa.Table) -> Iterator[tuple[list[int], list[bool]]]:
        """Yields each record's token ids, and whether each is learned."""
        parts = [list(self._parts(row)) for row in rows.to_pylist()]
        ids = iter(self._ids([part.text for record in parts for part in record]))
        whole = "messages" in rows.schema.names  # a chat template writes beginnings and ends itself
        for record in parts:
            tokens = [] if whole else list(self._begin)
            learned = [False] * len(tokens)
            for part in record:
                found = next(ids)
                tokens += found
                learned += [part.learned] * len(found)
            if not whole:
                tokens.append(self.end)
                learned.append(True)
            yield tokens, learned

    def _ids(self, texts: list[str]) -> list[list[int]]:
        found: list[list[int]] = (
            self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
        )
        return found

    def _parts(self, row: Mapping[str, str]) -> Iterator[Part]:
        if "messages" in row:
            yield from self._turns(json.loads(row["messages"]))
        elif "prompt" in row:
            yield Part(row["prompt"], self._learns_all)
            yield Part(row["completion"], True)
        else:
            yield Part(row["text"], True)

    def _turns(self, chat: list[dict[str, str]]) -> Iterator[Part]:
        """A chat as its template writes it, cut before and after each turn of the assistant."""
        whole, written = self._rendered(chat), ""
        for place, message in enumerate(chat):
            if message["role"] != ASSISTANT:
                continue
            before = self._rendered(chat[:place], ask=True) if place else ""
            through = self._rendered(chat[: place + 1])
            if not (whole.startswith(through) and through.startswith(before) and before.startswith(written)):
                raise DataError(
                    "the data",
                    "the base model's chat template writes a turn in another way once another follows, so it cannot be "
                    "told which tokens are the assistant's; keep one turn of the assistant a chat, its last",
                )
            yield Part(before[len(written) :], self._learns_all)
            yield Part(through[len(before) :], True)
            written = through
        if len(whole) > len(written):
            yield Part(whole[len(written) :], self._learns_all)

    def _rendered(self, chat: list[dict[str, str]], *, ask: bool = False) -> str:
        """A chat as text; to ask for the assistant's turn, with its beginning."""
        try:
            text: str = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=ask)
        except (TemplateError, TypeError, ValueError):
            pass  # its message may quote the chat
        else:
            return text
        roles = ", ".join(dict.fromkeys(message["role"] for message in chat if message["role"] in _ROLES))
        raise DataError(
            "the data",
            f"the base model's chat template refuses a chat of {counted(len(chat), 'message')} (roles: {roles}); many "
            "templates want user and assistant in turn, and some no system; bring the chats into that form",
        )


_ROLES = ("system", "user", ASSISTANT, "tool")
"""Roles that a message may name; others could be anything."""
