"""Prompts, completions, chats and texts as tokens of a language model, and which of them are learned.

A model writes after the very tokens that it has learned after. So prompt and completion are tokenised each by itself,
and a chat as its template writes it, whole, but where a token would reach from a request into the answer.
"""

from __future__ import annotations

import datetime
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import torch
from jinja2 import TemplateError
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from s3t.errors import DataError, RecipeError
from s3t.models.encoders import TRIAL_TEXTS, ControlTokens, Cut, Encoded, Encoder, letters, load_tokenizer, padded
from s3t.models.source import unfit
from s3t.recipe import Language, Recipe
from s3t.records.features import ASSISTANT
from s3t.tasks.task import ANSWERED
from s3t.wording import counted


class LanguageEncoder(Encoder):
    """Tokenises records of a language model.

    A token is answered where the next one is learned. Records are cut at their end to `max_length` tokens; batches are
    padded on the right. `roles` are columns that records will have; those of a chat need a chat template.
    """

    pad_token_id: int

    def __init__(self, folder: Path, settings: Language, *, roles: Collection[str] = ()) -> None:
        self.tokenizer = load_tokenizer(folder)
        self._max_length = settings.max_length
        self._learns_all = settings.loss == "all"
        problems = []
        if self.tokenizer.eos_token_id is None:
            problems.append("base_model: its tokenizer has no end-of-text token (eos_token), so no text would end")
        if "messages" in roles and self.tokenizer.chat_template is None:
            problems.append(
                "columns.messages: the base model's tokenizer has no chat template; name a model that was tuned for "
                "chats, or give prompt and completion"
            )
        self.date = settings.date if asks_for_date(self.tokenizer) else None
        """The day that the chat template writes, also where somebody asks a run of prompts in it."""
        if self.date is not None:
            self.tokenizer.chat_template = dated(self.tokenizer.chat_template, self.date)
        elif "messages" in roles and asks_for_date(self.tokenizer):
            problems.append("language.date: the base model's chat template writes a date; give one")
        if "messages" in roles and _DRAWS.search(json.dumps(self.tokenizer.chat_template)):
            problems.append("columns.messages: the base model's chat template draws at random; name another model")
        self._control = ControlTokens(self.tokenizer, plain=settings.special_tokens == "plain")
        if "messages" in roles and not self._control.tells_apart:
            problems.append(
                "language.special_tokens: of this slow tokenizer, what people write in chats cannot be told from its "
                "control tokens; name a model with a fast one, or set control"
            )
        if problems:
            raise unfit(*problems)
        self.end = int(self.tokenizer.eos_token_id)
        own = self.tokenizer.pad_token_id
        self.pad_token_id = self.end if own is None else int(own)  # nothing looks at it
        self._begin = self._prefix()
        self._header = self._after_answer = self._after_inner = ""
        self.turn_end: int | None = None
        """The token that ends a turn of the assistant in the chat template."""
        if "messages" in roles:
            self._read_template()

    def ends(self, own: int | list[int] | None = None) -> set[int]:
        """Tokens that end a text: the tokenizer's, and those of the model's own settings for writing."""
        ends = {self.end} if self.turn_end is None else {self.end, self.turn_end}
        return ends | {*(own if isinstance(own, list) else [] if own is None else [own])}

    @property
    def endless(self) -> bool:
        """True if the chat template ends a turn of the assistant with no control token."""
        return bool(self._header or self._after_answer) and self.turn_end is None

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Token ids, cut to the recipe's length, without padding; and at which tokens the model answers."""
        return [self._encoded(*pair) for pair in self._tokens(rows)]

    def _encoded(self, ids: list[int], learned: list[bool]) -> Encoded:
        kept = torch.tensor(ids[: self._max_length] or [self.pad_token_id])
        answered = torch.tensor([*learned[1 : len(kept)], False])
        return {"input_ids": kept, "attention_mask": torch.ones_like(kept), ANSWERED: answered}

    def answers(self, rows: pa.Table) -> list[int]:
        return [sum(learned[1 : self._max_length]) for _, learned in self._tokens(rows)]

    def places(self, record: Encoded) -> range:
        return range(int(record[ANSWERED].sum()))

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        return padded(records, {"input_ids": self.pad_token_id})

    def cut(self, rows: pa.Table) -> Cut:
        """Records with more tokens than max_length, and those without a learned token within it, encoded a
        part at a time to save memory.
        """
        longer, unlearned = list[bool](), 0
        for start in range(0, rows.num_rows, 1000):
            for ids, learned in self._tokens(rows.slice(start, 1000)):
                longer.append(len(ids) > self._max_length)
                unlearned += not any(learned[1 : self._max_length])
        return Cut(longer, unlearned)

    def trial(self, roles: Sequence[str]) -> pa.Table:
        chats = [
            json.dumps([{"role": "user", "content": "one two"}, {"role": ASSISTANT, "content": text}])
            for text in TRIAL_TEXTS
        ]
        return pa.table({role: chats if role == "messages" else TRIAL_TEXTS for role in roles})

    def prompts(self, rows: pa.Table) -> list[list[int]]:
        """Token ids after which a model writes: of a prompt, a text, or a chat up to the assistant's turn."""
        if "messages" in rows.schema.names:
            return [self._asked(json.loads(chat)) for chat in rows["messages"].to_pylist()]
        (name,) = (name for name in ("prompt", "text") if name in rows.schema.names)
        return [self._begin + ids for ids in self.tokens(letters(rows[name].to_pylist()))]

    def begun(self, text: str) -> list[int]:
        """Token ids of a text, or of a chat as `rendered` writes it, with the tokenizer's first ones, once."""
        (ids,) = self.tokens([text])
        return ids if ids[: len(self._begin)] == self._begin else self._begin + ids

    def exchanges(self, rows: pa.Table) -> tuple[list[list[int]], list[str]]:
        """Tokens of each record after which a model writes, and its completion, or last turn of the assistant."""
        names = rows.schema.names
        if "prompt" in names:
            return self.prompts(rows), rows["completion"].to_pylist()
        chats = [json.loads(chat) for chat in rows["messages"].to_pylist()]
        last = [_turns(chat)[-1] for chat in chats]
        return (
            [self._asked(chat[:place]) for chat, place in zip(chats, last, strict=True)],
            [chat[place]["content"] for chat, place in zip(chats, last, strict=True)],
        )

    def _tokens(self, rows: pa.Table) -> Iterator[tuple[list[int], list[bool]]]:
        """Yields each record's token ids, and whether each is learned."""
        names = rows.schema.names
        if "messages" in names:
            yield from self._chats([json.loads(chat) for chat in rows["messages"].to_pylist()])
            return
        prompts = self.tokens(letters(rows["prompt"].to_pylist())) if "prompt" in names else [[]] * rows.num_rows
        answers = self.tokens(letters(rows["completion" if "prompt" in names else "text"].to_pylist()))
        for prompt, ids in zip(prompts, answers, strict=True):
            learned = [False] * len(self._begin) + [self._learns_all] * len(prompt) + [True] * (len(ids) + 1)
            yield [*self._begin, *prompt, *ids, self.end], learned

    def tokens(self, texts: list[str]) -> list[list[int]]:
        """Token ids of `letters` or of what `rendered` gives, without any that a tokenizer adds."""
        if not texts:
            return []
        found: list[list[int]] = self._control.tokenize(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return found

    def _prefix(self) -> list[int]:
        """Tokens that the tokenizer puts before a text."""
        alone, whole = (self.tokenizer("a", add_special_tokens=added)["input_ids"] for added in (False, True))
        places = (place for place in range(len(whole)) if whole[place : place + len(alone)] == alone)
        return list(whole[: next(places, 0)])

    def _read_template(self) -> None:
        """Learn from a public chat how the template begins and ends a turn of the assistant."""
        typed = f"one{self.tokenizer.eos_token}"  # some templates cut or change all control tokens in messages
        question, answer = {"role": "user", "content": typed}, {"role": ASSISTANT, "content": "two"}
        bare, asked = self.rendered([question]), self.rendered([question], ask=True)
        whole = self.rendered([question, answer])
        if not whole.startswith(asked) or "two" not in whole[len(asked) :]:
            raise unfit(
                "columns.messages: the base model's chat template asks for a turn of the assistant in another way than "
                "it writes one, so a model would write after tokens that it has not learned after; name another model, "
                "or give prompt and completion"
            )
        self._header = asked.removeprefix(bare) if asked.startswith(bare) else ""
        self._after_answer = whole[whole.rindex("two") + len("two") :]
        self.turn_end = self._control.first_in(self._after_answer)
        # Some templates write the end of the whole text after the last turn, and not after those before.
        after, inner = self._control.through_first(self._after_answer), self.rendered([question, answer, question])
        self._after_inner = after if inner.rpartition("two")[2].startswith(after) else ""

    def _asked(self, chat: list[dict[str, str]]) -> list[int]:
        """Token ids of a chat up to the assistant's turn."""
        text = self.rendered(chat, ask=True)
        starts = [start for place in _turns(chat) if (start := self._start(chat, place, text)) is not None]
        return _joined(self.tokens, [text])(text, tuple(starts))

    def _chats(self, chats: list[list[dict[str, str]]]) -> Iterator[tuple[list[int], list[bool]]]:
        texts = [self.rendered(chat) for chat in chats]
        turns = [self._spans(chat, text) for chat, text in zip(chats, texts, strict=True)]
        before = (text[:end] for text, own in zip(texts, turns, strict=True) for end in {len(text), *sum(own, ())})
        joined = _joined(self.tokens, before)
        for text, own in zip(texts, turns, strict=True):
            starts = tuple(start for start, _ in own)
            ids = joined(text, starts)
            learned = [self._learns_all] * len(ids)
            for number, (start, end) in enumerate(own):
                first = len(joined(text[:start], starts[:number]))
                through = joined(text[:end], starts[: number + 1])
                differs = (place for place, both in enumerate(zip(ids, through, strict=False)) if both[0] != both[1])
                last = next(differs, min(len(ids), len(through)))
                learned[first:last] = [True] * (last - first)
            yield ids, learned

    def _spans(self, chat: list[dict[str, str]], text: str) -> list[tuple[int, int]]:
        """Characters at which turns of the assistant begin in a rendered chat, and end, with their end tokens."""
        turns: list[tuple[int, int]] = []
        for place in _turns(chat):
            start = self._start(chat, place, text)
            end = None if start is None else self._end(chat, place, text, start)
            if start is None or end is None or (turns and start < turns[-1][1]):
                raise DataError(
                    "the data",
                    "the base model's chat template writes a turn in another way once another follows, so it cannot be "
                    "told which tokens are the assistant's; keep one turn of the assistant a chat, its last",
                )
            turns.append((start, end))
        return turns

    def _start(self, chat: list[dict[str, str]], place: int, text: str) -> int | None:
        """Where a turn's content begins; None if the text does not begin as the template asks for the turn."""
        if place:
            before = self.rendered(chat[:place], ask=True)
            return len(before) if text.startswith(before) else None
        return max(0, text.find(self._header)) + len(self._header)

    def _end(self, chat: list[dict[str, str]], place: int, text: str, start: int) -> int | None:
        """Where a turn ends. A template may leave something out of a turn once another follows, such as reasoning."""
        through = self.rendered(chat[: place + 1])
        if text.startswith(through):
            return len(through)
        content = letters(chat[place]["content"]).strip()
        ends = [self._after_answer, *filter(None, [self._after_inner])]
        return next((start + len(content + end) for end in ends if text.startswith(content + end, start)), None)

    def shown(self, rendered: str) -> str:
        return self._control.shown(rendered)

    def rendered(self, chat: list[dict[str, str]], *, ask: bool = False, goes_on: bool = False) -> str:
        """A chat as text, for `tokens` and `begun` alone: what is no person's is marked. If it `goes_on`, the last turn
        has no end.
        """
        ways = {"tokenize": False, "add_generation_prompt": ask, "continue_final_message": goes_on}
        try:
            wrapped = self._control.wrapped(chat)
            chats = [chat] if wrapped == chat else [wrapped, chat]
            texts = [self.tokenizer.apply_chat_template(each, **ways) for each in chats]
        except (TemplateError, TypeError, ValueError):  # its message may quote the chat
            roles = ", ".join(dict.fromkeys(message["role"] for message in chat if message["role"] in _ROLES))
            problem = (
                f"refuses a chat of {counted(len(chat), 'message')} (roles: {roles}); many templates want user and "
                "assistant in turn, and some no system; bring the chats into that form"
            )
        else:
            if (marked := self._control.read(texts[0], texts[-1])) is not None:
                return marked
            problem = (
                "writes a message otherwise if its control tokens are letters: it cuts, changes or looks for them; set "
                "language.special_tokens: control if the data mean the tokens, else take them out, or name another "
                "model"
            )
        raise DataError("the data", f"the base model's chat template {problem}")


def _joined(
    tokenize: Callable[[list[str]], list[list[int]]], texts: Iterable[str]
) -> Callable[[str, tuple[int, ...]], list[int]]:
    """A function of a text and places in it, which gives tokens of which none reaches over a place.

    They are those of the whole text, if they begin with those of the text before each place; else they are cut there.
    Texts are tokenised once, these ones together.
    """
    unique = list(dict.fromkeys(texts))
    whole = dict(zip(unique, tokenize(unique), strict=True))

    @cache
    def ids(text: str, places: tuple[int, ...]) -> list[int]:
        found = whole[text] if text in whole else tokenize([text])[0]
        if not places:
            return found
        before, rest = ids(text[: places[-1]], places[:-1]), text[places[-1] :]
        if found[: len(before)] != before:
            # SentencePiece puts a blank before a text's first token, and none after a line's end.
            line, after = tokenize(["\n", f"\n{rest}"])
            found = before + (after[len(line) :] if after[: len(line)] == line else tokenize([rest])[0])
        return found

    return ids


def _turns(chat: Sequence[dict[str, str]]) -> list[int]:
    return [place for place, message in enumerate(chat) if message["role"] == ASSISTANT]


_DRAWS = re.compile(r"\|\s*random\b|\blipsum\b")
"""What Jinja offers a template to draw with."""


def asks_for_date(tokenizer: Any) -> bool:
    """True if a chat template writes the date of the day."""
    return "strftime_now" in json.dumps(tokenizer.chat_template)


def with_date(recipe: Recipe, folder: Path) -> Recipe:
    """A recipe whose chat template has a date, if it asks for one: this day's, unless one is given."""
    if recipe.task.inputs.section != "language" or recipe.language.date is not None:
        return recipe
    try:
        if not asks_for_date(load_tokenizer(folder)):
            return recipe
    except RecipeError:  # told with all other problems
        return recipe
    return recipe.model_copy(update={"language": recipe.language.model_copy(update={"date": datetime.date.today()})})


def dated(templates: Any, date: datetime.date) -> Any:
    """Chat templates, one or several, for which it is always one day, at midnight; names are English."""
    if isinstance(templates, dict):
        return {name: dated(template, date) for name, template in templates.items()}
    if isinstance(templates, list):  # as tokenizer_config.json has several
        return [template | {"template": dated(template["template"], date)} for template in templates]
    if "strftime_now" not in templates:
        return templates
    replaced = "".join(f" | replace('%{name}', '{text}')" for name, text in _strftime(date).items())
    percent = "\ue000"
    macro = f"format | replace('%%', '{percent}'){replaced} | replace('{percent}', '%')"
    # The line's end is left out by transformers' settings of Jinja; the template's first line stays one.
    return f"{{% macro strftime_now(format) %}}{{{{ {macro} }}}}{{% endmacro %}}\n{templates}"


def _strftime(date: datetime.date) -> dict[str, str]:
    """Texts of the directives of `strftime`, whatever the locale."""
    month, day = _MONTHS[date.month - 1], _DAYS[date.weekday()]
    found = {name: date.strftime(f"%{name}") for name in "YmdyjUWuwGVHIMSf"}
    found |= {"B": month, "b": month[:3], "h": month[:3], "A": day, "a": day[:3], "p": "AM", "z": "", "Z": ""}
    found |= {f"-{name}": found[name].lstrip("0") or "0" for name in "dmyjHIMS"} | {"e": f"{date.day:2}"}
    found |= {"F": date.isoformat(), "D": date.strftime("%m/%d/%y"), "T": "00:00:00", "R": "00:00", "X": "00:00:00"}
    return found | {"x": found["D"], "c": f"{day[:3]} {month[:3]} {date.day:2} 00:00:00 {date.year}"}


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ROLES = ("system", "user", ASSISTANT, "tool")
"""Roles that a message may name; others could be anything."""


Way: TypeAlias = Literal["batched", "single", "uncached"]
"""Several texts are written side by side; or each by itself; or each with whole passes, without a cache."""
WAYS: tuple[Way, ...] = ("batched", "single", "uncached")
"""The fastest first. Models with states besides keys and values (Mamba, RWKV, hybrids) do not write rightly in all."""

ROUNDING = 1e-2
"""Largest change by rounding, as a share of the change that a mistake would cause."""


@dataclass
class _UnderWay:
    """Texts of all members, member after member: their next tokens, or all of them where nothing is cached."""

    ids: Tensor
    mask: Tensor
    """1 for a token, 0 for padding, of the tokens that were passed and of `ids`."""
    cache: DynamicCache


class Decoding:
    """Texts under way through a model side by side, for several members, each with its keys and values.

    Texts are padded on the left, so that the next tokens are all in the last column. Without a cache there is one text.
    """

    def __init__(self, model: nn.Module, *, members: int, pad: int, cached: bool) -> None:
        self._model, self._members, self._pad, self._cached = model, members, pad, cached
        self._asked = inspect.signature(model.forward).parameters
        self._states_alone = "cache_params" in self._asked  # Mamba's name for it
        self.joins = cached and not self._states_alone and _attends_alone(model.config)
        """True if texts may join others that are under way."""
        self._rows: _UnderWay | None = None

    def step(self, going: Mapping[int, int], joining: Sequence[Sequence[int]]) -> Tensor:
        """Logits of the next tokens, members x texts x words: of texts that go on, in their order, then of new ones.

        `going` has the newest token of each text that goes on, by its place in the step before; `joining` the tokens of
        each new text, at least one.
        """
        logits = []
        self._rows = self._kept(self._rows, going) if self._rows is not None and going else None
        if self._rows is not None:
            logits.append(self._passed(self._rows))
        if joining:
            fresh = self._begun(joining)
            logits.append(self._passed(fresh))
            self._rows = fresh if self._rows is None else self._joined(self._rows, fresh)
        return torch.cat(logits, dim=1)

    def _begun(self, prompts: Sequence[Sequence[int]]) -> _UnderWay:
        longest, device = max(map(len, prompts)), next(self._model.parameters()).device
        padded = [[self._pad] * (longest - len(one)) + list(one) for one in prompts]
        masks = [[0] * (longest - len(one)) + [1] * len(one) for one in prompts]
        ids, mask = (torch.tensor(rows, device=device).repeat(self._members, 1) for rows in (padded, masks))
        # A cache of a sliding window forgets columns, so that no text could join.
        return _UnderWay(ids, mask, DynamicCache() if self.joins else DynamicCache(config=self._model.config))

    def _passed(self, rows: _UnderWay) -> Tensor:
        passed: dict[str, Any] = {"use_cache": self._cached}
        if "logits_to_keep" in self._asked:
            passed["logits_to_keep"] = 1
        if self._cached:
            passed["cache_params" if self._states_alone else "past_key_values"] = rows.cache
        if "position_ids" in self._asked:
            passed["position_ids"] = (rows.mask.cumsum(dim=1) - 1).clamp(min=0)[:, -rows.ids.shape[1] :]
        # The mask is for earlier tokens' sake, too, which a model of states alone has no more.
        seen = None if self._states_alone and rows.ids.shape[1] < rows.mask.shape[1] else rows.mask
        return self._by_member(self._model(input_ids=rows.ids, attention_mask=seen, **passed).logits[:, -1])

    def _by_member(self, rows: Tensor) -> Tensor:
        """Rows, members x texts."""
        return rows.view(self._members, -1, *rows.shape[1:])

    def _kept(self, rows: _UnderWay, going: Mapping[int, int]) -> _UnderWay:
        """Rows of the texts that go on, with their newest tokens."""
        mask = rows.mask
        count = len(mask) // self._members
        if len(going) < count:
            places = [member * count + place for member in range(self._members) for place in going]
            kept = torch.tensor(places, device=mask.device)
            rows.cache.reorder_cache(kept)  # unlike batch_select_indices, it knows states of layers without attention
            mask = mask[kept]
            if self.joins and (unused := int(mask.amax(dim=0).argmax())):
                mask = mask[:, unused:]
                for layer in _filled(rows.cache):
                    layer.keys, layer.values = layer.keys[:, :, unused:], layer.values[:, :, unused:]
        following = torch.tensor(list(going.values()), device=mask.device).repeat(self._members)[:, None]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        return _UnderWay(following if self._cached else torch.cat([rows.ids, following], dim=1), mask, rows.cache)

    def _joined(self, rows: _UnderWay, fresh: _UnderWay) -> _UnderWay:
        """Rows of both, each member's together, padded on the left to the same columns."""
        width = max(rows.mask.shape[1], fresh.mask.shape[1])

        def together(one: Tensor, other: Tensor, *, inner: int = 0) -> Tensor:
            """Tensors whose columns have `inner` dimensions after them."""
            padded = [pad(each, (0, 0) * inner + (width - each.shape[-1 - inner], 0)) for each in (one, other)]
            return torch.cat([self._by_member(each) for each in padded], dim=1).flatten(0, 1)

        for layer, other in zip(_filled(rows.cache), _filled(fresh.cache), strict=True):
            layer.keys = together(layer.keys, other.keys, inner=1)
            layer.values = together(layer.values, other.values, inner=1)
        return _UnderWay(fresh.ids, together(rows.mask, fresh.mask), rows.cache)


def _attends_alone(config: Any) -> bool:
    """True if all states of a model are keys and values of each token, which can be moved to other columns."""
    layers = {type(layer) for layer in DynamicCache(config=config).layers}
    chunked = getattr(config.get_text_config(decoder=True), "attention_chunk_size", None) is not None
    return layers <= {DynamicLayer, DynamicSlidingWindowLayer} and not chunked


def _filled(cache: DynamicCache) -> list[Any]:
    """Layers with keys and values; some models share those of others."""
    return [layer for layer in cache.layers if layer.get_seq_length()]


def writes_as_whole_passes(model: nn.Module, tokens: Sequence[int], way: Way) -> bool:
    """True if a bare model in float32 writes in this way what it does in whole passes of each text by itself: two texts
    of ten tokens or more, the longer one of which ends first; then a longer one joins, if it can.
    """
    pair = [list(tokens[:6]), list(tokens[4:6])]
    errors, spreads = [], []
    for texts in [pair] if way == "batched" else [[text] for text in pair]:
        decoding = Decoding(model, members=1, pad=0, cached=way != "uncached")
        going: dict[int, int] = {}
        joining: list[list[int]] = texts
        for step, token in enumerate(tokens):
            (found,) = decoding.step(going, joining)
            whole = torch.cat([_whole(model, text) for text in texts])
            errors.append((found - whole).abs().max())
            spreads.append((whole - whole.mean(dim=1, keepdim=True)).abs().max())
            going = dict.fromkeys(range(step == 3 and len(texts) > 1, len(texts)), token)
            joining = [list(tokens)] if step == 5 and way == "batched" and decoding.joins else []
            texts = [*([*texts[place], token] for place in going), *joining]
    return bool(max(errors) <= ROUNDING * max(spreads))


def _whole(model: nn.Module, text: Sequence[int]) -> Tensor:
    ids = torch.tensor([text])
    logits: Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    return logits[:, -1]
