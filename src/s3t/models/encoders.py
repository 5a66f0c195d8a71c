"""Features to tensors. Each record is encoded by itself; a batch is padded to its longest record.

A tokenizer takes the letters of a control token (`<|im_end|>`, `[SEP]`, `</s>`) for the token wherever they stand, so
that anybody could end a turn or begin another's. Here it knows control tokens by marks alone, which no text holds: what
people write is letters, also what a normaliser turns into a token, and what a chat template writes is marked.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from PIL import Image as PilImage
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoImageProcessor, AutoTokenizer, ViTImageProcessorPil

from s3t.models.source import LOCAL, load_config, unfit
from s3t.recipe import Image, Recipe, Text
from s3t.records.images import decoded
from s3t.tasks.targets import WORDS
from s3t.tasks.task import ANSWERED
from s3t.wording import counted, reason

_BRACKETED = re.compile(r"<.+>|\[.+\]")
_MARK, _BEGIN, _END = "\ufdd0", "\ufdd0<", "\ufdd0>"
"""A noncharacter, which Unicode leaves to programs, begins every mark; two stand around what people wrote."""


class ControlTokens:
    """The control tokens of a tokenizer: the special ones, and added ones in brackets or in a chat template.

    If `plain`, people's letters make none of them; else they do, as for transformers.
    """

    def __init__(self, tokenizer: Any, *, plain: bool) -> None:
        self._tokenizer = tokenizer
        self._plain = plain
        templates = tokenizer.chat_template or ""
        written = "\0".join(templates.values()) if isinstance(templates, dict) else templates
        ids = {
            token.content: number
            for number, token in sorted(tokenizer.added_tokens_decoder.items())
            if token.content.strip()
            and (token.special or token.content in written or _BRACKETED.fullmatch(token.content))
        }
        self._marks = {text: f"{_MARK}{chr(0x100000 + place)}" for place, text in enumerate(ids)} if plain else {}
        self._letters = _any_of(self._marks)
        self._ids = {self._marks.get(text, text): number for text, number in ids.items()}

    @property
    def tells_apart(self) -> bool:
        """False if marks would not be known: the tokenizer is none of the library `tokenizers`."""
        return not self._plain or bool(self._tokenizer.is_fast)

    @cached_property
    def tokenize(self) -> Any:
        """The tokenizer, to be called. What it makes of `letters` is plain; what `read` gives has its tokens."""
        if not self._plain:
            return self._tokenizer
        if not self._tokenizer.is_fast:
            return partial(self._tokenizer, split_special_tokens=True)
        try:
            changed = Tokenizer.from_str(_renamed(self._tokenizer.backend_tokenizer.to_str(), self._marks))
        except Exception as error:  # the library has no class of its own
            problem = f"base_model: control tokens of its tokenizer cannot be told from texts ({error})"
            raise unfit(f"{problem}; name another model, or set special_tokens: control") from error
        tokenizer = copy.copy(self._tokenizer)
        tokenizer._tokenizer = changed
        return tokenizer

    def wrapped(self, chat: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
        """A chat in which the letters of control tokens stand between marks, for a template."""
        between = f"{_BEGIN}\\g<0>{_END}"
        return [{name: re.sub(self._letters, between, letters(value)) for name, value in one.items()} for one in chat]

    def read(self, rendered: str, plain: str) -> str | None:
        """A template's text of a wrapped chat, with the template's own control tokens as marks; None if it is another
        than `plain`, that of the chat itself.
        """
        wrapped = f"{_BEGIN}({self._letters}){_END}"
        if re.sub(wrapped, r"\1", rendered) != letters(plain):
            return None
        either = f"{wrapped}|({self._letters})"
        return re.sub(either, lambda found: self._marks[found[2]] if found[2] else found[1], rendered)

    def shown(self, marked: str) -> str:
        """The same with the letters of control tokens for their marks."""
        for text, mark in self._marks.items():
            marked = marked.replace(mark, text)
        return marked

    def through_first(self, text: str) -> str:
        """A template's text through its first control token and white space behind it; without one, nothing."""
        found = re.search(rf"(?:{_any_of(self._ids)})\s*", text)
        return "" if found is None else text[: found.end()]

    def first_in(self, text: str) -> int | None:
        """The id of the first control token of a template's text."""
        found = re.search(_any_of(self._ids), text)
        return None if found is None else self._ids[found[0]]


