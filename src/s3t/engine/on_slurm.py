"""Workers as an array of Slurm jobs, by submitit. A job that is preempted is submitted again, and goes on.

All hosts see the run's folder under one path. Jobs report nothing while they train: progress is read from the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import submitit
from submitit.core.utils import FailedJobError, UncompletedJobError

from s3t.engine.launcher import AGAIN, Message, result_of
from s3t.errors import InputError, WorkerError
from s3t.events import silent
from s3t.program import set_up_process
from s3t.recipe import EngineSettings


class _Job(submitit.helpers.Checkpointable):
    """The function of a job, pickled with texts alone; submitted again if it is preempted, or its time is over."""

    def __call__(self, module: str, arguments: Sequence[str]) -> Message:
        set_up_process()
        return result_of(import_module(module).train, arguments, silent)


class SlurmJobs:
    """Launcher of an array of jobs, whose logs are in a folder that all hosts see."""

    def __init__(
        self, module: str, arguments: Sequence[str], engine: EngineSettings, *, cpus: int, workers: int, logs: Path
    ) -> None:
        self._module, self._arguments, self._workers = module, list(arguments), workers
        self._cluster, self._logs = engine.address, logs
        slurm = {f"slurm_{name}": value for name, value in engine.options.items()}
        self._parameters = {"name": "s3t", "cpus_per_task": cpus, "gpus_per_node": engine.gpus_per_worker, **slurm}
        self._jobs: list[submitit.Job[Message]] = []

    def start(self) -> None:
        try:
            executor = submitit.AutoExecutor(folder=self._logs, cluster=self._cluster)
            executor.update_parameters(**self._parameters)
        except (RuntimeError, ValueError, NameError) as error:
            raise InputError("Slurm", f"{error}; jobs are submitted where `sbatch` is, with its options") from None
        with executor.batch():
            job = _Job()  # type: ignore[no-untyped-call]
            self._jobs = [executor.submit(job, self._module, self._arguments) for _ in range(self._workers)]

    @property
    def busy(self) -> int:
        return len(self._jobs)

    def heard(self, seconds: float) -> Iterator[Message]:
        time.sleep(seconds)
        for job in [job for job in self._jobs if job.done()]:
            self._jobs.remove(job)
            try:
                yield job.result()
            except (FailedJobError, UncompletedJobError):
                raise WorkerError(
                    f"job {job.job_id} ended without a result ({job.state}); see {job.paths.stderr}, then {AGAIN}"
                ) from None

    def stop(self) -> None:
        for job in self._jobs:
            job.cancel(check=False)
