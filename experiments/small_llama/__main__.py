"""The command line: a stopped run goes on where its state was kept."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import transformers
from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import AutoTokenizer

from benchmarks.machine import kind
from experiments import small_llama
from experiments.alpaca import base_folder
from experiments.runner import Row, commit_of, rounded
from experiments.settings import load
from experiments.small_llama.corpus import END, PADDING, Corpus, corpus, documents, train_tokenizer
from experiments.small_llama.held_out import HeldOut
from experiments.small_llama.settings import Config
from experiments.small_llama.training import Training

FOLDER = Path(__file__).resolve().parent
CODE = sorted([*FOLDER.glob("*.py"), FOLDER.parent / "alpaca.py"])


def main() -> None:
    """Pre-train, or go on; at the end write model and results."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.small_llama",
        description=small_llama.__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on (default: no stop)")
    parser.add_argument("--threads", type=int, help="of torch (default: as config.yaml says)")
    parser.add_argument("--smoke", action="store_true", help="a tiny model on made-up records: that it works")
    parser.add_argument(
        "--output", type=Path, help="folder of state, model and results (default: small-llama in $S3T_EXPERIMENTS)"
    )
    options = parser.parse_args()
    if options.smoke and options.output is None:
        parser.error("--smoke trains nothing that may be kept: name a folder with --output")
    folder = options.output or base_folder().parent
    folder.mkdir(parents=True, exist_ok=True)
    config = load(Config, FOLDER / "config.yaml", smoke=options.smoke)
    if options.threads:
        config = config.model_copy(update={"threads": options.threads})
    try:
        with FileLock(folder / "lock", timeout=0):
            _train(config, folder, minutes=options.minutes, into=None if options.output else FOLDER)
    except Timeout:
        sys.exit(f"another process trains in {folder}")
    except FileNotFoundError as error:
        sys.exit(f"there is no {error.filename}; S3T_DATA has to name the folder of the records")
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the last kept state", file=sys.stderr)
        sys.exit(130)


def _train(config: Config, folder: Path, *, minutes: float | None, into: Path | None) -> None:
    """Go on with a state or begin, until the end or for so many minutes."""
    if (folder / "model").exists():
        print(f"the model is there: {folder / 'model'}; remove it to train it again", file=sys.stderr)
        return
    transformers.utils.logging.disable_progress_bar()
    found = corpus(Path(os.environ.get("S3T_DATA", "../shared/data")), made_up=config.made_up)
    files, state = folder / "tokenizer", folder / "state.safetensors"
    train_tokenizer(found, vocabulary=config.vocabulary, output=files)
    records, texts = documents(found, files)
    tokenizer = AutoTokenizer.from_pretrained(files)
    end, padding = tokenizer.convert_tokens_to_ids([END, PADDING])
    held_out = HeldOut(found.held_out, files, length=config.length)
    training = Training(config, records, texts, end=end, padding=padding)
    about = _about(config, [*records, *texts])
    if state.exists() and not training.load(state, about):
        sys.exit(f"{state} is of other settings, code, records or machine; remove it, or name another --output")
    _pass(training, held_out, state, about, threads=config.threads, minutes=minutes)
    if training.progress.step < training.steps:
        reached = held_out.perplexity(training.model)
        print(json.dumps({"step": training.progress.step, "of": training.steps, **reached}))
        print("stopped in time; the same command goes on", file=sys.stderr)
        return
    tokens = {"instructions": sum(map(len, records)), "texts": sum(map(len, texts))}
    result = _result(config, training, found, tokens)
    part = folder / "model.part"
    training.model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    result["sha256"] = hashlib.sha256((part / "model.safetensors").read_bytes()).hexdigest()
    for place in filter(None, (folder, into)):
        (place / "results.json").write_text(json.dumps(rounded(result), indent=2) + "\n")
    part.rename(folder / "model")
    state.unlink()


def _pass(
    training: Training, held_out: HeldOut, state: Path, about: str, *, threads: int, minutes: float | None
) -> None:
    """Train behind a bar, with deterministic algorithms."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    console = Console(stderr=True)
    console.print(f"pre-training: {training.progress.step} of {training.steps} steps are done")  # also into a log
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("pre-training", total=training.steps, completed=training.progress.step)

        def evaluate() -> dict[str, float]:
            found = held_out.perplexity(training.model)
            console.print(f"perplexity of held-out outputs: {found['perplexity']:.2f}")
            return found

        with _deterministic(threads):
            for step, loss in training.run(evaluate, until=until, save=lambda: training.save(state, about)):
                bar.update(task, completed=step, description=f"pre-training, loss {loss:.3f}")


@contextmanager
def _deterministic(threads: int) -> Iterator[None]:
    """Set deterministic algorithms and the number of threads, and restore them: they are settings of the process."""
    import torch

    own: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), own.fill_uninitialized_memory, torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    own.fill_uninitialized_memory = False  # hundredths of a step, and nothing is read before it is written
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        own.fill_uninitialized_memory = before[1]
        torch.set_num_threads(before[2])


def _about(config: Config, texts: list[Any]) -> str:
    """Digest of all that decides the bits of a state."""
    digest = hashlib.sha256(config.model_dump_json().encode())
    digest.update(json.dumps([kind(), version("transformers")], sort_keys=True).encode())
    for path in CODE:
        digest.update(path.read_bytes())
    for text in texts:
        digest.update(text.tobytes())
    return digest.hexdigest()


def _result(config: Config, training: Training, found: Corpus, tokens: dict[str, int]) -> Row:
    seconds = training.progress.seconds
    return {
        "commit": commit_of([FOLDER / "config.yaml", *CODE]),
        "date": datetime.now(UTC).date().isoformat(),
        "seed": config.seed,
        "hours": seconds / 3600,
        "machine": kind(),
        "versions": {package: version(package) for package in ("transformers", "tokenizers", "numpy")},
        "config": config.model_dump(mode="json"),
        "parameters": training.model.num_parameters(),
        "documents": {"instructions": len(found.instructions), "texts": len(found.texts)},
        "tokens": tokens,
        "tokens_passed": training.tokens,
        "tokens_a_second": training.tokens / seconds,
        "held_out": {"records": len(found.held_out), **training.progress.curve[-1]},
        "curve": training.progress.curve,
    }


if __name__ == "__main__":
    main()
