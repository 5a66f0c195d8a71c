"""Workers on a Ray cluster: one actor a device, which lives as long as the training.

Ray decides where an actor runs, and tries nothing again: the actors claim stages in the ledger, where what is done
twice does no harm. They get texts alone, for Ray writes what it passes on to files that no deletion reaches. What is
secret lies in files of a node, or in its environment: arguments and `runtime_env` are shown by Ray's dashboard.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import ray
from ray.exceptions import RayError

from s3t.engine.launcher import AGAIN, LOOK_SECONDS, Message, result_of
from s3t.engine.local import cores_worth
from s3t.errors import InputError, WorkerError
from s3t.program import set_up_process
from s3t.recipe import EngineSettings

_STORE_BYTES = 80 * 2**20
"""Memory for Ray's objects in a cluster that is started here: it takes no less, and we pass on texts."""
_ANSWER_SECONDS = 10.0
_GRACE_LOOKS = 10
"""Looks after which a worker that never began is given up, once another has found that nothing is missing."""


class _Worker:
    """An actor with two threads: one trains, the other reports."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def work(self, module: str, arguments: Sequence[str]) -> Message:
        set_up_process()
        return result_of(import_module(module).train, arguments, self._events.put)

    def events(self) -> list[Any]:
        """The events since the last call; waits a little for one."""
        found = []
        try:
            found.append(self._events.get(timeout=LOOK_SECONDS))
            while True:
                found.append(self._events.get_nowait())
        except queue.Empty:
            return found


class RayActors:
    """Launcher of actors. It joins the cluster at an address, else one that runs here, else it starts one."""

    def __init__(
        self, module: str, arguments: Sequence[str], engine: EngineSettings, *, cpus: int, most: int, one_host: str
    ) -> None:
        """`most` can be busy. `one_host`: why the run cannot be trained on several hosts; empty if it can."""
        self._module, self._arguments, self._address, self._one_host = module, list(arguments), engine.address, one_host
        self._workers, self._most = None if engine.workers == "auto" else engine.workers, most
        self._needs = {"CPU": cpus} | ({"GPU": engine.gpus_per_worker} if engine.gpus_per_worker else {})
        self._results: dict[Any, Any] = {}  # actors by the references of their results
        self._events: dict[Any, Any] = {}
        self._begun: set[Any] = set()
        self._looks_left = _GRACE_LOOKS
        self._joined = self._is_over = False

    def start(self) -> None:
        if not ray.is_initialized():
            with _private_files():
                self._join()
            self._joined = True
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        room = min(int(there.get(name, 0) // need) for name, need in self._needs.items())
        if self._one_host and sum(node["Alive"] for node in ray.nodes()) > 1:  # type: ignore[no-untyped-call]
            raise InputError("the engine", self._one_host)
        if room == 0:
            needs = " and ".join(f"{need} {name}" for name, need in self._needs.items())
            raise InputError(
                "the Ray cluster",
                f"has no room for a worker of {needs}: it has {there.get('CPU', 0):g} CPU and {there.get('GPU', 0):g} "
                "GPU in all; ask for less by --cpus-per-worker or --gpus-per-worker",
            )
        kind: Any = ray.remote(_Worker)
        kind = kind.options(
            num_cpus=self._needs["CPU"],
            num_gpus=self._needs.get("GPU", 0),
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=2,
        )
        for _ in range(min(room, self._most, self._workers or room)):
            actor: Any = kind.remote()
            self._results[actor.work.remote(self._module, self._arguments)] = actor
            self._events[actor.events.remote()] = actor

    def _join(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
        given = self._address or os.environ.get("RAY_ADDRESS")
        try:
            if given is not None and (there := re.fullmatch(r"(?:ray://)?(.+):(\d+)", given)):
                socket.create_connection((there[1], int(there[2])), timeout=_ANSWER_SECONDS).close()  # Ray waits longer
            ray.init(address=given or "auto", **quiet)
        except RuntimeError as error:  # it is of another version of Ray or Python
            raise InputError("the Ray cluster", f"cannot be joined: {error}") from None
        except OSError as error:
            if given is not None:
                raise InputError("the Ray cluster", f"at {given} does not answer: {error}") from None
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it tells its makers of the cluster
            cpus = self._needs["CPU"] * min(self._workers or max(1, cores_worth() // self._needs["CPU"]), self._most)
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet)

    @property
    def busy(self) -> int:
        return len(self._results)

    def heard(self, seconds: float) -> Iterator[Message]:
        ready, _ = ray.wait([*self._results, *self._events], timeout=seconds)
        for reference in ready:
            if reference in self._events:
                actor = self._events.pop(reference)
                self._begun.add(actor)
                yield from (("event", event) for event in self._value(reference))
                self._events[actor.events.remote()] = actor
            elif reference in self._results:
                actor = self._results.pop(reference)
                last = self._value(reference)
                for asked in [asked for asked, by in self._events.items() if by is actor]:
                    del self._events[asked]  # it may have taken the last events before we ask again
                    yield from (("event", event) for event in self._value(asked))
                yield from (("event", event) for event in self._value(actor.events.remote()))
                self._is_over = True
                yield last
        # Where one has found that nothing is missing, those that still wait for room have nothing to do.
        if self._is_over:
            self._looks_left -= 1
            if self._looks_left <= 0:
                self._results = {result: actor for result, actor in self._results.items() if actor in self._begun}

    def _value(self, reference: Any) -> Any:
        try:
            return ray.get(reference)
        except RayError as error:
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            raise WorkerError(
                f"a worker on Ray was lost ({reason}); if memory ran out, use fewer; then {AGAIN}"
            ) from None

    def stop(self) -> None:
        for actor in self._results.values():
            ray.kill(actor, no_restart=True)  # no worse than a power cut
        if self._joined:
            ray.shutdown()


@contextmanager
def _private_files() -> Iterator[None]:
    """Files that are made within are for this user alone: Ray's file with the cluster's token."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
