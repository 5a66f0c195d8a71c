"""What a stage is trained on follows from the run alone: no day, time zone, locale or hash seed changes a byte."""

import datetime
import os
import subprocess
import sys

import pandas as pd

import s3t
from testing import tiny, tokens
from testing.language import chat_table, language_recipe

ANOTHER_DAY = (
    {"TZ": "Etc/GMT+12", "LC_ALL": "C", "PYTHONHASHSEED": "1", "TOKENIZERS_PARALLELISM": "false"},
    {"TZ": "Pacific/Kiritimati", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"},
)
"""Time zones that are on different days at every moment."""
LITTLE = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}, "training": {"epochs": 1}}
PROGRAM = f"""
LITTLE = {LITTLE}
import sys, s3t, pandas as pd
from pathlib import Path
from testing import tiny
folder, mine = Path(sys.argv[1]), Path(sys.argv[2])
with s3t.Run.open(mine / "chats") as run:
    run.train()
texts = tiny.recipe(folder / "texts", task="text-multi-label-classification", labels="infer", **LITTLE)
texts["columns"] |= {{"text": "{{text}} {{when}} {{number}}", "delimiter": ";"}}
with s3t.Run.create(mine / "texts", recipe=texts, data=folder / "texts.csv") as run:
    run.train()
"""


def test_a_stage_has_the_same_bytes_on_another_day_in_another_place(tmp_path):
    tiny.make_text_model(tmp_path / "texts")
    llama = make_dated_model(tmp_path / "llama")
    chats = {"columns": {"messages": "messages", "prompt": None, "completion": None}, "language": {"max_length": 200}}
    recipe = language_recipe(llama, **chats, **LITTLE)
    with s3t.Run.create(tmp_path / "chats", recipe=recipe, data=chat_table()) as run:
        assert run.recipe.language.date == datetime.date.today()
    table = tiny.text_table(12).assign(when=pd.Timestamp("2026-03-01 12:00", tz="Asia/Tokyo"), number=0.1)
    table["label"] = [label + ";ä;Z" for label in table.label]
    table.to_csv(tmp_path / "texts.csv", index=False)
    found = []
    for number, changes in enumerate(ANOTHER_DAY):
        mine = tmp_path / str(number)
        tiny.copy_run(tmp_path / "chats", mine / "chats")
        started = [sys.executable, "-c", PROGRAM, str(tmp_path), str(mine)]
        subprocess.run(started, env=os.environ | changes, check=True, capture_output=True)
        files = tiny.all_files(mine / "texts") | {
            f"chats/{name}": c for name, c in tiny.artifacts(mine / "chats").items()
        }
        found.append({name: content for name, content in files.items() if name.split("/")[0] in PLACES})
    assert found[0] == found[1]
    assert {name.split("/")[0] for name in found[0]} == PLACES


PLACES = {"slices", "artifacts", "chats"}


def make_dated_model(folder):
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(tokens.byte_level(folder, tokens.DATED + tokens.CHATML))
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=200, eos_token_id=1, **sizes)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder
