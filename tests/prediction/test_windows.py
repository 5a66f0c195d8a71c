"""Every input is in one batch of one window, whatever their sizes are."""

import pyarrow as pa
import torch
from hypothesis import given
from hypothesis import strategies as st

from s3t.models.encoders import Encoder, cheapest_parts
from s3t.prediction.ensemble import Windows


class Words(Encoder):
    """Encodes texts as their number of words, and notes how many at a time."""

    def __init__(self):
        self.asked = []

    def encode(self, rows):
        self.asked.append(rows.num_rows)
        return [{"input_ids": [0] * len(text.split())} for text in rows["text"].to_pylist()]

    def trial(self, roles):
        raise NotImplementedError

    def collate(self, records):
        return {"words": torch.tensor([len(record["input_ids"]) for record in records])}


@given(
    counts=st.lists(st.integers(0, 9), max_size=30),
    batch_size=st.integers(1, 5),
    window_batches=st.integers(1, 4),
)
def test_every_input_comes_once_and_beside_its_like(counts, batch_size, window_batches):
    inputs = pa.table({"text": pa.array([" ".join("w" * count) for count in counts], pa.string())})
    encoder = Words()
    windows = Windows(encoder, batch_size=batch_size, window_batches=window_batches)
    seen = []
    for window in windows.of(inputs, torch.device("cpu")):
        words = []
        for rows, batch in window:
            assert len(rows) <= batch_size
            assert batch["words"].tolist() == [counts[row] for row in rows]
            seen += rows
            words += batch["words"].tolist()
        assert words == sorted(words)
    assert sorted(seen) == list(range(len(counts)))
    assert max(encoder.asked, default=0) <= batch_size * window_batches
    assert sum(encoder.asked) == len(counts)  # each is encoded once


@given(
    lengths=st.lists(st.integers(1, 90), max_size=7).map(sorted), most=st.integers(1, 5), pass_tokens=st.integers(0, 99)
)
def test_no_other_parts_cost_less(lengths, most, pass_tokens):
    def cost(parts):
        return sum((part.stop - part.start) * lengths[part.stop - 1] + pass_tokens for part in parts)

    def divisions(start):
        if start == len(lengths):
            yield []
        for end in range(start + 1, min(start + most, len(lengths)) + 1):
            yield from ([slice(start, end), *rest] for rest in divisions(end))

    parts = cheapest_parts(lengths, most, pass_tokens=pass_tokens)
    assert parts in [*divisions(0)]
    assert cost(parts) == min(map(cost, divisions(0)))


def test_inputs_of_one_length_and_inputs_of_an_accelerator_fill_their_batches():
    expected = [slice(0, 64), slice(64, 128), slice(128, 130)]
    assert cheapest_parts([17] * 130, 64, pass_tokens=64) == expected
    assert cheapest_parts([*range(130)], 64, pass_tokens=None) == expected
