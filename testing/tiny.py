"""Tiny models, tables and runs: seconds instead of minutes, with everything that a real one has.

The text model is a BERT without a pooler in its checkpoint (so the head holds one, unless it is asked for), the image
model a grey ViT.
"""

from __future__ import annotations

import io
import random
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
import yaml
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, ViTConfig, ViTForImageClassification

from s3t.store.folder import Home, Layout, read_description, recipe_check, write_description, write_home
from s3t.store.secret import read_secret

SALT = "a salt for tests"
WORDS = [f"w{number}" for number in range(40)]
SIDE = 4
TAGS = ["O", "B-a", "I-a", "B-b"]

MODEL_SIZES: dict[str, Any] = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "initializer_range": 0.3,
}
"""Sizes of both models; layers are given to each."""
PLAIN = {"attention": "model", "shortcuts": [], "trunk_cache": False}
"""Training settings without anything that makes it fast."""


def make_text_model(folder: Path, *, layers: int = 3, pooler: bool = False) -> Path:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    transformers.utils.logging.disable_progress_bar()
    wrapped.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(vocabulary),
            num_hidden_layers=layers,
            max_position_embeddings=24,
            **MODEL_SIZES,
        )
        BertModel(config, add_pooling_layer=pooler).save_pretrained(folder)
    return folder


def make_image_model(folder: Path, *, layers: int = 3, side: int = SIDE) -> Path:
    transformers.utils.logging.disable_progress_bar()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = ViTConfig(
            image_size=side,
            patch_size=2,
            num_channels=1,
            num_hidden_layers=layers,
            num_labels=7,
            **MODEL_SIZES,
        )
        ViTForImageClassification(config).save_pretrained(folder)
    return folder


def text_table(count: int = 24, *, seed: int = 0, subjects: int | None = None) -> pd.DataFrame:
    """Texts of 1 to 9 words in two labels; the last record has a third label and the longest text."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        label = "ab"[number % 2]
        words = [rng.choice(WORDS[:20] if label == "a" else WORDS[20:]) for _ in range(rng.randint(1, 9))]
        rows.append({"id": f"r{number}", "text": " ".join(words), "label": label})
    rows[-1] |= {"text": " ".join(WORDS[:18]), "label": "c"}
    table = pd.DataFrame(rows)
    if subjects is not None:
        table["person"] = [f"p{number % subjects}" for number in range(count)]
    return table


def image_table(count: int = 24, *, seed: int = 0) -> pd.DataFrame:
    """Grey images in two labels; record 0 is all white, the last is all black and alone in a third label."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        label = "ab"[number % 2]
        base = 60 if label == "a" else 180
        pixels = [[base + rng.randint(-50, 50) for _ in range(SIDE)] for _ in range(SIDE)]
        rows.append({"id": f"r{number}", "image": png(pixels), "label": label})
    rows[0]["image"] = png([[255] * SIDE] * SIDE)
    rows[-1] |= {"image": png([[0] * SIDE] * SIDE), "label": "c"}
    return pd.DataFrame(rows)


def with_several_labels(table: pd.DataFrame) -> pd.DataFrame:
    """The same records, each with a list of labels: every fifth with none, every third with two."""
    lists: list[Any] = []
    for number, label in enumerate(table.label):
        both = ["a", "b"] if number % 3 == 0 else [label]
        lists.append([] if number % 5 == 0 else both if label in "ab" else ["a", label])
    return table.assign(label=lists)


def tagged_table(count: int = 24, *, seed: int = 0) -> pd.DataFrame:
    """The texts of `text_table` as words with tags; the last record is the longest, and has the only entity b."""
    table = text_table(count, seed=seed)
    table["text"] = [text.split() for text in table.text]
    tags = {word: ("O", "B-a", "I-a", "O")[number % 4] for number, word in enumerate(WORDS)}
    labels: list[Any] = [[tags[word] for word in words] for words in table.text]
    labels[-1][0] = "B-b"
    return table.assign(label=labels)


def tagging_recipe(model: Path | str, **changes: Any) -> dict[str, Any]:
    """The recipe of such a table."""
    return recipe(Path(model), task="token-classification", **{"labels": TAGS} | changes)


def png(pixels: list[list[int]]) -> bytes:
    content = io.BytesIO()
    image = Image.new("L", (len(pixels[0]), len(pixels)))
    image.putdata([value for row in pixels for value in row])
    image.save(content, format="png")
    return content.getvalue()


def recipe(model: Path, *, kind: str = "text", **changes: Any) -> dict[str, Any]:
    """A recipe of 2 shards, 3 slices, 3 orders; `changes` replace fields, mappings field by field."""
    content: dict[str, Any] = {
        "task": f"{kind}-classification",
        "base_model": str(model),
        "columns": {"id": "id", kind: kind, "label": "label"},
        "labels": ["a", "b", "c"],
        "partition": {"shards": 2, "slices": 3, "salt": SALT},
        "sequences": {"budget": 3, "selector": "cyclic"},
        "adapter": {"rank": 2, "alpha": 4},
        "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.02, "precision": "float32"},
        "deletion": {"repair": "manual"},
    }
    if kind == "text":
        content["text"] = {"max_length": 20}
    for name, value in changes.items():
        old = content.get(name)
        content[name] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
    return content


def copy_run(run: Path, to: Path) -> Path:
    """A copy of a run's folder that takes itself for the run, as if it had been made there."""
    shutil.copytree(run, to)
    write_home(Layout(to), Home.of(to))
    return to


def change_recipe(run: Path, **changes: Any) -> None:
    """Change sections of a run's recipe as if it had been made with them."""
    layout = Layout(run)
    description = read_description(layout)
    secret = read_secret(layout.secret, check=description.secret_check)
    content = yaml.safe_load(layout.recipe.read_text()) | changes
    layout.recipe.write_text(yaml.safe_dump(content))
    checked = description.model_copy(update={"recipe_check": recipe_check(content, secret)})
    write_description(layout, checked, secret)


def artifacts(run_folder: Path) -> dict[str, bytes]:
    """Every file under artifacts/, by relative path."""
    folder = run_folder / "artifacts"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def all_files(run_folder: Path) -> dict[str, bytes]:
    """Every file of a run, by relative path."""
    return {str(path.relative_to(run_folder)): path.read_bytes() for path in run_folder.rglob("*") if path.is_file()}
