"""What the plain procedure and the competent one are tried on."""

from benchmarks import plain
from testing import tiny

ADAPTER = {"rank": 2, "alpha": 4, "target_modules": ["query", "dense"], "layers_per_slice": 1}
TRAINING = {"epochs": 2, "batch_size": 4, "learning_rate": 0.02, "warmup": 0.06, "seed": 0}
TRAINING |= {"precision": "bfloat16", "shortcuts": ["packing"]}


def slices_of(setting, count=24):
    table = tiny.text_table(count)
    parts = [table.iloc[number::3] for number in range(3)]
    return [plain.encoded(setting, part.text.tolist(), part.label.tolist()) for part in parts]