def letters(text: Any) -> Any:
    """People's text, or several, with U+FFFD for the character that begins marks, so that they write none."""
    return text.replace(_MARK, "\ufffd") if isinstance(text, str) else [*map(letters, text)]


def _any_of(texts: Iterable[str]) -> str:
    """A pattern of any of some texts, the longest of those that begin alike; without texts, of nothing at all."""
    return "|".join(sorted(map(re.escape, texts), key=len, reverse=True)) or "(?!)"


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


Encoded = Mapping[str, Any]
"""One record as model input, before padding."""


TRIAL_TEXTS = ["one", "one two", "one", "one two three", "one two three four five six seven eight nine ten"]
"""Texts of several lengths: a text that sees only copies of itself in its row would give the same logits."""


class Cut(NamedTuple):
    """Which records max_length cuts."""

    longer: list[bool]
    """For each record, True if it is cut."""
    unlearned: int = 0
    """Number of records with no token left to learn."""


PASS_TOKENS = 128
"""Fixed cost of a pass on a CPU, in tokens: it costs as much as this many tokens more than it has. For MiniLM on one
core of an AMD EPYC, all values from 64 to 256 are equally fast within a tenth. For larger models the fixed cost is
fewer tokens. On other devices a small pass takes as long as a large one."""


class Encoder(ABC):
    """Features of a slice or of an input, as tensors."""

    pad_token_id: int | None = None
    """Id of the padding token; None for inputs without tokens."""

    @abstractmethod
    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Each row by itself: no row's encoding depends on another's."""

    @abstractmethod
    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        """A batch, padded to its longest record."""

    @abstractmethod
    def trial(self, roles: Sequence[str]) -> pa.Table:
        """Public inputs for these features, of several lengths where records differ in length, to try a model with."""

    def batches(
        self,
        records: Sequence[Encoded],
        lengths: Sequence[int] | None,
        most: int,
        device: torch.device,
        pass_tokens: int | None = None,
    ) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """Yields numbers of records, at most `most`, and the batch of these; the shortest records first, divided by
        `cheapest_parts`. Without lengths all count as equally long.
        """
        lengths = lengths or [0] * len(records)
        order = sorted(range(len(records)), key=lengths.__getitem__)  # stable
        for part in cheapest_parts([lengths[number] for number in order], most, pass_tokens=pass_tokens):
            batch = self.collate([records[number] for number in order[part]])
            yield order[part], {name: tensor.to(device) for name, tensor in batch.items()}

    def encode_later(self, rows: pa.Table) -> Sequence[Encoded]:
        """Encoded records of a slice; large ones (images) are encoded at each access, to save memory."""
        return self.encode(rows)

    def answers(self, rows: pa.Table) -> list[int] | None:
        """Number of answers to each row; None: one each."""
        return None

    def places(self, record: Encoded) -> Sequence[int]:
        """Positions, among a record's answers, of those that the model gives; words past max_length get none."""
        words: Sequence[int] = record.get(WORDS, (0,))
        return words

    def dummy(self, like: Encoded, count: int) -> dict[str, Tensor] | None:
        """A batch for a pass that starts at a border, in which the records need not be; None if they must: masks are
        made from tokens."""
        return None

    def cut(self, rows: pa.Table) -> Cut:
        """Which records max_length cuts."""
        return Cut([False] * rows.num_rows)


