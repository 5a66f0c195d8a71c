"""What a stage is trained on follows from the run alone: no day, time zone, locale or hash seed changes a byte."""

import os
import subprocess
import sys
import time
from datetime import date

import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import s3t
from testing import tiny, tokens
from testing.language import chat_table, language_recipe
from tests.run.worlds import trained_run

LITTLE = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}, "training": {"epochs": 1}}
FAR_WEST = "Etc/GMT+12"
"""There it is another day than in the far east, at every moment."""
FAR_EAST = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "2", "TOKENIZERS_PARALLELISM": "true"}
PROGRAM = """
import sys
from pathlib import Path
from tests.run.test_surroundings import train
train(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def train(folder, mine):
    """Train a run of chats and one of texts."""
    with s3t.Run.open(tiny.copy_run(folder / "chats", mine / "chats")) as run:
        run.train()
    texts = tiny.recipe(folder / "model", task="text-multi-label-classification", labels="infer", **LITTLE)
    texts["columns"] |= {"text": "{text} {when} {number}", "delimiter": ";"}
    trained_run(mine / "texts", texts, folder / "texts.csv").close()


@pytest.fixture
def far_west(monkeypatch):
    monkeypatch.setenv("TZ", FAR_WEST)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_stage_has_the_same_bytes_on_another_day_in_another_place(far_west, tmp_path):
    tiny.make_text_model(tmp_path / "model")
    chats = {"columns": {"messages": "messages", "prompt": None, "completion": None}, "language": {"max_length": 200}}
    recipe = language_recipe(make_dated_model(tmp_path / "llama"), **chats, **LITTLE)
    with s3t.Run.create(tmp_path / "chats", recipe=recipe, data=chat_table()) as run:
        assert run.recipe.language.date == date.today()
    table = tiny.text_table(12).assign(when=pd.Timestamp("2026-03-01 12:00", tz="Asia/Tokyo"), number=0.1)
    table["label"] = [label + ";ä;Z" for label in table.label]
    table.to_csv(tmp_path / "texts.csv", index=False)
    train(tmp_path, tmp_path / "west")
    started = [sys.executable, "-c", PROGRAM, str(tmp_path), str(tmp_path / "east")]
    subprocess.run(started, env=os.environ | FAR_EAST, check=True, capture_output=True)
    for parts in ("texts/slices", "texts/artifacts", "chats/artifacts"):
        west, east = (tiny.all_files(tmp_path / side / parts) for side in ("west", "east"))
        assert west == east != {}


def make_dated_model(folder):
    tokenizer = AutoTokenizer.from_pretrained(tokens.byte_level(folder, tokens.DATED + tokens.CHATML))
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=200, eos_token_id=1, **sizes)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder
