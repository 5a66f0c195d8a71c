"""One variant of training, measured in a process of its own, so that its peak of memory is its own.

    python -m benchmarks.variant < job.json

`measure` starts such a process. Its result says how long training took, epoch by epoch, how good each order's model is,
and the peak of resident memory when training ended.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from s3t.events import Event, StageStart, WorkStep
from s3t.program import set_up_process

PEAK_SIDES = (512, 1024, 2048)
ROUNDS = 7


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is measured.

    Attributes:
        variant: s3t; plain, the procedure of `benchmarks.plain`; plain without dropout; competent, that of
            `benchmarks.competent`; or frozen, logistic regression on what the head reads of the bare base model.
        recipe: as for `s3t.Run.create`; its column of features is `text` or `image`.
        records: Parquet file of the records to train on.
        test: Parquet file of the records to evaluate on; None: none.
        peak: also measure the machine's best matrix product at the variant's precision, before and after.
        cpu_time: stages and the whole in CPU seconds, which other work on the machine changes less.
    """

    variant: str
    recipe: Mapping[str, Any]
    records: str
    test: str | None = None
    peak: bool = False
    cpu_time: bool = False


def measure(job: Job) -> dict[str, Any]:
    """Do a job in a new process; its result.

    Raises:
        RuntimeError: the process failed; what it wrote on stderr has been shown.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.variant"], input=json.dumps(asdict(job)), stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"the variant {job.variant!r} ended with code {done.returncode}; see its messages above")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Stopwatch:
    """Hears of stages and steps, and notes when."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._now = clock or _settled
        self.stages: list[tuple[str, float, list[float], list[tuple[float, int]]]] = []
        """Name and beginning of each; when each batch of the trunk cache was filled; when each step was done, and on
        how many records."""

    def __call__(self, event: Event) -> None:
        """Note an event of a run's training."""
        match event:
            case StageStart():
                self.note(str(event.stage))
            case WorkStep():
                self.advance(event.count)

    def note(self, what: str) -> None:
        """A stage begins."""
        self.stages.append((what, self._now(), [], []))

    def advance(self, count: int) -> None:
        """A step is done; or, of no records, a batch of the trunk cache is filled."""
        _, _, fills, steps = self.stages[-1]
        if count:
            steps.append((self._now(), count))
        else:
            fills.append(self._now())

    def report(self, epochs: int) -> list[dict[str, Any]]:
        """For each stage: steps and records an epoch, seconds of filling the trunk cache, and of each epoch.

        The first epoch has what comes before it in its stage, too: encoding and filling. Loading the base model is
        in no stage.

        Raises:
            RuntimeError: the steps are no whole number of epochs.
        """
        found = []
        for stage, began, fills, done in self.stages:
            steps, rest = divmod(len(done), epochs)
            if rest or not steps:
                raise RuntimeError(f"{stage}: {len(done)} steps are not {epochs} epochs")
            ends = [began, *(end for end, _ in done[steps - 1 :: steps])]
            records = sum(count for _, count in done) // epochs
            seconds = [end - begin for begin, end in pairwise(ends)]
            # Encoding comes before the first batch, whose own time is taken to be the others' mean.
            filling = (fills[-1] - fills[0]) * len(fills) / (len(fills) - 1) if len(fills) > 1 else 0.0
            found.append({"stage": stage, "steps": steps, "records": records, "fill": filling, "epochs": seconds})
        return found


def steady(stage: Mapping[str, Any]) -> float:
    """Seconds of an epoch of a stage, once what the first epoch does is done; the median."""
    return float(statistics.median(stage["epochs"][1:]))


def matmul_peak(precision: str) -> float:
    """Operations a second of the best square matrix product, at a precision and torch's number of threads.

    Args:
        precision: float32 or bfloat16.
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    best = 0.0
    for side in PEAK_SIDES if device == "cpu" else (4096, 8192):
        one, other = (torch.randn(side, side, dtype=getattr(torch, precision), device=device) for _ in range(2))
        for _ in range(ROUNDS):
            seconds = _timed(lambda one=one, other=other: one @ other)  # type: ignore[misc]
            best = max(best, 2 * side**3 / seconds)
    return best


def _timed(action: Callable[[], object]) -> float:
    started = _settled()
    action()
    return _settled() - started


def _settled() -> float:
    """The time, once a GPU has done what it was asked for."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def resident_peak() -> int:
    """The peak of this process's resident memory so far, bytes."""
    # A new process inherits the peak of the one that started it; that has loaded less than any variant does.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    job = Job(**json.load(sys.stdin))
    if job.variant == "s3t":
        set_up_process()  # as `s3t train` does
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
        result = measured_here(job, Path(folder))
    print(json.dumps(result))


