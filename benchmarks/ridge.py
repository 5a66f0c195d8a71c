"""What `method: ridge` costs: a large run, a deletion, and an answer. One thread.

    OMP_NUM_THREADS=1 python -m benchmarks.ridge [--json] [--part answers] [--records 1000000] [--quick]
                                                 [--results FOLDER]

    million     1,000,000 short texts of 1,000 labels, 10,000 a slice, and a BERT with random weights: three layers of
                width 128, joined, and a projection to 2,048 features in all. Each step in a process of its own
    effective   10,000 records of banking77 with MiniLM in 12 slices: ten deletions of one record, each with two
                answers to one text: without the slice, and with it once it is repaired
    answers     1,000 inputs, and single ones, of banking77, SST-2 and CIFAR-10: `Run.predict` against the bare pass
                that a competent user writes with transformers: inputs sorted by length, batches of the same size, no
                gradients, the mean of the last layer; in turns
    opponent    all records of banking77 and SST-2, 10,000 of CIFAR-10: training until the first answer, accuracy, and
                five deletions of one record until the next answer, of s3t and of what a competent user writes: the
                same features by transformers, kept in memory, and scikit-learn's logistic regression (C of 1, 10 and
                100 by a held-out tenth) or RidgeClassifierCV, fitted anew without the record; in turns

Until a deletion is effective and erased, time is the wall's, as the log has it. Other seconds are the processor's.
Writes benchmarks/results/ridge-PART.json. With --quick: a few records; that it works, no measurement.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

import s3t
from benchmarks.data_sets import plain_images
from benchmarks.machine import describe
from benchmarks.plain import image_processor
from experiments.tasks import task
from s3t.models.source import model_folder
from s3t.program import set_up_process
from testing import tiny

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results"
CHUNK, SLICE = 50_000, 10_000
FEATURES, LAYERS = 2_048, 3
DATA_SETS = ("banking77", "sst2", "cifar10")
PRECISIONS = ("float32", "bfloat16")
SINGLES, WARM, ROUNDS = 100, 10, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure this part alone; may be repeated")
    parser.add_argument("--records", type=int, default=1_000_000, help="of the part `million`")
    parser.add_argument("--quick", action="store_true", help="a few records: that it works")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    options = parser.parse_args()
    if options.quick and options.results == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another folder with --results")
    set_up_process()
    found = {}
    for part in options.part or PARTS:
        load = round(os.getloadavg()[0], 2)
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
            result = PARTS[part](Path(folder), options)
        found[part] = result | {"load_before": load, "load_after": round(os.getloadavg()[0], 2), "machine": describe()}
        (options.results / f"ridge-{part}.json").write_text(json.dumps(found[part], indent=1) + "\n")
    print(json.dumps(found, indent=None if options.json else 1))


def recipe_for(base: Mapping[str, Any], *, slices: int, **changes: Any) -> dict[str, Any]:
    sizes = {"partition": {"shards": 1, "slices": slices, "salt": tiny.SALT}}
    return {"training": {"precision": "float32", "threads": 1}, **base, "method": "ridge", **sizes, **changes}


# A large run


def million(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Init, training, the first answer and deletions of a large run."""
    records, classes, slices, width, features = (
        (400, 10, 4, 8, 40) if options.quick else (options.records, 1_000, options.records // SLICE, 128, FEATURES)
    )
    labels = [f"{number:03}" for number in range(classes)]
    write_model(folder / "model", width=width)
    write_records(folder / "data.parquet", records, labels)
    base = {
        "task": "text-classification",
        "base_model": str(folder / "model"),
        "columns": {"id": "id", "text": "text", "label": "label"},
        "labels": labels,
        "text": {"max_length": 20, "pooling": "mean"},
        "training": {"precision": "float32", "threads": 1, "batch_size": 256},
    }
    recipe = recipe_for(base, slices=slices, ridge={"layers": LAYERS, "projection": features - LAYERS * width})
    shapes = {"records": records, "labels": classes, "slices": slices, "width": width, "features": features}
    steps: Mapping[str, Callable[[], dict[str, Any]]] = {
        "init": partial(init, folder, recipe),
        "training": partial(training, folder),
        "solving": partial(solving, folder),
        "deletions": partial(deletions, folder, count=5, answers=1),
        "pass_over_a_slice": partial(pass_over_a_slice, folder, records // slices, 256),
    }
    return {**shapes, **{step: in_own_process(measure) for step, measure in steps.items()}}


def write_model(folder: Path, *, width: int) -> None:
    """The tiny BERT, as wide as this."""
    tiny.make_text_model(folder, layers=LAYERS)
    config = BertConfig.from_pretrained(folder)
    config.update({"hidden_size": width, "intermediate_size": 4 * width})
    torch.manual_seed(0)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)


def write_records(path: Path, records: int, labels: Sequence[str]) -> None:
    """Texts of 2 to 9 words; the label follows from the first two."""
    rng, words = np.random.default_rng(0), np.array(tiny.WORDS)
    schema = pa.schema({"id": pa.string(), "text": pa.string(), "label": pa.string()})
    with pa.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, records, CHUNK):
            count = min(CHUNK, records - start)
            drawn = rng.integers(len(words), size=(count, 9))
            texts = [" ".join(words[row[:end]]) for row, end in zip(drawn, rng.integers(2, 10, count), strict=True)]
            right = [labels[number] for number in (drawn[:, 0] * len(words) + drawn[:, 1]) % len(labels)]
            ids = [f"r{number}" for number in range(start, start + count)]
            writer.write_table(pa.table([ids, texts, right], schema=schema))