def cheapest_parts(lengths: Sequence[int], most: int, *, pass_tokens: int | None) -> list[slice]:
    """Consecutive parts of at most so many texts, which are padded to the longest of their part.

    A part costs `pass_tokens` beside its padded tokens; None: so much that there are as few parts as possible.

    >>> cheapest_parts([3, 3, 4, 30], 8, pass_tokens=10)
    [slice(0, 3, None), slice(3, 4, None)]
    """
    count = len(lengths)
    if pass_tokens is None:
        return [slice(start, min(start + most, count)) for start in range(0, count, most)]
    cheapest = np.zeros(count + 1, dtype=np.int64)  # cost of the first texts, for each number of them
    start_of_last = [0] * (count + 1)
    for end in range(1, count + 1):
        starts = np.arange(end - 1, max(0, end - most) - 1, -1)  # argmin takes the latest of equals: full from the left
        costs = cheapest[starts] + (end - starts) * lengths[end - 1] + pass_tokens
        best = int(costs.argmin())
        cheapest[end], start_of_last[end] = costs[best], int(starts[best])
    parts: list[slice] = []
    while count:
        parts.append(slice(start_of_last[count], count))
        count = start_of_last[count]
    return parts[::-1]


def tokens(record: Encoded) -> int:
    """Length of an encoded record: tokens of a text; 0 for an image, since all have one size."""
    return len(record.get("input_ids", ()))


def load_tokenizer(folder: Path, **options: Any) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL, **options)
    except (OSError, ValueError) as error:
        problem = f"base_model: {folder}: its tokenizer cannot be used ({reason(error)}); name another model"
        raise unfit(problem) from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        # Without a vocabulary transformers makes an empty one, and every text would be the same unknown tokens.
        raise unfit(f"base_model: {folder} has no vocabulary of a tokenizer; name a model with its tokenizer's files")
    if not tokenizer("one two", add_special_tokens=False)["input_ids"]:
        raise unfit(
            f"base_model: {folder}: its tokenizer makes no token of common words; its files, or the class that "
            "transformers reads them with, are of another model"
        )
    words = None
    if (folder / "config.json").is_file():  # else a tokenizer by itself
        words = getattr(load_config(folder).get_text_config(), "vocab_size", None)
    beyond = [] if words is None else [word for word, number in tokenizer.get_vocab().items() if number >= words]
    if beyond:
        raise unfit(
            f"base_model: {folder}: its tokenizer knows {counted(len(beyond), 'token')} beyond the {words:,} that the "
            f"model has embeddings for, such as {min(beyond)!r}; enlarge them (resize_token_embeddings), save the "
            "model, or name another"
        )
    return tokenizer


def padded(records: Sequence[Encoded], values: Mapping[str, Any], *, side: str = "right") -> dict[str, Tensor]:
    """A batch x longest of each entry; `values` are those of padding."""
    # By hand, not by a collator of transformers: that is made of lists, and takes a noticeable part of a step.
    return {
        name: pad_sequence(
            [record[name] for record in records], batch_first=True, padding_value=values.get(name, 0), padding_side=side
        )
        for name in records[0]
        if name != WORDS
    }