def measured_here(job: Job, folder: Path) -> dict[str, Any]:
    """Do a job in this process; its result. Peaks of memory are the process's."""
    import pandas as pd
    import torch

    import s3t

    records = pd.read_parquet(job.records)
    test = None if job.test is None else pd.read_parquet(job.test)
    began = time.perf_counter()
    with s3t.Run.create(folder / "run", recipe=job.recipe, data=records, public_data=True) as run:
        created = time.perf_counter() - began
        training = run.recipe.training.model_dump(mode="json")
        precision = training["precision"] if job.variant in ("s3t", "competent") else "float32"
        torch.set_num_threads(training["threads"])
        peaks = [matmul_peak(precision)] if job.peak else []
        clock = time.process_time if job.cpu_time else time.perf_counter
        before, watch = resident_peak(), Stopwatch(time.process_time if job.cpu_time else None)
        began = clock()
        done = _s3t(run, watch) if job.variant == "s3t" else _plain(run, watch, job)
        seconds, after = clock() - began, resident_peak()
        peaks += [matmul_peak(precision)] if job.peak else []
        return {
            "seconds": seconds,
            "create_seconds": created,
            "stages": watch.report(training["epochs"]),
            "accuracy": [] if test is None else done(test),
            "largest_label": None
            if test is None
            else float(test[run.recipe.columns.label].value_counts(normalize=True).max()),
            "peak_bytes": after,
            "peak_bytes_before": before,
            "device_peak_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
            "matmul_flops": max(peaks, default=None),
            "precision": precision,
            "training": training if job.variant == "s3t" else None,
            "threads": training["threads"],
        }


Scores = Callable[[Any], list[float]]
"""Scores on a table of test records: the task's own, as accuracy. The i-th is of the whole models of each shard's i-th
order, by their mean logits."""


def _s3t(run: Any, watch: Stopwatch) -> Scores:
    from testing.roles import roles

    roles(run).loaded.get()  # the plain procedures, too, load the base model before their first stage
    run.train(progress=watch)

    def scores(test: Any) -> list[float]:
        ensembles = zip(*_orders(run), strict=True)
        answers = (run.predict(test, prefixes=dict(enumerate(orders))).predicted for orders in ensembles)
        return [_score(run, each, test) for each in answers]

    return scores


def _score(run: Any, answers: Sequence[Any], test: Any) -> float:
    target = run.recipe.task.target
    return float(target.score(target.metrics(answers, test[run.recipe.columns.label].tolist(), run.labels)))


def _plain(run: Any, watch: Stopwatch, job: Job) -> Scores:
    """The plain procedure on the run's own slices and orders."""
    import datasets
    import pyarrow.parquet
    import torch

    from benchmarks import competent, plain
    from s3t.models.source import model_folder

    recipe = run.recipe
    setting = plain.Plain(
        folder=model_folder(recipe.base_model, revision=recipe.revision),
        labels=run.labels,
        adapter=recipe.adapter.model_dump(),
        training=recipe.training.model_dump(),
        max_length=recipe.text.max_length,
        images=not recipe.task.inputs.has_tokens,
        dropout=job.variant != "plain without dropout",
    )
    columns = {role: names[0] for role, names in recipe.columns.named().items()}
    roles = [role for role in recipe.task.inputs.roles if role in columns]

    def features(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def slices_of(shard: int) -> Iterator[Any]:
        for path in sorted(run.path.glob(f"slices/shard-{shard:03}/*.parquet")):
            rows = pyarrow.parquet.read_table(path)
            inputs = features([rows[role].to_pylist() for role in roles])
            yield plain.encoded(setting, inputs, rows["label"].to_pylist())

    def encoded(test: Any) -> Any:
        inputs = features([test[columns[role]].tolist() for role in roles])
        return plain.encoded(setting, inputs, test[recipe.columns.label].tolist())

    if job.variant == "frozen":
        shards = range(len(_orders(run)))
        records = datasets.concatenate_datasets([each for shard in shards for each in slices_of(shard)])
        head = _regression().fit(plain.features(setting, records), records["labels"])

        def frozen_scores(test: Any) -> list[float]:
            numbers = head.predict(plain.features(setting, encoded(test)))
            return [_score(run, [setting.labels[number] for number in numbers], test)]

        return frozen_scores

    procedure = competent if job.variant == "competent" else plain
    models = [
        plain.train_orders(
            setting,
            list(slices_of(shard)),
            orders,
            attention="eager" if procedure is competent and not torch.cuda.is_available() else None,
            train=procedure.train_stage,
            on_stage=watch.note,
            on_step=watch.advance,
        )
        for shard, orders in enumerate(_orders(run))
    ]

    def scores(test: Any) -> list[float]:
        records, found = encoded(test), []
        for ensemble in zip(*models, strict=True):
            logits = sum(procedure.logits(model, records, setting) for model in ensemble)
            found.append(_score(run, plain.answers_of(logits, setting), test))
        return found

    return scores


def _regression() -> Any:
    """Its L2 penalty is chosen by three folds of the records."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(), GridSearchCV(LogisticRegression(max_iter=1000), {"C": [1e-4, 1e-3, 1e-2, 1e-1]}, cv=3)
    )


def _orders(run: Any) -> Sequence[Sequence[tuple[int, ...]]]:
    """Of each shard."""
    orders: Sequence[Sequence[tuple[int, ...]]] = run.inventory().orders
    return orders


if __name__ == "__main__":
    main()
