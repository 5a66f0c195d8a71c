"""Keeps an engine as the ledger says, in a thread of its own.

A deletion is effective once the engine has confirmed that it unloaded every adapter with a deleted record, and a probe
has shown that it answers under none of their names. Their files go first: an engine that finds them loads them again.
Until then nothing is answered, and the keeper tries again with growing pauses.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from s3t.bugs import failure_lines
from s3t.core import Stage
from s3t.errors import ClosedError, EngineError, FsyncError, S3TError
from s3t.ledger import ExportRow, Snapshot
from s3t.ledger.work import Overtaken
from s3t.run.latest import Latest
from s3t_server.gateway.adapters import Adapter, Adapters
from s3t_server.gateway.lora_engine import LOAD_SECONDS, LoraEngine, LostAnswerError
from s3t_server.gateway.swap import Swap

_LOG = logging.getLogger("s3t_server.gateway")
_BEGINNING = "the engine was not asked yet"
SWAPPING = "the engine is being brought to the present state of the run"
_LOOK_SECONDS = 0.02
_CHECK_SECONDS = 5.0
"""Between two looks at an engine that is as it should be: it may have been restarted."""
_CLOSING_SECONDS = 10.0
"""At the end, after which no more adapters are unloaded. The next gateway does it."""
_LATE_SECONDS = LOAD_SECONDS
"""Time in which an engine may still come to the end of a load that it has not answered."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
"""Seconds after an attempt that failed; each is twice the one before."""


