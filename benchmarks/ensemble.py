"""An ensemble's answers against merged models, on real data, one thread: many inputs, and one text.

    OMP_NUM_THREADS=1 python -m benchmarks.ensemble [--data-set NAME] [--rounds 3] [--inputs 128]

Writes benchmarks/results/ensemble.json, a data set at a time. What of a data set is there is not measured again: many
inputs, or one text and merged weights. On two quiet cores a data set takes about six minutes. Times are the
processor's, of one thread, in turns within one process.

**Many inputs.** banking77, SST-2, CoLA and STS-B with MiniLM (6 layers), CIFAR-10 with a ViT (12 layers). m=5, slices
of one layer each, LoRA r=16 alpha=32 with random values, batches of 64. At full depth every member has a block on each
layer; at half depth on the upper half. Ways, from inputs to logits:

    s3t           as a run answers: here with merged weights (`prediction.merged_memory`)
    side by side  s3t without merged weights
    merged        PEFT folds each member's adapters into a model of its own, and all are kept in memory. Texts are
                  sorted by length; each model passes the same batches, in the same precision (autocast)
    plain         PEFT's adapters on the model, one pass a member, batches of the inputs in their order

bound: multiplications of the members' whole passes, by those of passes that share the layers below the blocks.

**One text.** Of the data sets of texts. Runs of 5 shards, 3 slices of two layers each, trained on 1,500 records of the
data set for two epochs. One member's warm answer by `Run.predict`, against its bare pass: the tokenizer's call and the
model's forward pass, with the member's adapters merged by PEFT, or as PEFT's modules. Twenty members are those of a run
of 20 shards.

**Merged weights.** How far answers of the trained members differ between merged weights and adapters beside the base's
weights; in bfloat16 also how far each is from float32. Probabilities are of the ensemble; a regression has its number.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks.data_sets import plain_images
from benchmarks.machine import describe
from benchmarks.one_text import differences, one_text, trained
from experiments.tasks import task
from s3t.models.assembly import assemble
from s3t.models.encoders import tokens
from s3t.models.source import model_folder
from s3t.prediction.ensemble import Ensemble, Windows, fit_merged
from s3t.program import set_up_process
from s3t.recipe import recipe_from
from s3t.tasks.aggregate import Scores
from testing.plain import member_logits, merged_model, random_chain

RESULTS = Path(__file__).parent / "results" / "ensemble.json"
MEMBERS, BATCH, RANK, RECORDS = 5, 64, 16, 1_500
DEPTHS = {"full": 1.0, "half": 0.5}
PRECISIONS = ("float32", "bfloat16")

RATIOS = {
    "one_over_merged": "one member over the bare pass of the merged model",
    "one_over_adapters": "one member over the bare pass with PEFT's modules",
    "twenty_over_one": "twenty members over one",
}
BESIDE = {"merged_and_side_by_side": "merged, and beside the base's weights"}
DIFFERENCES = {
    "float32": BESIDE,
    "bfloat16": BESIDE
    | {
        "merged_and_float32": "merged, and float32",
        "side_by_side_and_float32": "beside the base's weights, and float32",
    },
}

DATA_SETS = ("banking77", "sst2", "cola", "stsb", "cifar10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data-set", choices=DATA_SETS, action="append", help="measure this one alone; repeatable")
    parser.add_argument("--inputs", type=int, default=128, help="texts or images")
    parser.add_argument("--rounds", type=int, default=3, help="alternations")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file; data sets that are there stay")
    options = parser.parse_args()
    set_up_process()  # as `s3t predict` does; for all ways
    found: dict[str, Any] = json.loads(options.results.read_text()) if options.results.is_file() else {}
    for name in options.data_set or DATA_SETS:
        given = Given(name, inputs=options.inputs, rounds=options.rounds)
        for part, measure in PARTS.items():
            if part not in found.setdefault(name, {}) and (part != "one_text" or given.of_texts):
                noted = {
                    "inputs": options.inputs,
                    "rounds": options.rounds,
                    "load_before": round(os.getloadavg()[0], 2),
                }
                found[name] |= measure(given)
                found[name].setdefault("measured", {})[part] = noted | {"machine": describe()}
                options.results.write_text(json.dumps(found, indent=2) + "\n")
    if options.json:
        print(json.dumps(found))
        return
    print("\n".join(table_rows(found)))


def table_rows(found: Mapping[str, Any]) -> list[str]:
    """The rows of the tables in docs/benchmarks.md: the worst and the best data set of each precision; then the largest
    differences."""

    def row(what: str, *cells: str) -> str:
        return f"| {what} | {' | '.join(cells)} |"

    def ends(values: Mapping[str, float], *, best: Callable[..., str]) -> str:
        good = best(values, key=lambda name: values[name])
        bad = (min if best is max else max)(values, key=lambda name: values[name])
        return ", ".join(f"{values[name]:.2f} ({name})" for name in (bad, good))

    rows = []
    for depth in DEPTHS:
        cases = [f"{precision}, {depth} depth" for precision in PRECISIONS]
        fast = [{name: each["many_inputs"][case]["times_as_fast"] for name, each in found.items()} for case in cases]
        what = f"five members, {depth} depth: times as fast as merged models"
        rows.append(row(what, *(ends(values, best=max) for values in fast)))
    texts = {name: each["one_text"] for name, each in found.items() if "one_text" in each}
    for key, what in RATIOS.items():
        slow = [{name: each[precision][key] for name, each in texts.items()} for precision in PRECISIONS]
        rows.append(row(f"one text: {what}", *(ends(values, best=min) for values in slow)))
    for precision, pairs in DIFFERENCES.items():
        for key, what in pairs.items():
            apart = [each["merged_weights"][precision][key] for each in found.values() if "merged_weights" in each]
            labelled = [each for each in apart if "other_labels" in each]
            cells = [f"{max(each['largest'] for each in labelled):.1e}"]
            cells.append(f"{100 * max(each['other_labels'] for each in labelled):.1f} %")
            cells.append(", ".join(f"{each['largest']:.1e}" for each in apart if "other_labels" not in each) or "none")
            rows.append(row(f"{precision}: {what}", *cells))
    return rows


class Given:
    """A data set's records, the inputs that are asked about, and the recipe that both precisions share.

    Attributes:
        records: to train on.
        asked: their columns of features.
        by_role: the same, by what a recipe calls them.
        layers: of the model.
    """

    def __init__(self, name: str, *, inputs: int, rounds: int) -> None:
        found = task(name, records=RECORDS, tried=inputs)
        features = {role: column for role, column in found.recipe["columns"].items() if role not in ("id", "label")}
        self.name, self.rounds, self.layers = name, rounds, found.layers
        self.records = found.train
        self.asked = plain_images(found.test)[list(features.values())]
        self.by_role = pa.table({role: self.asked[column].tolist() for role, column in features.items()})
        adapter = {"rank": RANK, "alpha": 32, "target_modules": list(found.modules)}
        self._recipe = {"prediction": {"batch_size": BATCH}, **found.recipe, "adapter": adapter}

    @property
    def of_texts(self) -> bool:
        """Whether the inputs are texts."""
        return "text" in self.by_role.column_names

    def recipe(self, precision: str) -> dict[str, Any]:
        """With the precision of passes."""
        return self._recipe | {
            "training": {"precision": precision, "threads": 1, "epochs": 2, "learning_rate": 2e-3},
        }


def many_inputs(given: Given) -> dict[str, Any]:
    """Ways to the answers of five members to many inputs."""
    found = {}
    for precision in PRECISIONS:
        for depth, share in DEPTHS.items():
            case = Case(given.recipe(precision), given.by_role, layers=given.layers, depth=round(share * given.layers))
            every = case.ways()
            ways = every if given.name == "banking77" else {way: every[way] for way in ("s3t", "merged")}
            found[f"{precision}, {depth} depth"] = compared(ways, given.rounds) | {"bound": round(case.bound(), 3)}
    return {"many_inputs": found}


def trained_members(given: Given) -> dict[str, Any]:
    """The answer of trained members to one text, and what merged weights change."""
    one, merged = {}, {}
    for precision in PRECISIONS:
        recipe = given.recipe(precision)
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
            few = trained(recipe, given.records, Path(folder) / "few", shards=MEMBERS)
            twenty = trained(recipe, given.records[:240], Path(folder) / "twenty", shards=20)
            with few, twenty:
                merged[precision] = differences(few, given.asked)
                one[precision] = one_text(few, twenty, given.asked)
    return {"one_text": one, "merged_weights": merged}


class Case:
    """Members of one depth with random values, and inputs."""

    def __init__(self, recipe: Mapping[str, Any], inputs: pa.Table, *, layers: int, depth: int) -> None:
        whole = recipe_from({**recipe, "partition": {"shards": MEMBERS, "slices": layers}})
        self.layers, self.depth, self.training, self.inputs = layers, depth, whole.training, inputs
        labels = whole.task.target.outputs(() if whole.labels is None else whole.labels)
        model, self.encoder = assemble(model_folder(whole.base_model, revision=None), whole, labels=labels)
        self.model = model
        self.chains = [random_chain(self.model, depth, seed=seed, spread=0.03) for seed in range(MEMBERS)]
        windows = Windows(self.encoder, batch_size=BATCH, window_batches=64)
        settings = whole.prediction
        memory = {"memory": settings.merged_memory, "kept": settings.adapter_memory}
        merged = fit_merged(self.model, members=MEMBERS, blocks=layers, **memory)
        made: Callable[..., Ensemble] = partial(Ensemble, self.model, windows, training=self.training)
        self.ensembles = {"s3t": made(merged=merged), "side by side": made()}
        self.members = {
            way: [[ensemble.prepared(*stage) for stage in chain.items()] for chain in self.chains]
            for way, ensemble in self.ensembles.items()
        }
        self.merged = [merged_model(self.model, chain) for chain in self.chains]

    def ways(self) -> dict[str, Callable[[], Scores]]:
        """What is compared, by name."""
        ours = {way: partial(each.logits, self.members[way], self.inputs) for way, each in self.ensembles.items()}
        return {**ours, "merged": self.sorted_passes, "plain": self.plain_passes}

    def sorted_passes(self) -> Scores:
        """Passes of the merged models, over batches of texts sorted by length; the logits in the inputs' order."""
        encoded = self.encoder.encode(self.inputs)
        order = sorted(range(len(encoded)), key=lambda row: tokens(encoded[row]))
        found = np.zeros((MEMBERS, len(encoded), self.model.base.answers))
        reduced = self.training.precision == "bfloat16"
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=reduced, cache_enabled=False):
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                batch = self.encoder.collate([encoded[row] for row in rows])
                for member, model in enumerate(self.merged):
                    found[member, rows] = model(**batch).logits.float().numpy()
        return found

    def plain_passes(self) -> Scores:
        """A pass a member with PEFT's modules, over batches in the inputs' order."""
        encoded = self.encoder.encode(self.inputs)
        return np.stack(
            [
                member_logits(
                    self.model, chain, encoded, encoder=self.encoder, batch_size=BATCH, training=self.training
                )
                for chain in self.chains
            ]
        )

    def bound(self) -> float:
        """Multiplications in the layers' linear modules: of whole passes, by those above a shared trunk."""
        return self.layers * MEMBERS / (self.layers - self.depth + self.depth * MEMBERS)


def compared(ways: Mapping[str, Callable[[], Scores]], rounds: int) -> dict[str, Any]:
    """Median seconds of each way, and how far logits are from those of the merged models."""
    found = {way: compute() for way, compute in ways.items()}  # once, to warm up
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, compute in ways.items():
            started = time.process_time()
            compute()
            times[way].append(time.process_time() - started)
    medians = {way: float(np.median(values)) for way, values in times.items()}
    return {
        "seconds": {way: round(seconds, 3) for way, seconds in medians.items()},
        "times_as_fast": round(medians["merged"] / medians["s3t"], 3),
        "largest_difference": float(np.abs(found["s3t"] - found["merged"]).max()),
        "largest_logit": round(float(np.abs(found["merged"]).max()), 3),
    }


PARTS: Mapping[str, Callable[[Given], dict[str, Any]]] = {"many_inputs": many_inputs, "one_text": trained_members}
"""Measurements of a data set, by the name of the first result."""


if __name__ == "__main__":
    main()