def in_own_process(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result, with the peak of the process's resident memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(with_peak, measure).result()
    print(found, file=sys.stderr, flush=True)
    return found


def with_peak(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    set_up_process()
    began = time.perf_counter()
    found = measure()
    wall = time.perf_counter() - began
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())  # ru_maxrss is the parent's, too
    return {**found, "wall": wall, "peak_bytes": int(peak) * 1024}


def init(folder: Path, recipe: Mapping[str, Any]) -> dict[str, Any]:
    data = folder / "data.parquet"
    return {"seconds": seconds_of(lambda: s3t.Run.create(folder / "run", recipe=recipe, data=data).close())}


def training(folder: Path) -> dict[str, Any]:
    with s3t.Run.open(folder / "run") as run:
        seconds = seconds_of(run.train)
        return {"seconds": seconds, "stored_bytes": run.status(full=True).stored_bytes}


def solving(folder: Path) -> dict[str, Any]:
    """The first answer of a process, and the second, for which the head is there."""
    with s3t.Run.open(folder / "run") as run:
        first, second = (seconds_of(lambda: run.predict([{"text": "w1 w2"}])) for _ in range(2))
    return {"first_answer": first, "second_answer": second}


def deletions(folder: Path, *, count: int, answers: int) -> dict[str, Any]:
    with s3t.Run.open(folder / "run") as run:
        inputs = [{"text": "w1 w2"}]
        run.predict(inputs)
        return deleted(run, [f"r{number}" for number in range(count)], inputs, answers=answers)


def pass_over_a_slice(folder: Path, records: int, batch_size: int) -> dict[str, Any]:
    """Of a competent user."""
    bare = Bare(str(folder / "model"), batch_size=batch_size, length=20, precision="float32")
    texts = pa.parquet.read_table(folder / "data.parquet", columns=["text"]).slice(0, records)["text"].to_pylist()
    return {"seconds": seconds_of(lambda: bare.of_texts(texts))}


# A deletion


def deleted(run: s3t.Run, records: Sequence[str], inputs: Any, *, answers: int) -> dict[str, Any]:
    """Medians over deletions of single records; of the first ones, answers after the deletion and after its repair."""
    times: dict[str, list[float]] = {}

    def note(what: str, seconds: float) -> None:
        times.setdefault(what, []).append(seconds)

    for number, record in enumerate(records):
        (entry,) = run.delete(records=[record], repair=False).log
        if entry.effective_at is None or entry.erased_at is None:
            raise RuntimeError(f"the benchmark is broken: {entry}")
        note("effective", (entry.effective_at - entry.received_at).total_seconds())
        note("erased", (entry.erased_at - entry.received_at).total_seconds())
        if number < answers:
            note("answer", seconds_of(lambda: run.predict(inputs)))
        note("repair", seconds_of(run.repair))
        if number < answers:
            note("answer_repaired", seconds_of(lambda: run.predict(inputs)))
            note("answer_warm", seconds_of(lambda: run.predict(inputs)))
    return {"count": len(records), **{what: float(np.median(each)) for what, each in times.items()}, "times": times}


def effective(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Deletions from a run of 10,000 records."""
    found = task("banking77", records=400 if options.quick else 10_000, tried=1)
    recipe = recipe_for(found.recipe, slices=12)
    with s3t.Run.create(folder / "run", recipe=recipe, data=found.train) as run:
        trained = seconds_of(run.train)
        inputs = found.test[["text"]]
        run.predict(inputs)
        records = list(found.train.id[: 2 if options.quick else 10])
        result = deleted(run, records, inputs, answers=len(records))
        size, length = run.recipe.training.batch_size, run.recipe.text.max_length
    bare = Bare(recipe["base_model"], batch_size=size, length=length)
    texts = list(found.train.text[: len(found.train) // 12])
    bare.of_texts(texts[:100])
    one_pass = float(np.median([seconds_of(lambda: bare.of_texts(texts)) for _ in range(3)]))
    return {"records": len(found.train), "slices": 12, "training": trained, "pass_over_a_slice": one_pass, **result}


# An answer


class Bare:
    """Bare passes of a base model."""

    def __init__(
        self, base_model: str, *, batch_size: int, length: int, precision: str = "float32", joined: bool = False
    ) -> None:
        folder = model_folder(base_model)
        self._model = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
        self._batch_size, self._length, self._reduced = batch_size, length, precision == "bfloat16"
        top = self._model.config.num_hidden_layers
        self._layers = tuple(round(top * number / LAYERS) for number in range(LAYERS, 0, -1)) if joined else ()
        self._is_of_images = (folder / "preprocessor_config.json").is_file()
        self._encode = image_processor(folder) if self._is_of_images else AutoTokenizer.from_pretrained(folder)

    def of(self, values: Sequence[Any]) -> np.ndarray:
        """Means of the last layer's states; with `joined`, of three layers' (of images the first states, too), each
        scaled to length 1. In the inputs' order.
        """
        return self.of_images(values) if self._is_of_images else self.of_texts(values)

    def of_texts(self, texts: Sequence[str]) -> np.ndarray:
        encoded = self._encode(texts, truncation=True, max_length=self._length)["input_ids"]
        order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]))
        width = self._model.config.hidden_size * max(1, len(self._layers))
        found = np.zeros((len(texts), width), dtype=np.float32)
        for rows in self._parts(order):
            batch = self._encode.pad({"input_ids": [encoded[row] for row in rows]}, return_tensors="pt")
            mask = batch["attention_mask"][:, :, None]
            means = [(states * mask).sum(dim=1) / mask.sum(dim=1) for states in self._states(**batch)]
            found[rows] = self._joined(means)
        return found

    def of_images(self, files: Sequence[bytes]) -> np.ndarray:
        found = []
        for rows in self._parts(range(len(files))):
            images = [Image.open(io.BytesIO(files[row])).convert("RGB") for row in rows]
            states = self._states(**self._encode(images, return_tensors="pt"))
            first = [each[:, 0] for each in states if self._layers]
            found.append(self._joined([*(each.mean(dim=1) for each in states), *first]))
        return np.concatenate(found)

    def _parts(self, order: Sequence[int]) -> list[list[int]]:
        return [list(order[start : start + self._batch_size]) for start in range(0, len(order), self._batch_size)]

    def _joined(self, vectors: Sequence[torch.Tensor]) -> np.ndarray:
        if self._layers:
            vectors = [torch.nn.functional.normalize(each, dim=1) for each in vectors]
        joined: np.ndarray = torch.cat(list(vectors), dim=1).numpy()
        return joined

    def _states(self, **batch: Any) -> list[torch.Tensor]:
        reduced = torch.autocast("cpu", torch.bfloat16, enabled=self._reduced, cache_enabled=False)
        with torch.inference_mode(), reduced:
            output = self._model(**batch, output_hidden_states=bool(self._layers))
        others = [output.hidden_states[layer] for layer in self._layers[1:]]
        return [states.float() for states in (output.last_hidden_state, *others)]


def answers(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Answers of a ridge head over bare passes."""
    data_sets: dict[str, Any] = {}
    torch.set_num_threads(1)
    for name in DATA_SETS:
        found = task(name, records=120 if options.quick else 1_500, tried=20 if options.quick else 1_000)
        inputs = plain_images(found.test)[["image" if name == "cifar10" else found.recipe["columns"]["text"]]]
        for precision in PRECISIONS:
            recipe = recipe_for(found.recipe, slices=12, training={"precision": precision, "threads": 1})
            path = folder / name / precision
            with s3t.Run.create(path, recipe=recipe, data=plain_images(found.train), public_data=True) as run:
                run.train()
                size, length = run.recipe.prediction.batch_size, run.recipe.text.max_length
                bare = Bare(recipe["base_model"], batch_size=size, length=length, precision=precision)
                data_sets.setdefault(name, {})[precision] = compared(run, bare, inputs)
            print(name, precision, data_sets[name][precision], file=sys.stderr, flush=True)
    worst = {
        what: max(each[precision][what]["times_as_long"] for each in data_sets.values() for precision in PRECISIONS)
        for what in ("many", "single")
    }
    return {"data_sets": data_sets, "worst": worst}


def compared(run: s3t.Run, bare: Bare, inputs: pd.DataFrame) -> dict[str, Any]:
    """CPU seconds of many inputs and of one, medians."""
    values = inputs.iloc[:, 0].tolist()
    singles = [([{inputs.columns[0]: value}], [value]) for value in values[: WARM + SINGLES]]
    turns: Mapping[str, tuple[int, Sequence[tuple[Any, list[Any]]]]] = {
        "many": (1, [(inputs, values)] * (1 + ROUNDS)),
        "single": (WARM, singles),
    }
    result = {}
    for what, (warm, asked) in turns.items():
        times: dict[str, list[float]] = {"ridge": [], "bare": []}
        for rows, bare_values in asked:
            times["ridge"].append(seconds_of(partial(run.predict, rows)))
            times["bare"].append(seconds_of(partial(bare.of, bare_values)))
        medians = {way: float(np.median(each[warm:])) for way, each in times.items()}
        result[what] = {**medians, "times_as_long": medians["ridge"] / medians["bare"]}
    return result


# Against scikit-learn


def logistic_regression(features: np.ndarray, labels: np.ndarray) -> Any:
    tenth = ShuffleSplit(1, test_size=0.1, random_state=0)
    search = GridSearchCV(LogisticRegression(max_iter=1_000), {"C": [1, 10, 100]}, cv=tenth)
    return search.fit(features, labels).best_estimator_


def ridge_classifier(features: np.ndarray, labels: np.ndarray) -> Any:
    return RidgeClassifierCV(alphas=[10.0**power for power in range(-4, 3)]).fit(features, labels)


OPPONENTS = {"logistic": logistic_regression, "ridge_classifier": ridge_classifier}


def opponent(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds and accuracy of s3t and of scikit-learn."""
    torch.set_num_threads(1)
    data_sets: dict[str, Any] = {}
    for name in DATA_SETS:
        limit = 10_000 if name == "cifar10" else None
        found = task(name, records=200 if options.quick else limit, tried=40 if options.quick else 3_000)
        column = "image" if name == "cifar10" else found.recipe["columns"]["text"]
        tables = plain_images(found.train), plain_images(found.test)
        recipe = recipe_for(found.recipe, slices=12)
        data_sets[name] = against(folder / name, recipe, *tables, column, count=2 if options.quick else ROUNDS)
        print(name, data_sets[name], file=sys.stderr, flush=True)
    return {"data_sets": data_sets}


def against(
    folder: Path, recipe: Mapping[str, Any], train: pd.DataFrame, test: pd.DataFrame, column: str, *, count: int
) -> dict[str, Any]:
    one, labels, left = test[[column]].head(1), train.label.to_numpy(), np.ones(len(train), dtype=bool)
    times: dict[str, list[float]] = {}

    def note(what: str, act: Callable[[], object]) -> None:
        times.setdefault(what, []).append(seconds_of(act))

    def effective(record: str) -> None:
        run.delete(records=[record], repair=False)
        run.predict(one)

    def repaired() -> None:
        run.repair()
        run.predict(one)

    def fitted(model: Any) -> None:
        model.fit(features[left], labels[left]).predict(bare.of(list(one[column])))

    def trained() -> s3t.Run:
        run = s3t.Run.create(folder, recipe=recipe, data=train, public_data=True)
        run.train()
        run.predict(one)
        return run

    run, training = timed(trained)
    with run:
        size, length = run.recipe.training.batch_size, run.recipe.text.max_length
        bare = Bare(recipe["base_model"], batch_size=size, length=length, joined=True)
        features, passing = timed(lambda: bare.of(list(train[column])))
        tested = bare.of(list(test[column]))
        result = {"s3t": {"training": training, "accuracy": run.evaluate(test).metrics["accuracy"]}}
        models = {}
        for way, fit in OPPONENTS.items():
            models[way], fitting = timed(partial(fit, features, labels))
            score = float(models[way].score(tested, test.label))
            result[way] = {"training": passing + fitting, "fitting": fitting, "accuracy": score}
        for number, record in enumerate(train.id[:count]):
            left[number] = False
            note("s3t", partial(effective, record))
            note("repair", repaired)
            for way, model in models.items():
                note(way, partial(fitted, model))
    for way, found in result.items():
        found["deletion"] = float(np.median(times[way]))
    result["s3t"]["repair"] = float(np.median(times["repair"]))
    return {"records": len(train), "tested": len(test), "ways": result, "times": times}


def timed(act: Callable[[], T]) -> tuple[T, float]:
    started = time.process_time()
    return act(), time.process_time() - started


def seconds_of(act: Callable[[], object]) -> float:
    """Of the processor."""
    return timed(act)[1]


PARTS: Mapping[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "million": million,
    "effective": effective,
    "answers": answers,
    "opponent": opponent,
}


if __name__ == "__main__":
    main()
