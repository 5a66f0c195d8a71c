"""Features to tensors. Each record is encoded by itself; a batch is padded to its longest record."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import torch
from PIL import Image as PilImage
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, ViTImageProcessorPil

from s3t.errors import RecipeError
from s3t.models.control import ControlTokens
from s3t.models.source import LOCAL
from s3t.recipe import Image, Text
from s3t.records.images import decoded
from s3t.tasks.targets import WORDS
from s3t.tasks.task import ANSWERED
from s3t.wording import counted

Encoded = Mapping[str, Any]
"""One record as model input, before padding."""


TRIAL_TEXTS = ["one", "one two", "one", "one two three", "one two three four five six seven eight nine ten"]
"""Texts of several lengths: a text that sees only copies of itself in its row would give the same logits."""


class Cut(NamedTuple):
    """Numbers of records."""

    longer: int
    """Records that are cut."""
    unlearned: int = 0
    """Records with no token left to learn."""


class Encoder(Protocol):
    """Features of a slice or of an input, as tensors."""

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Each row by itself: no row's encoding depends on another's."""

    def encode_later(self, rows: pa.Table) -> Sequence[Encoded]:
        """Encoded records of a slice; large ones (images) are encoded at each access, to save memory."""

    def answers(self, rows: pa.Table) -> list[int] | None:
        """Number of answers to each row; None: one each."""

    def places(self, record: Encoded) -> Sequence[int]:
        """Places of a record's answers among its own, of those that the model gives."""

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        """A batch, padded to its longest record."""

    def stand_in(self, like: Encoded, count: int) -> dict[str, Tensor] | None:
        """A batch for a pass that starts at a border, in which the records need not be; None if they must."""

    def cut(self, rows: pa.Table) -> Cut:
        """Number of records that the greatest length cuts."""

    @property
    def pad_token_id(self) -> int | None:
        """Id of the padding token; None for inputs without tokens."""

    def trial(self, roles: Sequence[str]) -> pa.Table:
        """Public inputs for these features, of several lengths where records differ in length, to try a model with."""


def tokens(record: Encoded) -> int:
    """Length of an encoded record: tokens of a text; 0 for an image, since all have one size."""
    return len(record.get("input_ids", ()))


