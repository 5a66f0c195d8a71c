"""Language models: training and writing, against transformers' Trainer and PEFT's own generation.

    OMP_NUM_THREADS=1 python -m benchmarks.language [--json] [--part training] [--model FOLDER] [--quick]

A Llama of 12.5 million parameters (8 layers of width 320, a vocabulary of 8,192), with random weights, or the one in
FOLDER. One thread; CPU seconds.

training    320 records of Alpaca, one shard, four slices of two layers, one order, LoRA r=16 on all linear modules,
            2 epochs, batch 16, at most 256 tokens, bfloat16. The opponents (`language_opponents.py`) do the same
            slice-wise procedure with `transformers.Trainer` and PEFT, frozen blocks on. Tokens are those of the
            records, without padding. Variants take turns, each in a process of its own, with two seeds; loading and
            encoding count.
writing     48 tokens after one prompt, the likeliest each time, by shards at full depth, whose blocks have their first
            values: one member by `Run.generate`, by PEFT's modules and transformers' `generate`, and five members by
            `Run.generate`; in turns within one process, medians of five, in both precisions.
streams     48 tokens after eight prompts by a server, three members: one request with all prompts, and eight streams
            that begin at once, 50 ms apart, or one after another; in turns, medians of five of tokens a second of the
            server's CPU time.

Each part is written to benchmarks/results/language.json when it is done. With --quick: a tiny model; that it works.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import psutil
import pyarrow.parquet as parquet
import torch
import transformers
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import s3t
from benchmarks.language_opponents import OPPONENTS, seconds_of
from benchmarks.machine import describe
from benchmarks.service import server
from s3t.core import Stage
from s3t.events import StageEnd, StageStart
from s3t.models.adapters import deserialize
from s3t.models.assembly import assemble
from s3t.recipe import recipe_from
from s3t.tasks.task import ANSWERED
from s3t_server.tokens import Access
from testing.plain import copy_with

RESULTS = Path(__file__).parent / "results" / "language.json"
VARIANTS = (*OPPONENTS, "s3t")
SLICES, SEEDS, RECORDS, NEW_TOKENS, TURNS = 4, 2, 320, 48, 5
SIZES = {"hidden_size": 320, "intermediate_size": 864, "num_hidden_layers": 8, "num_attention_heads": 5}
QUICK = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 8, "num_attention_heads": 2}
TEMPLATES = [
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
    "### Instruction:\n{instruction}\n\n### Response:\n",
]
TRAINING = {"epochs": 2, "batch_size": 16, "learning_rate": 1e-3, "schedule": "linear", "warmup": 0.06, "threads": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--part", choices=PARTS, action="append", help="this one alone; may be repeated")
    parser.add_argument("--model", type=Path, help="a folder of a language model instead of random weights")
    parser.add_argument("--quick", action="store_true", help="a tiny model, once: that it works")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results")
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant:
        print(json.dumps(variant(options.variant, options.folder)))
        return
    if options.quick and options.results == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another file with --results")
    found = json.loads(options.results.read_text()) if options.results.is_file() else {}
    for part in options.part or PARTS:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
            model = options.model or random_model(Path(folder) / "model", quick=options.quick)
            load = os.getloadavg()[0]
            measured = PARTS[part](Path(folder), model, quick=options.quick)
        found[part] = measured | {"machine": describe(), "load_before": load, "model": str(options.model or "random")}
        options.results.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found)) if options.json else show(found)


def alpaca(count: int, *, first: int = 0) -> pd.DataFrame:
    """Records of Alpaca that have an output."""
    folder = Path(os.environ.get("S3T_DATA", Path(__file__).parents[2] / "shared" / "data"))
    with lzma.open(folder / "alpaca" / "alpaca_data.json.xz") as file:
        table = pd.DataFrame(json.load(file))
    return table[table.output.str.strip() != ""].iloc[first : first + count]


def random_model(folder: Path, *, quick: bool) -> Path:
    """A Llama with random weights, and a tokenizer of bytes' pairs, fitted on other records than those of training."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=400 if quick else 8192, special_tokens=special, show_progress=False)
    table = alpaca(500 if quick else 20_000, first=10_000)
    tokenizer.train_from_iterator([*table.instruction, *table.output], trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        **(QUICK if quick else SIZES),
        **ids,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def recipe_of(model: Path, *, shards: int = 1, seed: int = 0, precision: str = "bfloat16") -> dict[str, Any]:
    layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    return {
        "task": "causal-lm",
        "base_model": str(model),
        "columns": {"prompt": TEMPLATES, "completion": "output"},
        "partition": {"shards": shards, "slices": SLICES, "salt": "language models"},
        "sequences": {"budget": 1},
        "adapter": {"rank": 16, "alpha": 32, "layers_per_slice": layers // SLICES},
        "language": {"max_length": 256},
        "training": TRAINING | {"seed": seed, "precision": precision},
    }


def training(folder: Path, model: Path, *, quick: bool) -> dict[str, Any]:
    """CPU seconds of every variant and stage, and how many times as fast s3t is."""
    runs = []
    for seed in range(1 if quick else SEEDS):
        by_variant = {}
        for name in VARIANTS if seed % 2 == 0 else VARIANTS[::-1]:
            print(f"seed {seed}: {name} ...", file=sys.stderr, flush=True)
            run = folder / f"{name}-{seed}"
            s3t.Run.create(
                run, recipe=recipe_of(model, seed=seed), data=alpaca(48 if quick else RECORDS), public_data=True
            ).close()
            command = [sys.executable, "-m", "benchmarks.language", "--variant", name, "--folder", str(run)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            by_variant[name] = json.loads(output.splitlines()[-1])
        runs.append(by_variant)
    faster = {
        name: {
            "times_as_fast": statistics.median(sum(run[name]["seconds"]) / sum(run["s3t"]["seconds"]) for run in runs),
            "by_stage": [
                statistics.median(run[name]["seconds"][stage] / run["s3t"]["seconds"][stage] for run in runs)
                for stage in range(SLICES)
            ],
        }
        for name in VARIANTS[:-1]
    }
    rates = {
        name: statistics.median(sum(run[name]["tokens"]) / sum(run[name]["seconds"]) for run in runs)
        for name in VARIANTS
    }
    return {"against": faster, "tokens_a_second": rates, "runs": runs}


def variant(name: str, folder: Path) -> dict[str, Any]:
    """Seconds and tokens of each stage, in a process of its own."""
    transformers.logging.set_verbosity_error()
    return by_s3t(folder) if name == "s3t" else by_trainer(name, folder)


class _Stages:
    """CPU seconds of stages, as training tells them; of the first one, with the loading of the model."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._since = time.process_time()

    def __call__(self, event: object) -> None:
        if isinstance(event, StageStart) and self.seconds:
            self._since = time.process_time()
        if isinstance(event, StageEnd):
            self.seconds.append(time.process_time() - self._since)


def by_s3t(folder: Path) -> dict[str, Any]:
    with s3t.Run.open(folder) as run:
        slices = encoded_slices(run)
        heard = _Stages()
        run.train(progress=heard)
    return {"seconds": heard.seconds, "tokens": tokens_of(slices)}


def by_trainer(name: str, folder: Path) -> dict[str, Any]:
    """The same stages by an opponent."""
    with s3t.Run.open(folder) as run:
        slices, recipe = encoded_slices(run), run.recipe
    return {"seconds": seconds_of(OPPONENTS[name], slices, recipe, folder), "tokens": tokens_of(slices)}


def encoded_slices(run: s3t.Run) -> list[list[dict[str, list[int]]]]:
    """Tokens and labels of the slices, in the order in which the run trains them."""
    _, encoder = assemble(Path(run.recipe.base_model), run.recipe, labels=1)
    found = []
    for index in run.inventory().orders[0][0]:
        (path,) = (run.path / "slices").glob(f"shard-000/slice-{index:03d}-*.parquet")
        records = encoder.encode(parquet.read_table(path))
        found.append(
            [
                {
                    "input_ids": record["input_ids"].tolist(),
                    "labels": [-100, *torch.where(record[ANSWERED][:-1], record["input_ids"][1:], -100).tolist()],
                }
                for record in records
            ]
        )
    return found


def tokens_of(slices: list[list[dict[str, list[int]]]]) -> list[int]:
    """Tokens that each stage passes in all epochs."""
    each = [sum(len(example["input_ids"]) for example in part) for part in slices]
    return [TRAINING["epochs"] * sum(each[: stage + 1]) for stage in range(SLICES)]  # type: ignore[operator]


def writing(folder: Path, model: Path, *, quick: bool) -> dict[str, Any]:
    """Milliseconds a token of every way, and their ratios."""
    found: dict[str, Any] = {}
    for precision in ("float32", "bfloat16"):
        recipe = recipe_of(model, shards=5, precision=precision)
        recipe["training"] |= {"epochs": 0}
        with s3t.Run.create(folder / precision, recipe=recipe, data=alpaca(60), public_data=True) as run:
            run.train()
            each = timed(ways(run, 4 if quick else NEW_TOKENS), turns=1 if quick else TURNS)
        found[precision] = {
            "milliseconds": each,
            "one_over_peft": each["one"] / each["peft"],
            "five_over_one": each["five"] / each["one"],
        }
    return found


def ways(run: s3t.Run, count: int) -> Mapping[str, Callable[[], int]]:
    """Ways to write, each of which returns its number of tokens."""
    prompt = [{"instruction": "Name three things that a harbour needs.", "input": ""}]
    first = run.score(alpaca(1)).members[0]
    recipe = recipe_from(run.recipe)
    model, _ = assemble(Path(recipe.base_model), recipe, labels=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(recipe.base_model)
    keys = run.inventory().alive
    chain = {
        depth: deserialize((run.path / "artifacts" / "shard-000" / f"{keys[stage]}.safetensors").read_bytes())
        for depth, stage in enumerate(Stage(first.shard, first.prefix).chain, start=1)
    }
    peft: Any = copy_with(model, chain)
    asked = torch.tensor([tokenizer(TEMPLATES[1].format(**prompt[0]))["input_ids"]])
    settings = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "use_cache": True}

    def by_peft() -> int:
        reduced = recipe.training.precision == "bfloat16"
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=reduced):
            written = peft.generate(input_ids=asked, attention_mask=torch.ones_like(asked), **settings)
        return int(written.shape[1] - asked.shape[1])

    return {
        "one": lambda: run.generate(prompt, prefixes=[first], max_new_tokens=count).tokens[0],
        "peft": by_peft,
        "five": lambda: run.generate(prompt, max_new_tokens=count).tokens[0],
    }


def streams(folder: Path, model: Path, *, quick: bool) -> dict[str, Any]:
    """Tokens a CPU second of every way, and ratios to one request with all prompts."""
    recipe = recipe_of(model, shards=3)
    recipe["training"] |= {"epochs": 0}
    with s3t.Run.create(folder / "streams", recipe=recipe, data=alpaca(60), public_data=True) as run:
        run.train()
        token = Access(run).create("benchmark", scopes=["predict"])[1]
    prompts = alpaca(8, first=1000)[["instruction", "input"]].to_dict("records")
    body = {"max_tokens": 4 if quick else NEW_TOKENS, "temperature": 0.0}
    streamed = body | {"stream": True, "stream_options": {"include_usage": True}}
    with (
        server(folder / "streams", "--workers", "1") as url,
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=600) as client,
    ):

        def stream(number: int, wait: float) -> int:
            time.sleep(number * wait)
            found = client.post("/v1/completions", json=streamed | {"prompt": [prompts[number]]}).raise_for_status()
            return int(json.loads(found.text.split("data: ")[-2])["usage"]["completion_tokens"])

        def together() -> int:
            found = client.post("/v1/completions", json=body | {"prompt": prompts}).raise_for_status()
            return int(found.json()["usage"]["completion_tokens"])

        def apart(wait: float) -> int:
            with ThreadPoolExecutor(len(prompts)) as threads:
                return sum(threads.map(stream, range(len(prompts)), [wait] * len(prompts)))

        each = {
            "one request": together,
            "at once": lambda: apart(0.0),
            "50 ms apart": lambda: apart(0.05),
            "one after another": lambda: sum(stream(number, 0.0) for number in range(len(prompts))),
        }
        milliseconds = timed(each, turns=1 if quick else TURNS, clock=_server_seconds)
    rates = {name: 1000 / each for name, each in milliseconds.items()}
    return {
        "tokens_a_second": rates,
        "of_one_request": {name: rates[name] / rates["one request"] for name in each if name != "one request"},
    }


def _server_seconds() -> float:
    """CPU seconds of the processes that this one has begun."""
    return sum(sum(each.cpu_times()[:2]) for each in psutil.Process().children(recursive=True))


def timed(
    each: Mapping[str, Callable[[], int]], *, turns: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Median milliseconds a token, after one turn that is not counted."""
    found: dict[str, list[float]] = {name: [] for name in each}
    for turn in range(turns + 1):
        for name, way in each.items():
            since = clock()
            tokens = way()
            if turn:
                found[name].append(1000 * (clock() - since) / tokens)
    return {name: statistics.median(values) for name, values in found.items()}


PARTS: Mapping[str, Callable[..., dict[str, Any]]] = {"training": training, "writing": writing, "streams": streams}


def show(found: Mapping[str, Any]) -> None:
    """A table a part."""
    console = Console(soft_wrap=True)
    if "training" in found:
        table = Table("against", "times as fast", "by stage")
        for name, ratios in found["training"]["against"].items():
            stages = ", ".join(f"{ratio:.2f}" for ratio in ratios["by_stage"])
            table.add_row(name, f"{ratios['times_as_fast']:.2f}", stages)
        console.print(table, {name: round(rate) for name, rate in found["training"]["tokens_a_second"].items()})
    if "writing" in found:
        table = Table("precision", *(f"{name}, ms a token" for name in ("one", "peft", "five")), "one/peft", "five/one")
        for precision in ("float32", "bfloat16"):
            row = found["writing"][precision]
            times = [f"{row['milliseconds'][name]:.2f}" for name in ("one", "peft", "five")]
            table.add_row(precision, *times, f"{row['one_over_peft']:.2f}", f"{row['five_over_one']:.2f}")
        console.print(table)
    if "streams" in found:
        rates, shares = found["streams"]["tokens_a_second"], found["streams"]["of_one_request"]
        table = Table("streams", "tokens a CPU second", "of one request")
        for name, rate in rates.items():
            table.add_row(name, f"{rate:.0f}", f"{shares.get(name, 1):.2f}")
        console.print(table)


if __name__ == "__main__":
    main()
