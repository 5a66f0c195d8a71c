"""Every input is in one batch of one window, whatever their sizes are."""

import pyarrow as pa
import torch
from hypothesis import given
from hypothesis import strategies as st

from s3t.prediction.windows import Windows


class Words:
    """Encodes texts as their number of words, and notes how many at a time."""

    def __init__(self):
        self.asked = []

    def encode(self, rows):
        self.asked.append(rows.num_rows)
        return [{"input_ids": [0] * len(text.split())} for text in rows["text"].to_pylist()]

    def answers(self, rows):
        return None

    def places(self, record):
        return (0,)

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
        twice = [list(window.batches()) for _ in range(2)]
        assert [rows for rows, _ in twice[0]] == [rows for rows, _ in twice[1]]
        words = []
        for rows, batch in twice[0]:
            assert len(rows) <= batch_size
            assert batch["words"].tolist() == [counts[row] for row in rows]
            seen += rows
            words += batch["words"].tolist()
        assert words == sorted(words)
    assert sorted(seen) == list(range(len(counts)))
    assert max(encoder.asked, default=0) <= batch_size * window_batches
    assert sum(encoder.asked) == len(counts)  # each is encoded once
