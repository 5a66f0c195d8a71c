"""What one product for LoRA's first matrices of query, key and value would gain over three, which s3t computes.

    OMP_NUM_THREADS=1 python -m benchmarks.joined [--json] [--results FILE]

The three modules share their input, tokens x width, so their matrices, rank 16 x width each, could be joined. CPU
seconds of one thread, forward and backward, the least of the rounds; the gain is a share of what a BERT layer of this
width takes for products with the base's weights: as many multiplications as 12 products of width x width.

Writes benchmarks/results/joined.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.machine import describe

RESULTS = Path(__file__).parent / "results" / "joined.json"
RANK, SHARING, ROUNDS = 16, 3, 60
WIDTHS, TOKENS, PRECISIONS = (384, 768), (512, 2_048), ("float32", "bfloat16")
LAYER = 12
"""Products of width x width that a layer's weights make: 4 of the attention, 8 of the feed-forward module."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that is written")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = round(os.getloadavg()[0], 2)
    points = [
        {"precision": precision, "width": width, "tokens": tokens}
        | measured(tokens, width, getattr(torch, precision), rounds=ROUNDS)
        for precision in PRECISIONS
        for width in WIDTHS
        for tokens in TOKENS
    ]
    result = {"points": points, "load_before": load, "machine": describe()}
    options.results.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if options.json else "\n".join(map(str, points)))


def measured(tokens: int, width: int, dtype: torch.dtype, *, rounds: int) -> dict[str, float]:
    """Least seconds of three products, of one, and of a layer's products with the base's weights; the share gained."""
    states = torch.randn(tokens, width, dtype=dtype, requires_grad=True)
    downs = [torch.randn(RANK, width, requires_grad=True) for _ in range(SHARING)]
    frozen = [torch.randn(width, width, dtype=dtype) for _ in range(SHARING)]

    def apart() -> list[Tensor]:
        return [states @ down.to(dtype).t() for down in downs]

    def joined() -> list[Tensor]:
        return [states @ torch.cat(downs).to(dtype).t()]

    def base() -> list[Tensor]:
        return [states @ weight.t() for weight in frozen]

    seconds = [least(way, rounds) for way in (apart, joined, base)]
    layer = seconds[2] * LAYER / SHARING
    return {"apart": seconds[0], "joined": seconds[1], "layer": layer, "gain": (seconds[0] - seconds[1]) / layer}


def least(products: Callable[[], list[Tensor]], rounds: int) -> float:
    """Least CPU seconds of a forward and a backward pass."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        torch.stack([product.sum() for product in products()]).sum().backward()  # type: ignore[no-untyped-call]
        times.append(time.process_time() - began)
    return min(times)


if __name__ == "__main__":
    main()
