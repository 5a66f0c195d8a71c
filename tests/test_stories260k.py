"""The converter of llama2.c's files: what is refused, and the story that is in the real ones."""

import struct

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from s3t.errors import DataError
from testing.stories260k import HEADER, convert

WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, LENGTH = 4, 6, 1, 2, 1, 2
PIECES = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{number:02X}>" for number in range(256)), " ", *"abcd"]
NUMBERS = (
    *(len(PIECES) * WIDTH, WIDTH, WIDTH * WIDTH, 2 * WIDTH * KV_HEADS * WIDTH // HEADS, WIDTH * WIDTH),
    *(WIDTH, 3 * WIDTH * HIDDEN, WIDTH, 2 * LENGTH * WIDTH // HEADS // 2),
)
"""Of the tables in a file of weights: embedding, attention, feed-forward, the last norm, rotary angles."""


def test_files_of_another_layout_are_refused(tmp_path):
    weights, pieces, folder = tmp_path / "made.bin", tmp_path / "pieces.bin", tmp_path / "folder"
    header = HEADER.pack(WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, len(PIECES), LENGTH)
    weights.write_bytes(header + bytes(4 * sum(NUMBERS)))
    texts = [piece.encode() for piece in PIECES]
    each = (struct.pack("<fi", 0.0, len(text)) + text for text in texts)
    pieces.write_bytes(struct.pack("<i", max(map(len, texts))) + b"".join(each))
    convert(weights, pieces, folder)
    for place, cut, problem in (
        (weights, -4, "numbers after the header"),
        (weights, 20, "the header alone has 28"),
        (pieces, -1, "ends within piece"),
        (pieces, 4 + 8 + len("<unk>"), "special ones and bytes alone"),
    ):
        whole = place.read_bytes()
        place.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=problem):
            convert(weights, pieces, folder)
        place.write_bytes(whole)
    pieces.write_bytes(pieces.read_bytes() + struct.pack("<fi", 0.0, 1) + b"x")
    with pytest.raises(DataError, match="name its own"):
        convert(weights, pieces, folder)


def test_the_model_tells_of_lily(real_data, tmp_path):
    """With S3T_DATA alone: its files are not part of the project."""
    files = real_data / "weights"
    folder = convert(files / "stories260K.bin", files / "tok512.bin", tmp_path / "stories")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    written = model.generate(**tokenizer("", return_tensors="pt"), do_sample=False, max_new_tokens=60)
    text = tokenizer.decode(written[0], skip_special_tokens=True)
    assert text.startswith("Once upon a time, there was a little girl named Lily.")
    ids = tokenizer(f"{text} dcba é 你")["input_ids"]
    assert ids[: written.shape[1]] == written[0].tolist()  # the pieces that the model was trained on
    assert tokenizer.decode(ids, skip_special_tokens=True) == f"{text} dcba é 你"
