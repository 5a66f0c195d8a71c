"""Features to tensors. Each record is encoded by itself; a batch is padded to its longest record."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import torch
from PIL import Image as PilImage
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, ViTImageProcessorPil

from s3t.errors import RecipeError
from s3t.recipe import Image

Encoded = Mapping[str, Any]
"""One record as model input, before padding."""


TRIAL_TEXTS = ["one", "one two", "one", "one two three", "one two three four five six seven eight nine ten"]
"""Texts of several lengths: a text that sees only copies of itself in its row would give the same logits."""


class Encoder(Protocol):
    """Features of a slice or of an input, as tensors."""

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Each row by itself: no row's encoding depends on another's."""
        ...

    def encode_later(self, rows: pa.Table) -> Sequence[Encoded]:
        """The same, but large records (images) are encoded at each access, to save memory."""
        ...

    def answers(self, rows: pa.Table) -> list[int]:
        """Number of answers to each row."""
        ...

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        """A batch, padded to its longest record."""
        ...

    def stand_in(self, like: Encoded, count: int) -> dict[str, Tensor] | None:
        """A batch for a pass that starts at a border, in which the records need not be; None if they must."""
        ...

    def count_cut(self, rows: pa.Table) -> int:
        """Number of records that are truncated."""
        ...

    @property
    def pad_token_id(self) -> int | None:
        """Id of the padding token; None for inputs without tokens."""
        ...

    def trial(self, roles: Sequence[str]) -> pa.Table:
        """Public inputs, of several lengths where records differ in length, to try a model with.

        Args:
            roles: the features that the recipe has.
        """
        ...


def tokens(record: Encoded) -> int:
    """Length of an encoded record: tokens of a text; 0 for an image, since all have one size."""
    return len(record.get("input_ids", ()))


class TextEncoder:
    """Tokenises texts or pairs of texts.

    Args:
        folder: of the base model.
        max_length: tokens of a record; what is longer is cut.
        options: of the tokenizer, other than its own.
    """

    def __init__(self, folder: Path, *, max_length: int, **options: Any) -> None:
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            problem = f"base_model: {folder}: its tokenizer cannot be used ({reason}); name another model"
            raise RecipeError("the recipe", problem) from error
        if self._tokenizer.pad_token is None:
            raise RecipeError("the recipe", "base_model: its tokenizer has no padding token; name another model")
        if len(self._tokenizer) <= len(self._tokenizer.all_special_tokens):
            # Without a vocabulary transformers makes an empty one, and every text would be the same unknown tokens.
            problem = f"base_model: {folder} has no vocabulary of a tokenizer; name a model with its tokenizer's files"
            raise RecipeError("the recipe", problem)
        self._max_length = max_length
        # By hand, not by a collator of transformers: that is made of lists, and takes a noticeable part of a step.
        self._padding = {"input_ids": self.pad_token_id, "token_type_ids": int(self._tokenizer.pad_token_type_id)}

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers."""
        return self._tokenizer

    @property
    def pad_token_id(self) -> int:
        """Id of the padding token."""
        return int(self._tokenizer.pad_token_id)

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Token ids, cut to the recipe's length, without padding."""
        if rows.num_rows == 0:
            return []
        names = [name for name in ("text", "text_pair") if name in rows.column_names]
        texts = [rows[name].to_pylist() for name in names]
        columns = self._tokenizer(*texts, truncation=True, max_length=self._max_length)
        return self.tensors(columns, rows.num_rows)

    def tensors(self, columns: Mapping[str, Any], count: int) -> list[Encoded]:
        """Tensors of `count` records, from the tokenizer's columns."""
        # An empty text, of which some tokenizers make no token, is one of padding.
        empty = {"input_ids": [self.pad_token_id], "attention_mask": [1]}
        return [
            {name: torch.tensor(columns[name][row] or empty.get(name, [0])) for name in columns} for row in range(count)
        ]

    def answers(self, rows: pa.Table) -> list[int]:
        """One a text."""
        return [1] * rows.num_rows

    def count_cut(self, rows: pa.Table) -> int:
        """Number of records with more tokens than the recipe's length, encoded a part at a time to save memory."""
        names = [name for name in ("text", "text_pair") if name in rows.column_names]
        found = 0
        for part in rows.select(names).to_batches(max_chunksize=1000):
            columns = self._tokenizer(*(part[name].to_pylist() for name in names), verbose=False)
            found += sum(len(ids) > self._max_length for ids in columns["input_ids"])
        return found

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
                padding_side=self._tokenizer.padding_side,
            )
            for name in records[0]
        }

    def stand_in(self, like: Encoded, count: int) -> None:
        """Masks are made from the tokens."""
        return


class ImageEncoder:
    """Decodes images and gives them the size and range that the model takes."""

    def __init__(self, folder: Path, image: Image) -> None:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        self._mode = "L" if config.num_channels == 1 else "RGB"
        if (folder / "preprocessor_config.json").is_file():
            # Pillow's resampling, whether torchvision is installed or not: other code would give other bits.
            self._processor = AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)
        else:
            side = config.image_size
            height, width = side if isinstance(side, list | tuple) else (side, side)
            self._processor = ViTImageProcessorPil(
                size={"height": height, "width": width},
                image_mean=_per_channel(image.mean, config.num_channels, "mean"),
                image_std=_per_channel(image.std, config.num_channels, "std"),
            )

    def encode(self, rows: pa.Table) -> list[Encoded]:
        """Float pixels, channels x height x width."""
        return [{"pixel_values": self._pixels(content)} for content in rows["image"].to_pylist()]

    def answers(self, rows: pa.Table) -> list[int]:
        """One an image."""
        return [1] * rows.num_rows

    def collate(self, records: Sequence[Encoded]) -> dict[str, Tensor]:
        """Float tensors, batch x channels x height x width."""
        return {"pixel_values": torch.stack([record["pixel_values"] for record in records])}

    def encode_later(self, rows: pa.Table) -> Sequence[Encoded]:
        """Decoded whenever asked for: pixels take a hundred times the memory of the file."""
        return _Decoding(rows["image"].to_pylist(), self._pixels)

    def stand_in(self, like: Encoded, count: int) -> dict[str, Tensor]:
        """One number in the place of all pixels."""
        return {"pixel_values": torch.zeros(()).expand(count, *like["pixel_values"].shape)}

    def count_cut(self, rows: pa.Table) -> int:
        """None."""
        return 0

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
        with PilImage.open(io.BytesIO(content)) as image:
            pixels: Tensor = self._processor(image.convert(self._mode), return_tensors="pt")["pixel_values"][0]
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