class TextEncoder(Encoder):
    """Tokenises texts or pairs of texts, which are cut to `max_length` tokens.

    With `in_words`, texts are given as words, each of which is answered at its first sub-word. Words that begin past
    the greatest length are cut.
    """

    pad_token_id: int

    def __init__(self, folder: Path, settings: Text, *, in_words: bool = False) -> None:
        self._tokenizer = load_tokenizer(folder, **({"add_prefix_space": True} if in_words else {}))
        self._tokenizer.truncation_side = "right"  # at a text's end, whatever the tokenizer says
        self._control = ControlTokens(self._tokenizer, plain=settings.special_tokens == "plain")
        if self._tokenizer.pad_token is None:
            raise unfit("base_model: its tokenizer has no padding token; name another model")
        self.pad_token_id = int(self._tokenizer.pad_token_id)
        self._max_length = settings.max_length
        self._in_words = in_words
        self._tokenizing = threading.Lock()  # a tokenizer is told before each text whether to cut, and keeps that
        # On the right, whatever the tokenizer says: positions then count from a text's first token, whatever is beside
        # it. But XLNet's class token, which its head reads, is a text's last.
        last = self._tokenizer(["one"] if in_words else "one", is_split_into_words=in_words)["input_ids"][-1:]
        self._side = "left" if last == [self._tokenizer.cls_token_id] else "right"
        self._padding = {"input_ids": self.pad_token_id, "token_type_ids": int(self._tokenizer.pad_token_type_id)}
        if in_words and not self._tokenizer.is_fast:
            raise unfit("base_model: its tokenizer does not say of which word a token is; name a model with a fast one")
        if in_words and not self.encode(pa.table({"text": [["one"]]}))[0][WORDS]:
            length = settings.max_length
            raise unfit(f"text.max_length: {length} leaves no room for a word beside the special tokens; raise it")

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Token ids; of words, also which tokens are the first of a word, and of which."""
        if rows.num_rows == 0:
            return []
        columns = self._tokenized(rows, truncation=True, max_length=self._max_length)
        # An empty text, of which some tokenizers make no token, is one of padding.
        empty = {"input_ids": [self.pad_token_id], "attention_mask": [1]}
        records: list[Encoded] = []
        for row in range(rows.num_rows):
            record: dict[str, Any] = {
                name: torch.tensor(columns[name][row] or empty.get(name, [0])) for name in columns
            }
            if self._in_words:
                words = columns.word_ids(row) or [None]
                first = [word is not None and word not in words[:place] for place, word in enumerate(words)]
                answered = [word for word, is_first in zip(words, first, strict=True) if is_first]
                record |= {ANSWERED: torch.tensor(first), WORDS: answered}
            records.append(record)
        return records

    def _tokenized(self, rows: pa.Table | pa.RecordBatch, **options: Any) -> Any:
        texts = [letters(rows[name].to_pylist()) for name in ("text", "text_pair") if name in rows.schema.names]
        with self._tokenizing:
            return self._control.tokenize(*texts, is_split_into_words=self._in_words, **options)

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        return padded(records, self._padding, side=self._side)

    def answers(self, rows: pa.Table) -> list[int] | None:
        return [len(words) for words in rows["text"].to_pylist()] if self._in_words else None

    def cut(self, rows: pa.Table) -> Cut:
        """Records with more tokens than max_length. Only those that may be too long are encoded, a part at a time."""
        longer, places = [False] * rows.num_rows, self._may_be_longer(rows)
        for start in range(0, len(places), 1000):
            part = places[start : start + 1000]
            columns = self._tokenized(rows.take(part), verbose=False)
            for place, ids in zip(part, columns["input_ids"], strict=True):
                longer[place] = len(ids) > self._max_length
        return Cut(longer)

    def _may_be_longer(self, rows: pa.Table) -> list[int]:
        """All but short texts in ASCII, which no normaliser makes longer: each of their tokens holds a letter at least,
        except for the special ones and a space before each text."""
        if self._in_words:
            return list(range(rows.num_rows))
        texts = [rows[name].to_pylist() for name in ("text", "text_pair") if name in rows.schema.names]
        most = self._max_length - self._tokenizer.num_special_tokens_to_add(pair=len(texts) > 1) - len(texts)
        joined = enumerate(map("".join, zip(*texts, strict=True)))
        return [place for place, text in joined if len(text) > most or not text.isascii()]

    def trial(self, roles: Sequence[str]) -> pa.Table:
        texts = [text.split() for text in TRIAL_TEXTS] if self._in_words else TRIAL_TEXTS
        return pa.table(dict.fromkeys(roles, texts))


class ImageEncoder(Encoder):
    """Decodes images and gives them the size and range that the model takes."""

    def __init__(self, folder: Path, image: Image) -> None:
        config = load_config(folder)
        channels = getattr(config, "num_channels", 3)
        self._mode = "L" if channels == 1 else "RGB"
        self.processor: Any
        """The image processor of transformers."""
        if (folder / "preprocessor_config.json").is_file():
            # Pillow's resampling, whether torchvision is installed or not: other code would give other bits.
            self.processor = AutoImageProcessor.from_pretrained(folder, backend="pil", **LOCAL)
        elif (side := getattr(config, "image_size", None)) is None:
            raise unfit(f"base_model: {folder} names no size of images; it needs a preprocessor_config.json")
        else:
            height, width = side if isinstance(side, list | tuple) else (side, side)
            self.processor = ViTImageProcessorPil(
                size={"height": height, "width": width},
                image_mean=_per_channel(image.mean, channels, "mean"),
                image_std=_per_channel(image.std, channels, "std"),
            )

    def encode(self, rows: pa.Table) -> list[Encoded]:
        return [self._pixels(content) for content in rows["image"].to_pylist()]

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        return {"pixel_values": torch.stack([record["pixel_values"] for record in records])}

    def encode_later(self, rows: pa.Table) -> Sequence[Encoded]:
        # Pixels take a hundred times the memory of the file.
        return _Decoding(rows["image"].to_pylist(), self._pixels)

    def dummy(self, like: Encoded, count: int) -> dict[str, Tensor]:
        """One number in the place of all pixels."""
        return {"pixel_values": torch.zeros(()).expand(count, *like["pixel_values"].shape)}

    def trial(self, roles: Sequence[str]) -> pa.Table:
        """Images of one colour."""
        images = []
        for color in ("black", "white", "gray"):
            content = io.BytesIO()
            PilImage.new("RGB", (32, 32), color).save(content, format="png")
            images.append(content.getvalue())
        return pa.table(dict.fromkeys(roles, pa.array(images, pa.binary())))

    def _pixels(self, content: bytes) -> Encoded:
        image = decoded(content).convert(self._mode)
        return {"pixel_values": self.processor(image, return_tensors="pt")["pixel_values"][0]}


class _Decoding(Sequence[Encoded]):
    def __init__(self, contents: Sequence[bytes], decode: Callable[[bytes], Encoded]) -> None:
        self._contents, self._decode = contents, decode

    def __len__(self) -> int:
        return len(self._contents)

    def __getitem__(self, number: Any) -> Any:
        return self._decode(self._contents[number])


def _per_channel(values: list[float], channels: int, field: str) -> list[float]:
    if len(values) not in (1, channels):
        raise unfit(f"image.{field}: {len(values)} numbers for {channels} channels")
    return values if len(values) == channels else values * channels


def augmented(pixels: Tensor, *, crop: int, flip: bool, seed: int, record: bytes) -> Tensor:
    """An image, channels x height x width, shifted by at most `crop` pixels each way, its edge mirrored into the gap;
    perhaps mirrored whole: a function of its own record and the epoch's seed, whatever batch it is in.
    """
    drawn = hashlib.sha256(seed.to_bytes(8, "big") + record).digest()
    height, width = pixels.shape[-2:]
    if crop:
        top, left = (int.from_bytes(drawn[at : at + 8], "big") % (2 * crop + 1) for at in (0, 8))
        padded = torch.nn.functional.pad(pixels[None], [crop] * 4, mode="reflect")[0]
        pixels = padded[:, top : top + height, left : left + width]
    if flip and drawn[16] % 2:
        pixels = pixels.flip(-1)
    return pixels


def encoder_for(folder: Path, recipe: Recipe) -> Encoder:
    """The encoder of what a recipe's task takes."""
    from s3t.models.language import LanguageEncoder

    match recipe.task.inputs.kind:
        case "language":
            return LanguageEncoder(folder, recipe.language, roles=recipe.columns.named())
        case "image":
            return ImageEncoder(folder, recipe.image)
        case kind:
            return TextEncoder(folder, recipe.text, in_words=kind == "words")