class Keeper:
    """The adapters of one run in one engine, and the routes to them. `routed` is safe to share among threads.

    Args:
        engine: no other keeper loads adapters of this run into it.
    """

    def __init__(self, latest: Latest, adapters: Adapters, engine: LoraEngine, *, prompt: Sequence[int]) -> None:
        self._latest, self._adapters, self._engine, self._prompt = latest, adapters, engine, prompt
        self._changed = threading.Condition()
        self._routes: dict[int, Adapter] = {}
        self._known: dict[str, Adapter] = {}  # until the engine is known to have nothing of them
        self._proven: set[str] = set()  # names that were, and that answer no more
        self._asked = False  # the engine has been asked what a gateway before this one left in it
        self._lost = False  # an answer found that the engine has lost an adapter
        self._closed = False
        self.trouble: EngineError | None = EngineError(_BEGINNING, public=_BEGINNING)
        self._troubled_at = time.monotonic()  # when `trouble` last came or went
        self._thread = threading.Thread(target=self._work, name="s3t-engine", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, and leave nothing of the run in the engine if it can be reached. Files stay for the next start.

        What the engine keeps is left as by a killed gateway: no caller is answered by it, and a deletion of its records
        is not erased before the next gateway has unloaded it, since its export stands.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        until = time.monotonic() + _CLOSING_SECONDS
        for adapter in self._known.values():
            try:
                if time.monotonic() > until:
                    raise EngineError("the engine answers too slowly")
                self._engine.unload(adapter.name)
                self._engine.check_gone(adapter.name, self._prompt)
            except S3TError as error:
                _LOG.warning("at the end %s may stay in the engine, until the next gateway: %s", adapter.name, error)
            adapter.hold.close()

    def is_ready(self, now: Snapshot) -> bool:
        """True if every shard that can answer has an adapter, and the engine has nothing of what was deleted."""
        with self._changed:
            return self._answering(now) is not None

    @contextmanager
    def routed(self, *, patience: float) -> Iterator[tuple[Snapshot, list[Adapter]]]:
        """A state of the ledger, and the adapters that answer at it, in the order of their shards. They stay loaded
        within, unless a deletion takes one.

        Args:
            patience: longest wait for the engine, in seconds; if it is in trouble for longer, there is none.
        """
        asked_at = time.monotonic()
        while True:
            now = self._latest.snapshot()
            with self._changed:
                if self._closed:
                    raise ClosedError
                adapters = self._answering(now)
                if adapters is not None:
                    for adapter in adapters:
                        adapter.users += 1
                    break
                since = asked_at if self.trouble is None else min(asked_at, self._troubled_at)
                if time.monotonic() > since + patience:
                    raise self.trouble or EngineError(SWAPPING, public=SWAPPING)
                self._changed.wait(_LOOK_SECONDS)
        try:
            yield now, adapters
        finally:
            with self._changed:
                for adapter in adapters:
                    adapter.users -= 1

    def note_lost(self, adapters: Sequence[Adapter]) -> None:
        """Take routes to adapters away that the engine does not have; they are loaded again."""
        with self._changed:
            self._routes = {shard: each for shard, each in self._routes.items() if each not in adapters}
            self._lost = True

    def _answering(self, now: Snapshot) -> list[Adapter] | None:
        """Adapters that may answer at a state of the ledger; None if the engine is not as it has to be."""
        if not self._asked or any(adapter.is_tainted(now) for adapter in self._known.values()):
            return None
        shards = sorted(self._adapters.serving(now))
        return [self._routes[shard] for shard in shards] if self._routes.keys() >= {*shards} else None

    def _work(self) -> None:
        pause = 0.0
        while not self._closed:
            seen = self._latest.recent()
            self._lost = False
            try:
                self.tend()
                trouble, pause = None, 0.0
            except FsyncError:
                return  # this process must end
            except Exception as error:  # any: without this thread no deletion would ever be effective
                line = failure_lines(error, command="gateway")[0]
                trouble = error if isinstance(error, EngineError) else EngineError(line)
                pause = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            if (trouble is None) != (self.trouble is None):
                self._troubled_at = time.monotonic()
            if str(trouble) != str(self.trouble):
                _LOG.info("the engine has what serves, and nothing else") if trouble is None else _LOG.warning(trouble)
            self.trouble = trouble
            self._wait(seen, pause)

    def _wait(self, seen: Snapshot | None, pause: float) -> None:
        """Until there may be something to do: after a failure, only a deletion shortens the pause."""
        until = time.monotonic() + (pause or _CHECK_SECONDS)
        while not self._closed and not self._lost and time.monotonic() < until:
            now = self._latest.recent()
            if now is not None and (seen is None or now.generation != seen.generation):
                return
            if now is not None and seen is not None and not pause and now.changes != seen.changes:
                return
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)

    def tend(self) -> None:
        """Bring the engine to what the ledger says.

        Raises:
            S3TError: the first reason why something is left to do; the rest was done.
        """
        now = self._latest.snapshot()
        listed = set(filter(self._adapters.is_ours, self._engine.models().adapters))
        self._learn(now, listed)
        failures: list[S3TError] = []
        wanted = self._wanted(now, listed, failures)
        now = self._latest.snapshot()  # exports may be of stages that are newer than the first
        for name in self._swap(now, wanted, listed).loads:
            with collected(failures):
                self._load(name, listed)
        with self._changed:
            self._routes = {shard: self._known[name] for shard, name in self._swap(now, wanted, listed).routes.items()}
            leaving = self._swap(now, wanted, listed).leaving
            self._changed.notify_all()
        for name in leaving:
            with collected(failures):
                self._leave(name)
        if failures:
            raise failures[0]

    def _learn(self, now: Snapshot, listed: Collection[str]) -> None:
        """Take up adapters that this keeper did not load: a gateway that was killed may have left each export."""
        for export in self._adapters.exports():
            name = self._adapters.name_of(export)
            if name in self._proven and name not in listed:
                self._adapters.withdraw(export)
            elif name not in self._known:
                self._hold(export, now)
        with self._changed:
            for name in listed:
                self._known.setdefault(name, Adapter(name=name, export=None))
            self._asked = True

    def _hold(self, export: ExportRow, now: Snapshot) -> Adapter:
        adapter = self._adapters.watched_by_deletions(export, now)
        with self._changed:
            self._known[adapter.name] = adapter
        self._proven.discard(adapter.name)
        return adapter

    def _wanted(self, now: Snapshot, listed: Collection[str], failures: list[S3TError]) -> dict[int, str]:
        """Names of the adapters of the chains that serve, each with its files."""
        found: dict[int, str] = {}
        for shard, stage in self._adapters.serving(now).items():
            with collected(failures), suppress(Overtaken):  # a deletion came, and so does the next round
                adapter = self._adapter_of(stage, now)
                if adapter is None or (adapter.name not in listed and not adapter.has_files):
                    made = self._adapters.ensure_export(shard)
                    name = self._adapters.name_of(made)
                    adapter = self._known.get(name) or self._hold(made, self._latest.snapshot())
                found[shard] = adapter.name
        return found

    def _adapter_of(self, stage: Stage, now: Snapshot) -> Adapter | None:
        wanted = {link: now.stages[link] for link in stage.chain}
        known = (each for each in self._known.values() if each.stages == wanted and not each.is_tainted(now))
        return next(known, None)

    def _load(self, name: str, listed: set[str]) -> None:
        adapter = self._known[name]
        if adapter.export is not None and not adapter.is_tainted(self._latest.snapshot()):
            try:
                self._engine.load(name, str(adapter.export.path))
            except LostAnswerError:
                adapter.loading_until = time.monotonic() + _LATE_SECONDS
                raise
            listed.add(name)

    def _leave(self, name: str) -> None:
        """Unload an adapter, and let deletions go on once the engine is known to have nothing of it."""
        adapter = self._known[name]
        self._adapters.remove_files(adapter)
        self._engine.unload(name)
        self._engine.check_gone(name, self._prompt)
        if time.monotonic() < adapter.loading_until:
            reason = f"the engine gave no answer when it was to load {name}, and may still do it; it is waited for"
            raise EngineError(reason, public=SWAPPING)
        with self._changed:
            del self._known[name]
            self._proven.add(name)
            self._changed.notify_all()
        _LOG.info("%s has left the engine", name)
        adapter.hold.close()
        if adapter.export is not None:
            self._adapters.withdraw(adapter.export)

    def _swap(self, now: Snapshot, wanted: dict[int, str], listed: set[str]) -> Swap:
        known = self._known.values()
        return Swap(
            wanted=wanted,
            routed={shard: adapter.name for shard, adapter in self._routes.items()},
            listed=listed,
            doubtful=[*self._known],
            tainted=[adapter.name for adapter in known if adapter.is_tainted(now)],
            in_use=[adapter.name for adapter in known if adapter.users],
        )


@contextmanager
def collected(failures: list[S3TError]) -> Iterator[None]:
    """Keep an error, and go on with what does not depend on it."""
    try:
        yield
    except FsyncError:
        raise
    except S3TError as error:
        failures.append(error)