def load_tokenizer(folder: Path, **options: Any) -> Any:
    """The tokenizer of a base model."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        problem = f"base_model: {folder}: its tokenizer cannot be used ({reason}); name another model"
        raise RecipeError("the recipe", problem) from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        # Without a vocabulary transformers makes an empty one, and every text would be the same unknown tokens.
        problem = f"base_model: {folder} has no vocabulary of a tokenizer; name a model with its tokenizer's files"
        raise RecipeError("the recipe", problem)
    if not tokenizer("one two", add_special_tokens=False)["input_ids"]:
        problem = (
            f"base_model: {folder}: its tokenizer makes no token of common words; its files, or the class that "
            "transformers reads them with, are of another model"
        )
        raise RecipeError("the recipe", problem)
    words = None
    if (folder / "config.json").is_file():  # else a tokenizer by itself
        words = getattr(AutoConfig.from_pretrained(folder, **LOCAL).get_text_config(), "vocab_size", None)
    beyond = [] if words is None else [word for word, number in tokenizer.get_vocab().items() if number >= words]
    if beyond:
        problem = (
            f"base_model: {folder}: its tokenizer knows {counted(len(beyond), 'token')} beyond the {words:,} that the "
            f"model has embeddings for, such as {min(beyond)!r}; enlarge them (resize_token_embeddings), save the "
            "model, or name another"
        )
        raise RecipeError("the recipe", problem)
    return tokenizer


class TextEncoder:
    """Tokenises texts or pairs of texts, which are cut to `max_length` tokens; or texts that are given as words."""

    def __init__(self, folder: Path, settings: Text, *, in_words: bool = False) -> None:
        self._tokenizer = load_tokenizer(folder, **({"add_prefix_space": True} if in_words else {}))
        self._tokenizer.truncation_side = "right"  # at a text's end, whatever the tokenizer says
        self._control = ControlTokens(self._tokenizer, plain=settings.special_tokens == "plain")
        if self._tokenizer.pad_token is None:
            raise RecipeError("the recipe", "base_model: its tokenizer has no padding token; name another model")
        self._max_length = settings.max_length
        self._in_words = in_words
        # On the right, whatever the tokenizer says: positions then count from a text's first token, whatever is beside
        # it. But XLNet's class token, which its head reads, is a text's last.
        last = self._tokenizer(["one"] if in_words else "one", is_split_into_words=in_words)["input_ids"][-1:]
        self._side = "left" if last == [self._tokenizer.cls_token_id] else "right"
        # By hand, not by a collator of transformers: that is made of lists, and takes a noticeable part of a step.
        self._padding = {"input_ids": self.pad_token_id, "token_type_ids": int(self._tokenizer.pad_token_type_id)}

    @property
    def pad_token_id(self) -> int:
        """Id of the padding token."""
        return int(self._tokenizer.pad_token_id)

    @property
    def is_fast(self) -> bool:
        """True if the tokenizer says of which word a token is."""
        return bool(self._tokenizer.is_fast)

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Token ids, cut to the recipe's length, without padding."""
        return self.encode_columns(rows)[0]

    def encode_columns(self, rows: pa.Table) -> tuple[list[Encoded], Any]:
        """The records, and the tokenizer's columns that they were made of."""
        if rows.num_rows == 0:
            return [], None
        columns = self._tokenized(rows, truncation=True, max_length=self._max_length)
        # An empty text, of which some tokenizers make no token, is one of padding.
        empty = {"input_ids": [self.pad_token_id], "attention_mask": [1]}
        records: list[Encoded] = [
            {name: torch.tensor(columns[name][row] or empty.get(name, [0])) for name in columns}
            for row in range(rows.num_rows)
        ]
        return records, columns

    def _tokenized(self, rows: pa.Table | pa.RecordBatch, **options: Any) -> Any:
        texts = [rows[name].to_pylist() for name in ("text", "text_pair") if name in rows.schema.names]
        return self._control.tokenize(*texts, is_split_into_words=self._in_words, **options)

    def answers(self, rows: pa.Table) -> None:
        return

    def places(self, record: Encoded) -> tuple[int]:
        """Place of the record's single answer."""
        return (0,)

    def cut(self, rows: pa.Table) -> Cut:
        """Records with more tokens than the recipe's length, encoded a part at a time to save memory."""
        parts = (self._tokenized(part, verbose=False) for part in rows.to_batches(max_chunksize=1000))
        return Cut(sum(len(ids) > self._max_length for columns in parts for ids in columns["input_ids"]))

    def trial(self, roles: Sequence[str]) -> pa.Table:
        """Texts of one to ten words."""
        return pa.table(dict.fromkeys(roles, TRIAL_TEXTS))

    def encode_later(self, rows: pa.Table) -> list[Encoded]:
        """Token ids take no more memory than texts."""
        return self.encode(rows)

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        """Integer tensors, batch x longest."""
        return {
            name: pad_sequence(
                [record[name] for record in records],
                batch_first=True,
                padding_value=self._padding.get(name, 0),
                padding_side=self._side,
            )
            for name in records[0]
        }

    def stand_in(self, like: Encoded, count: int) -> None:
        """Masks are made from the tokens."""
        return


class WordEncoder:
    """Tokenises texts that are given as words, each of which is answered at its first sub-word.

    Sub-words past the recipe's length are cut, with the words that begin there.
    """

    def __init__(self, folder: Path, settings: Text) -> None:
        self._texts = TextEncoder(folder, settings, in_words=True)
        problem = None
        if not self._texts.is_fast:
            problem = "base_model: its tokenizer does not say of which word a token is; name a model with a fast one"
        elif not self.encode(pa.table({"text": [["one"]]}))[0][WORDS]:
            problem = (
                f"text.max_length: {settings.max_length} leaves no room for a word beside the special tokens; raise it"
            )
        if problem is not None:
            raise RecipeError("the recipe", problem)

    @property
    def pad_token_id(self) -> int:
        """Id of the padding token."""
        return self._texts.pad_token_id

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Token ids; which tokens are the first of a word, and of which."""
        texts, columns = self._texts.encode_columns(rows)
        records: list[Encoded] = []
        for row, text in enumerate(texts):
            words = columns.word_ids(row) or [None]  # an empty text is one token of padding
            first = [word is not None and word not in words[:place] for place, word in enumerate(words)]
            answered = [word for word, is_first in zip(words, first, strict=True) if is_first]
            records.append({**text, ANSWERED: torch.tensor(first), WORDS: answered})
        return records

    def encode_later(self, rows: pa.Table) -> list[Encoded]:
        """Token ids take no more memory than words."""
        return self.encode(rows)

    def answers(self, rows: pa.Table) -> list[int]:
        """Number of words of each row."""
        return [len(words) for words in rows["text"].to_pylist()]

    def places(self, record: Encoded) -> Sequence[int]:
        """The words that begin within the recipe's length."""
        words: Sequence[int] = record[WORDS]
        return words

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        """Integer tensors and the mask of first sub-words, batch x longest."""
        return self._texts.collate([{name: record[name] for name in record if name != WORDS} for record in records])

    def stand_in(self, like: Encoded, count: int) -> None:
        """Masks are made from the tokens."""
        return

    def cut(self, rows: pa.Table) -> Cut:
        """Records with more tokens than the recipe's length."""
        return self._texts.cut(rows)

    def trial(self, roles: Sequence[str]) -> pa.Table:
        """Texts of one to ten words."""
        return pa.table({role: [text.split() for text in TRIAL_TEXTS] for role in roles})


