"""The whole of s3t on scikit-learn's handwritten digits. Run by `make demo`; needs no download.

    python examples/digits.py runs/demo

A small ViT is pre-trained on a public half of the digits. The private half belongs to people: S3T fine-tunes on it
with 3 shards, 4 slices and 4 orders, then loses one record after another until no shard can answer. At the end the
run is repaired, audited, and left in the given folder with deletions.png and deletions.json. The model and the data
lie beside it, in folders of the same name with -model and -data.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import torch
from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from transformers import ViTConfig, ViTForImageClassification
from transformers import logging as transformers_logging

import s3t

matplotlib.use("agg")
from matplotlib import pyplot as plt

SEED = 7
SIDE = 8
SHARDS, SLICES, BUDGET = 3, 4, 4

console = Console()


def main(run_folder: Path) -> None:
    model_folder = run_folder.with_name(run_folder.name + "-model")
    data_folder = run_folder.with_name(run_folder.name + "-data")
    clear(run_folder, model_folder, data_folder)
    public, private, test = split_digits()
    data_folder.mkdir(parents=True)
    private.to_parquet(data_folder / "private.parquet")
    test.to_parquet(data_folder / "test.parquet")
    pretrain(public, model_folder)

    console.print(f"\n[bold]s3t init[/]: {len(private)} private records, {SHARDS} shards, {SLICES} slices")
    run = s3t.Run.create(
        run_folder, recipe=recipe(model_folder), data=data_folder / "private.parquet", public_data=True
    )
    console.print(f"[bold]s3t train[/]: {run.status().missing} stages")
    report = run.train(progress=s3t.ProgressBar())
    console.print(f"trained in {report.seconds:.0f} s")
    answers = run.predict(test.head(8))
    console.print(f"[bold]s3t predict[/]: {' '.join(map(str, answers.predicted))} for {' '.join(test.label.head(8))}")

    history = delete_until_dead(run, private, test)
    print_history(history)
    (run_folder / "deletions.json").write_text(json.dumps(history, indent=1) + "\n")
    draw(history, run_folder / "deletions.png")

    console.print("[bold]s3t repair[/]")
    report = run.repair(progress=s3t.ProgressBar())
    accuracy = run.evaluate(test, per_depth=False).accuracy
    console.print(f"{len(report.stages)} stages in {report.seconds:.0f} s; test accuracy {accuracy:.3f} again")
    console.print("[bold]s3t audit[/]: keys of all live stages, and 3 of them trained again")
    audit = run.audit(replay=3, progress=s3t.ProgressBar())
    console.print(f"{audit.checked} checked, {len(audit.replayed)} replayed, ok: {audit.ok}")
    run.close()
    console.print(f"\nThe run is in {run_folder}; look at {run_folder / 'deletions.png'}, or go on with")
    console.print(f"  .venv/bin/s3t status {run_folder}")
    console.print(f"  .venv/bin/s3t predict {run_folder} --input {data_folder / 'test.parquet'}")
    if not audit.ok:
        raise SystemExit(1)


def clear(*folders: Path) -> None:
    """Remove what an earlier demo left, and nothing that is not a demo's."""
    if folders[0].exists() and not (folders[0] / "run.json").is_file():
        raise SystemExit(f"{folders[0]} exists and is not a run; name another folder")
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def split_digits() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Public half, private records, test records."""
    digits = load_digits()
    table = pd.DataFrame(
        {
            "id": [f"digit-{number}" for number in range(len(digits.target))],
            "image": [png(pixels) for pixels in digits.images],
            "label": [str(label) for label in digits.target],
        }
    )
    public, private = train_test_split(table, test_size=0.5, random_state=SEED, stratify=table.label)
    private, test = train_test_split(private, test_size=0.25, random_state=SEED, stratify=private.label)
    return public.reset_index(drop=True), private.reset_index(drop=True), test.reset_index(drop=True)


def png(pixels: Any) -> bytes:
    """An 8 x 8 image of 0..16 as a grey PNG."""
    content = io.BytesIO()
    Image.fromarray((pixels * 255 / 16).astype("uint8")).save(content, format="png")
    return content.getvalue()


def pretrain(public: pd.DataFrame, folder: Path) -> None:
    """A small ViT, trained on the public half alone."""
    transformers_logging.disable_progress_bar()
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # so small a model gains nothing from more, and loses where cores are busy
    config = ViTConfig(
        image_size=SIDE,
        patch_size=2,
        num_channels=1,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        num_labels=10,
        hidden_dropout_prob=0.1,
    )
    model = ViTForImageClassification(config).train()
    pixels = torch.stack([torch.frombuffer(bytearray(decoded(image)), dtype=torch.uint8) for image in public.image])
    pixels_NCHW = pixels.float().div(255).sub(0.5).div(0.5).view(-1, 1, SIDE, SIDE)
    labels_N = torch.tensor([int(label) for label in public.label])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in track(range(40), description="pre-training on the public half", console=console):
        for chosen in torch.randperm(len(labels_N)).split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pixels_NCHW[chosen]).logits, labels_N[chosen]).backward()
            optimizer.step()
    model.save_pretrained(folder)


def decoded(image: bytes) -> bytes:
    with Image.open(io.BytesIO(image)) as opened:
        return opened.tobytes()


def recipe(model_folder: Path) -> dict[str, Any]:
    return {
        "task": "image-classification",
        "base_model": str(model_folder),
        "columns": {"id": "id", "image": "image", "label": "label"},
        "labels": [str(digit) for digit in range(10)],
        "partition": {"shards": SHARDS, "slices": SLICES, "salt": "digits"},  # declared, so that you see what we saw
        "sequences": {"budget": BUDGET},
        "adapter": {"rank": 8, "alpha": 16, "layers_per_slice": 1},
        "training": {
            "epochs": 12,
            "batch_size": 32,
            "learning_rate": 5e-3,
            "precision": "float32",
            "threads": 1,
            "seed": SEED,
        },
        "deletion": {"repair": "manual"},  # so that you see how many it takes
    }


def delete_until_dead(run: s3t.Run, private: pd.DataFrame, test: pd.DataFrame) -> list[dict[str, Any]]:
    """One row a deletion, until no shard answers."""
    history = [row(0, run.status().depths, run.evaluate(test, per_depth=False).accuracy, None)]
    console.print("[bold]s3t delete[/]: one record after another, until the system is dead")
    requests = private.id.sample(frac=1.0, random_state=SEED)
    for number, record in enumerate(requests, start=1):
        started = time.perf_counter()
        report = run.delete(records=[record])
        milliseconds = (time.perf_counter() - started) * 1000
        try:
            accuracy = run.evaluate(test, per_depth=False).accuracy
        except s3t.NoLiveShardError:
            accuracy = None
        history.append(row(number, report.depths_after, accuracy, milliseconds))
        if accuracy is None:
            break
    return history


def row(deletions: int, depths: tuple[int, ...], accuracy: float | None, milliseconds: float | None) -> dict[str, Any]:
    return {
        "deletions": deletions,
        "depths": list(depths),
        "accuracy": accuracy,
        "milliseconds": None if milliseconds is None else round(milliseconds, 2),
    }


def print_history(history: list[dict[str, Any]]) -> None:
    table = Table("deletions", "best depth per shard", "test accuracy", "milliseconds per deletion")
    for entry in history:
        table.add_row(
            str(entry["deletions"]),
            " ".join(map(str, entry["depths"])),
            "dead" if entry["accuracy"] is None else f"{entry['accuracy']:.3f}",
            "" if entry["milliseconds"] is None else f"{entry['milliseconds']:.1f}",
        )
    console.print(table)


def draw(history: list[dict[str, Any]], path: Path) -> None:
    """Accuracy above, depth of each shard below, against deletions."""
    alive = [entry for entry in history if entry["accuracy"] is not None]
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    upper.plot(
        [entry["deletions"] for entry in alive], [entry["accuracy"] for entry in alive], "o-", color="C0", markersize=4
    )
    upper.axvline(history[-1]["deletions"], color="C3", linestyle="--", label="no shard answers")
    upper.set(ylabel="test accuracy", ylim=(0, 1.02), title="Digits: 3 shards, 4 slices, 4 orders, nothing retrained")
    upper.legend(loc="lower left")
    deletions = [entry["deletions"] for entry in history]
    for shard in range(SHARDS):
        # A little apart, so that shards of one depth stay visible.
        depths = [entry["depths"][shard] + 0.04 * (shard - 1) for entry in history]
        lower.step(deletions, depths, where="post", label=f"shard {shard}", linewidth=2)
    lower.set(xlabel="deletions", ylabel="depth (slices in service)", yticks=range(SLICES + 1))
    lower.legend(loc="upper right")
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"))
