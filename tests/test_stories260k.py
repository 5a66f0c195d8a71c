"""The converter of llama2.c's files: against llama2.c's own arithmetic written out, and the story that is in them."""

import struct
from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from s3t.errors import DataError
from testing.stories260k import HEADER, convert

WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, LENGTH = 16, 24, 2, 4, 2, 12
HEAD = WIDTH // HEADS
LETTERS = [" ", *"abcd", "ab", "cd", " a", "abcd", "bc", " ab"]
PIECES = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{number:02X}>" for number in range(256)), *LETTERS]
SCORES = {text: -float(number) for number, text in enumerate(["ab", "cd", " a", "abcd", "bc", " ab"])}


@pytest.fixture
def made(tmp_path):
    """A file of weights and one of pieces, with random numbers in them; and those numbers by name."""
    shapes = {
        "embedding": (len(PIECES), WIDTH),
        "attention_norm": (LAYERS, WIDTH),
        "wq": (LAYERS, WIDTH, WIDTH),
        "wk": (LAYERS, KV_HEADS * HEAD, WIDTH),
        "wv": (LAYERS, KV_HEADS * HEAD, WIDTH),
        "wo": (LAYERS, WIDTH, WIDTH),
        "ffn_norm": (LAYERS, WIDTH),
        "w1": (LAYERS, HIDDEN, WIDTH),
        "w2": (LAYERS, WIDTH, HIDDEN),
        "w3": (LAYERS, HIDDEN, WIDTH),
        "norm": (WIDTH,),
        "rotary": (2, LENGTH, HEAD // 2),
    }
    rng = np.random.default_rng(0)
    numbers = {name: rng.normal(0, 0.5, shape).astype("<f4") for name, shape in shapes.items()}
    header = HEADER.pack(WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, len(PIECES), LENGTH)
    (tmp_path / "made.bin").write_bytes(header + b"".join(each.tobytes() for each in numbers.values()))
    texts = [piece.encode() for piece in PIECES]
    each = (struct.pack("<fi", SCORES.get(text.decode(), 0.0), len(text)) + text for text in texts)
    (tmp_path / "pieces.bin").write_bytes(struct.pack("<i", max(map(len, texts))) + b"".join(each))
    return tmp_path / "made.bin", tmp_path / "pieces.bin", numbers


def logits_of_llama2c(numbers, tokens):
    """Logits after each token, one token at a time, as run.c computes them; rotary pairs are neighbours."""

    def normed(x, weight):
        return weight * x / np.sqrt(np.mean(x * x) + 1e-5)

    def turned(x, place):
        found = x.copy()
        for even in range(0, len(x), 2):
            angle = place * 10000.0 ** -((even % HEAD) / HEAD)
            a, b = x[even], x[even + 1]
            found[even] = a * np.cos(angle) - b * np.sin(angle)
            found[even + 1] = a * np.sin(angle) + b * np.cos(angle)
        return found

    keys, values = ([[] for _ in range(LAYERS)] for _ in range(2))
    logits = []
    for place, token in enumerate(tokens):
        x = numbers["embedding"][token].astype(np.float64)
        for layer in range(LAYERS):
            own = {name: each[layer] for name, each in numbers.items() if each.ndim > 1 and len(each) == LAYERS}
            seen = normed(x, own["attention_norm"])
            query = turned(own["wq"] @ seen, place)
            keys[layer].append(turned(own["wk"] @ seen, place))
            values[layer].append(own["wv"] @ seen)
            heads = []
            for head in range(HEADS):
                part = slice(head * HEAD, (head + 1) * HEAD)
                shared = slice(head // (HEADS // KV_HEADS) * HEAD, (head // (HEADS // KV_HEADS) + 1) * HEAD)
                scores = np.array([query[part] @ key[shared] for key in keys[layer]]) / np.sqrt(HEAD)
                weights = np.exp(scores - scores.max())
                heads.append(weights / weights.sum() @ np.array([value[shared] for value in values[layer]]))
            x = x + own["wo"] @ np.concatenate(heads)
            seen = normed(x, own["ffn_norm"])
            gate = own["w1"] @ seen
            x = x + own["w2"] @ (gate / (1 + np.exp(-gate)) * (own["w3"] @ seen))
        logits.append(numbers["embedding"] @ normed(x, numbers["norm"]))
    return np.array(logits)


def tokens_of_llama2c(text):
    """Ids as run.c finds them: characters, of which two neighbours with the best joined score become one, and so on."""
    ids = [each for char in " " + text for each in characters(char)]
    while True:
        joins = [(SCORES.get(PIECES[a] + PIECES[b]), -place) for place, (a, b) in enumerate(pairwise(ids))]
        best = max((join for join in joins if join[0] is not None), default=None)
        if best is None:
            return [1, *ids]
        place = -best[1]
        ids[place : place + 2] = [PIECES.index(PIECES[ids[place]] + PIECES[ids[place + 1]])]


def characters(char):
    """A piece, or one for each byte."""
    return [PIECES.index(char)] if char in LETTERS else [3 + byte for byte in char.encode()]


def test_transformers_computes_from_the_folder_what_llama2c_computes_from_the_file(made, tmp_path):
    weights, pieces, numbers = made
    model = AutoModelForCausalLM.from_pretrained(convert(weights, pieces, tmp_path / "folder"))
    tokens = [1, 5, 260, 264, 261, 7, 262, 265]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].double().numpy()
    wanted = logits_of_llama2c(numbers, tokens)
    assert np.abs(wanted).max() > 1
    np.testing.assert_allclose(logits, wanted, atol=1e-4)


@pytest.mark.parametrize("text", ["abcd", "a", "ab cd abc", "abab  bcd", "dcba é 你 ab", ""])
def test_the_tokenizer_finds_the_pieces_that_llama2c_finds_and_gives_the_text_back(made, tmp_path, text):
    weights, pieces, _ = made
    tokenizer = AutoTokenizer.from_pretrained(convert(weights, pieces, tmp_path / "folder"))
    ids = tokenizer(text)["input_ids"]
    assert ids == (tokens_of_llama2c(text) if text else [1])
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_files_of_another_layout_are_refused(made, tmp_path):
    weights, pieces, _ = made
    for place, cut, problem in (
        (weights, -4, "numbers after the header"),
        (weights, 20, "the header alone has 28"),
        (pieces, -1, "ends within piece"),
        (pieces, 4 + 8 + len("<unk>"), "special ones and bytes alone"),
    ):
        whole = place.read_bytes()
        place.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=problem):
            convert(weights, pieces, tmp_path / "folder")
        place.write_bytes(whole)
    texts = pieces.read_bytes()
    pieces.write_bytes(texts + struct.pack("<fi", 0.0, 1) + b"x")
    with pytest.raises(DataError, match="name its own"):
        convert(weights, pieces, tmp_path / "folder")


def test_the_model_tells_of_lily(real_data, tmp_path):
    """With S3T_DATA alone: its files are not part of the project."""
    files = real_data / "weights"
    folder = convert(files / "stories260K.bin", files / "tok512.bin", tmp_path / "stories")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    written = model.generate(**tokenizer("", return_tensors="pt"), do_sample=False, max_new_tokens=60)
    text = tokenizer.decode(written[0], skip_special_tokens=True)
    assert text.startswith("Once upon a time, there was a little girl named Lily.")