class ImageEncoder:
    """Decodes images and gives them the size and range that the model takes."""

    def __init__(self, folder: Path, image: Image) -> None:
        config = AutoConfig.from_pretrained(folder, **LOCAL)
        channels = getattr(config, "num_channels", 3)
        self._mode = "L" if channels == 1 else "RGB"
        if (folder / "preprocessor_config.json").is_file():
            # Pillow's resampling, whether torchvision is installed or not: other code would give other bits.
            self._processor = AutoImageProcessor.from_pretrained(folder, backend="pil", **LOCAL)
        elif (side := getattr(config, "image_size", None)) is None:
            problem = f"base_model: {folder} names no size of images; it needs a preprocessor_config.json"
            raise RecipeError("the recipe", problem)
        else:
            height, width = side if isinstance(side, list | tuple) else (side, side)
            self._processor = ViTImageProcessorPil(
                size={"height": height, "width": width},
                image_mean=_per_channel(image.mean, channels, "mean"),
                image_std=_per_channel(image.std, channels, "std"),
            )

    @property
    def processor(self) -> Any:
        """The image processor of transformers."""
        return self._processor

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Float pixels, channels x height x width."""
        return [{"pixel_values": self._pixels(content)} for content in rows["image"].to_pylist()]

    def answers(self, rows: pa.Table) -> None:
        return

    def places(self, record: Encoded) -> tuple[int]:
        """Place of the record's single answer."""
        return (0,)

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        """Float tensors, batch x channels x height x width."""
        return {"pixel_values": torch.stack([record["pixel_values"] for record in records])}

    def encode_later(self, rows: pa.Table) -> Sequence[Encoded]:
        """Decoded whenever asked for: pixels take a hundred times the memory of the file."""
        return _Decoding(rows["image"].to_pylist(), self._pixels)

    def stand_in(self, like: Encoded, count: int) -> dict[str, Tensor]:
        """One number in the place of all pixels."""
        return {"pixel_values": torch.zeros(()).expand(count, *like["pixel_values"].shape)}

    def cut(self, rows: pa.Table) -> Cut:
        """Nothing."""
        return Cut(0)

    @property
    def pad_token_id(self) -> None:
        """There are no tokens."""
        return

    def trial(self, roles: Sequence[str]) -> pa.Table:
        """Images of one colour."""
        images = []
        for color in ("black", "white", "gray"):
            content = io.BytesIO()
            PilImage.new("RGB", (32, 32), color).save(content, format="png")
            images.append(content.getvalue())
        return pa.table(dict.fromkeys(roles, pa.array(images, pa.binary())))

    def _pixels(self, content: bytes) -> Tensor:
        image = decoded(content).convert(self._mode)
        pixels: Tensor = self._processor(image, return_tensors="pt")["pixel_values"][0]
        return pixels


class _Decoding(Sequence[Encoded]):
    """Images that are decoded when they are asked for."""

    def __init__(self, contents: Sequence[bytes], decode: Callable[[bytes], Tensor]) -> None:
        self._contents = contents
        self._decode = decode

    def __len__(self) -> int:
        return len(self._contents)

    def __getitem__(self, number: Any) -> Any:
        return {"pixel_values": self._decode(self._contents[number])}


def _per_channel(values: list[float], channels: int, field: str) -> list[float]:
    if len(values) not in (1, channels):
        raise RecipeError("the recipe", f"image.{field}: {len(values)} numbers for {channels} channels")
    return values if len(values) == channels else values * channels
