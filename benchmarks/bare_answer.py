"""One answer with torch and transformers alone: what `s3t predict` of one line is compared with.

python -m benchmarks.bare_answer MODEL TEXT
"""

from __future__ import annotations

import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def main() -> None:
    folder, text = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3).eval()
    with torch.inference_mode():
        print(model(**tokenizer([text], return_tensors="pt")).logits.softmax(-1).tolist())


if __name__ == "__main__":
    main()
