"""Trained members for `benchmarks.ensemble`: the warm answer to one text, and what merged weights change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoTokenizer

import s3t
from benchmarks.operators import kind_of, operations, operators_of
from s3t.core import Stage
from s3t.models.adapters import StageTensors, deserialize
from s3t.models.assembly import assemble
from s3t.models.source import model_folder
from s3t.prediction.answers import Answers
from s3t.prediction.ensemble import Ensemble, Windows
from s3t.tasks.aggregate import Scores
from testing.plain import copy_with, merged_model
from testing.roles import roles

TEXTS, WARM = 100, 10
PROFILED, TURNS = 20, 5


def trained(recipe: Mapping[str, Any], records: pd.DataFrame, path: Path, *, shards: int) -> s3t.Run:
    """A run of three slices of two layers each, trained."""
    sizes = {"partition": {"shards": shards, "slices": 3}, "sequences": {"budget": 1}}
    adapter = {"adapter": {**recipe["adapter"], "layers_per_slice": 2}}
    columns = list(recipe["columns"].values())
    run = s3t.Run.create(path, recipe={**recipe, **sizes, **adapter}, data=records[columns], public_data=True)
    run.train()
    return run


def one_text(few: s3t.Run, twenty: s3t.Run, inputs: pd.DataFrame) -> dict[str, Any]:
    """Milliseconds of the processor for one text: medians, in turns."""
    names = [role for role in ("text", "text_pair") if getattr(few.recipe.columns, role) is not None]
    texts = [dict(zip(inputs.columns, row, strict=True)) for row in inputs.itertuples(index=False)][: TEXTS + WARM]
    member = few.inventory().members()[0].prefix
    ways: dict[str, Callable[[dict[str, str]], Any]] = {
        "one": lambda row: few.predict([row], prefixes={0: member}),
        "twenty": lambda row: twenty.predict([row]),
        **bare_passes(few, Stage(0, tuple(member)), count=len(names)),
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for row in texts:
        for way, answer in ways.items():
            started = time.thread_time()
            answer(row)
            times[way].append(time.thread_time() - started)
    profiles = {way: profiled(ways[way], texts[WARM : WARM + PROFILED]) for way in ("one", "twenty")}
    torch.set_num_threads(threads)
    medians = {way: 1_000 * float(np.median(values[WARM:])) for way, values in times.items()}
    return {
        "milliseconds": {way: round(value, 2) for way, value in medians.items()},
        "one_over_merged": round(medians["one"] / medians["merged"], 3),
        "one_over_adapters": round(medians["one"] / medians["adapters"], 3),
        "twenty_over_one": round(medians["twenty"] / medians["one"], 3),
        "profiled": profiles,
    }


def profiled(answer: Callable[[dict[str, str]], Any], texts: Sequence[dict[str, str]]) -> dict[str, float]:
    """Milliseconds of operators for a text: of all, and of products with the base's weights; medians over the texts.

    Also multiplications and additions of the latter, in millions. The profiler's clock runs while another program has
    the processor, so each text is answered a few times, and the fastest answer counts.
    """
    answers = [min(_profile(answer, row) for _ in range(TURNS)) for row in texts]
    medians = [float(np.median(values)) for values in zip(*answers, strict=True)]
    return dict(zip(("all", "base", "base_mflop"), (round(value, 3) for value in medians), strict=True))


def _profile(answer: Callable[[dict[str, str]], Any], row: dict[str, str]) -> tuple[float, float, float]:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as events:
        answer(row)
    found = operators_of(events)
    base = [one for one in found if kind_of(one[0], one[1]) == "base"]
    flops = sum(calls * operations(shapes) for _, shapes, _, calls in base)
    return 1e3 * sum(own for _, _, own, _ in found), 1e3 * sum(own for _, _, own, _ in base), flops / 1e6


def bare_passes(run: s3t.Run, stage: Stage, *, count: int) -> dict[str, Callable[[dict[str, str]], Any]]:
    """The tokenizer's call and one forward pass, with PEFT's modules or what PEFT merges."""
    model, chain = roles(run).loaded.get().model, tensors_of(run, stage)
    tokenizer = AutoTokenizer.from_pretrained(model_folder(run.recipe.base_model, revision=None))
    reduced = run.recipe.training.precision == "bfloat16"

    def passed_by(model: Any) -> Callable[[dict[str, str]], Any]:
        def bare(row: dict[str, str]) -> Any:
            reduced_sums = torch.autocast("cpu", torch.bfloat16, enabled=reduced, cache_enabled=False)
            with torch.inference_mode(), reduced_sums:
                batch = tokenizer(*([text] for text in row.values()), return_tensors="pt", truncation=True)
                return model(**batch).logits.float().numpy()

        return bare

    made = {"merged": merged_model, "adapters": copy_with}
    return {way: passed_by(make(model, chain)) for way, make in made.items()}


def tensors_of(run: s3t.Run, stage: Stage) -> dict[int, StageTensors]:
    """The trained stages of a chain, by block."""
    workshop, snapshot = roles(run).loaded.get(), roles(run).ledger.snapshot()
    return {
        workshop._recipe.trained_block(len(artifact.manifest.prefix)): deserialize(artifact.content)
        for artifact in workshop._artifacts(stage, snapshot)
    }


def differences(run: s3t.Run, inputs: pd.DataFrame) -> dict[str, Any]:
    """How far answers are apart: with merged weights and without; and from float32, where the run has bfloat16."""
    workshop, snapshot = roles(run).loaded.get(), roles(run).ledger.snapshot()
    stages = list(run.inventory().members().values())
    names = ("text", "text_pair")[: inputs.shape[1]]
    table = pa.table(dict(zip(names, inputs.to_dict("list").values(), strict=True)))
    chains = [workshop.chain([stage], snapshot) for stage in stages]
    unmerged = [[without_merged(link) for link in chain] for chain in chains]
    merged, beside = (Compared(run, stages, workshop.ensemble.logits(members, table)) for members in (chains, unmerged))
    found = {"merged_and_side_by_side": merged.difference(beside)}
    if run.recipe.training.precision == "bfloat16":
        exact = in_float32(run)
        links = [[exact.prepared(*one) for one in tensors_of(run, stage).items()] for stage in stages]
        truth = Compared(run, stages, exact.logits(links, table))
        found |= {"merged_and_float32": merged.difference(truth), "side_by_side_and_float32": beside.difference(truth)}
    return found


def in_float32(run: s3t.Run) -> Ensemble:
    """Passes of the base model as float32 has it, for a run whose base is kept in bfloat16."""
    training = run.recipe.training.model_copy(update={"precision": "float32"})
    recipe = run.recipe.model_copy(update={"training": training})
    labels = recipe.task.target.outputs(run.labels)
    model, encoder = assemble(model_folder(recipe.base_model, revision=None), recipe, labels=labels)
    windows = Windows(
        encoder, batch_size=recipe.prediction.batch_size, window_batches=recipe.task.inputs.window_batches
    )
    return Ensemble(model, windows, training=training)


def without_merged(link: Any) -> Any:
    """A link whose adapters stand beside the base's weights."""
    return type(link)(block=link.block, updates=link.updates, head=link.head)


class Compared:
    """Answers of one computation of the members' logits."""

    def __init__(self, run: s3t.Run, stages: list[Stage], logits: Scores) -> None:
        settings = Answers(target=run.recipe.task.target, labels=run.labels, settings=run.recipe.prediction)
        self.answers, self.probabilities = settings.answer(logits, [stage.shard for stage in stages])

    def difference(self, other: Compared) -> dict[str, float]:
        """Largest and root mean square difference of probabilities, or of numbers; share of other labels."""
        if self.probabilities is None or other.probabilities is None:
            apart = np.abs(np.asarray(self.answers, dtype=float) - np.asarray(other.answers, dtype=float))
            return {"largest": float(apart.max()), "rms": float(np.sqrt(np.mean(apart**2)))}
        apart = np.abs(self.probabilities - other.probabilities)
        changed = np.mean([one != another for one, another in zip(self.answers, other.answers, strict=True)])
        return {
            "largest": float(apart.max()),
            "rms": float(np.sqrt(np.mean(apart**2))),
            "other_labels": float(changed),
        }
