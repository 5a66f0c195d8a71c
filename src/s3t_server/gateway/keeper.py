"""Keeps an engine as the ledger says, in a thread of its own.

A deletion is effective once the engine has confirmed that it unloaded every adapter with a deleted record, and a probe
has shown that it answers under none of their names. Their files go first: an engine that finds them loads them again.
Until then nothing is answered, and the keeper tries again with growing pauses.
"""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from s3t.bugs import failure_lines
from s3t.core import Stage
from s3t.errors import ClosedError, EngineError, FsyncError, InputError, NoLiveShardError, S3TError
from s3t.events import silent
from s3t.ledger import ExportRow, Snapshot
from s3t.ledger.presence import Leaving, Overtaken, Uses, Work
from s3t.run.exporting import Exporter
from s3t.run.parts import Parts
from s3t_server.gateway.lora_engine import LOAD_SECONDS, LoraEngine, LostAnswerError, UnknownAdapterError

_LOG = logging.getLogger("s3t_server.gateway")
_BEGINNING = "the engine was not asked yet"
_SWAPPING = "the engine is being brought to the present state of the run"
_RUN_DIGITS = 12
_LOOK_SECONDS = 0.02
_CHECK_SECONDS = 5.0
"""Between two looks at an engine that is as it should be: it may have been restarted."""
_CLOSING_SECONDS = 10.0
"""At the end, after which no more adapters are unloaded. The next gateway does it."""
_LATE_SECONDS = LOAD_SECONDS
"""Time in which an engine may still come to the end of a load that it has not answered."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
"""Seconds after an attempt that failed; each is twice the one before."""


@dataclass(eq=False, kw_only=True)
class Adapter:
    """An adapter that the engine has, may have, or is about to get.

    It holds deletions up from before the engine is told of it until the engine is known to have nothing of it: one that
    takes one of its stages is not effective before that.
    """

    name: str
    """In the engine: of the run, and of its content."""
    export: ExportRow | None
    """None if the run knows of no export of that name."""
    work: Work | None = None
    """The session's note that deletions wait for it; None if its stages were gone before."""
    hold: ExitStack = field(default_factory=ExitStack)
    """Closed, it ends the wait."""
    users: int = 0
    """Answers that the engine computes with it."""
    loading_until: float = 0.0
    """Until when, in `time.monotonic`, a load that the engine has not answered may still come to its end."""

    @property
    def stages(self) -> Mapping[Stage, str]:
        return {} if self.export is None else self.export.stages

    def is_tainted(self, now: Snapshot) -> bool:
        """True if one of its stages is gone at a state of the ledger, or was when this process learned of it."""
        return self.work is None or self.work.overtaken or not now.still_has(self.stages)


class Keeper:
    """The adapters of one run in one engine, and the routes to them. `routed` is safe to share among threads.

    Args:
        folder: that this process and the engine see under the same path. The run has one of its own in it.
        engine: no other keeper loads adapters of this run into it.
        prompt: tokens to probe with.
    """

    def __init__(self, parts: Parts, folder: Path, engine: LoraEngine, *, prompt: Sequence[int]) -> None:
        self._parts, self._latest, self._engine, self._prompt = parts, parts.latest, engine, prompt
        self._prefix = f"s3t-{parts.description.run[:_RUN_DIGITS]}"
        self._output = folder.resolve() / self._prefix
        self._told: set[str] = set()  # exports that cannot be withdrawn, once it was said
        self._changed = threading.Condition()
        self._routes: dict[int, Adapter] = {}
        self._known: dict[str, Adapter] = {}  # until the engine is known to have nothing of them
        self._proven: set[str] = set()  # names that were, and that answer no more
        self._asked = False  # the engine has been asked what a gateway before this one left in it
        self._lost = False  # an answer found that the engine has lost an adapter
        self._closed = False
        self._trouble: EngineError | None = EngineError(_BEGINNING, public=_BEGINNING)
        self._troubled_at = time.monotonic()  # when `_trouble` last came or went
        self._thread = threading.Thread(target=self._work, name="s3t-engine", daemon=True)

    def start(self) -> None:
        """Export what serves now, which refuses what the engine could not load, and begin."""
        for shard in self._serving(self._latest.snapshot()):
            with suppress(Overtaken, NoLiveShardError):
                self._ensure_export(shard)
        self._thread.start()

    def close(self) -> None:
        """End, and leave nothing of the run in the engine if it can be reached. Files stay for the next start.

        What the engine keeps is left as by a killed gateway: no caller is answered by it, and a deletion of its records
        is not erased before the next gateway has unloaded it, since its export stands.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
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

    @property
    def trouble(self) -> str | None:
        """Why the engine cannot answer now, without addresses and names.

        None if every shard that can answer has an adapter, and the engine has nothing of what was deleted.
        """
        now = self._latest.snapshot()
        with self._changed:
            if self._answering(now) is not None:
                return None
        return _SWAPPING if self._trouble is None else self._trouble.public

    @contextmanager
    def routed(self) -> Iterator[tuple[Snapshot, list[Stage]]]:
        """A state of the ledger, and the chains of the adapters that answer at it, in the order of their shards.

        The adapters stay loaded within, unless a deletion takes one. If the engine has been in trouble for
        `engine_seconds`, an answer does not wait for it.
        """
        asked_at = time.monotonic()
        while True:
            now, _ = self._parts.answerer.choose_now()  # refuses where nothing is alive
            with self._changed:
                if self._closed:
                    raise ClosedError
                if (adapters := self._answering(now)) is not None:
                    for adapter in adapters:
                        adapter.users += 1
                    break
                since = asked_at if self._trouble is None else min(asked_at, self._troubled_at)
                if time.monotonic() > since + self._engine.seconds:
                    raise self._trouble or EngineError(_SWAPPING, public=_SWAPPING)
                self._changed.wait(_LOOK_SECONDS)
        try:
            yield now, [adapter.export.stage for adapter in adapters if adapter.export is not None]
        except UnknownAdapterError:  # the engine has lost them: they are loaded again
            with self._changed:
                self._routes = {shard: each for shard, each in self._routes.items() if each not in adapters}
                self._lost = True
            raise
        finally:
            with self._changed:
                for adapter in adapters:
                    adapter.users -= 1

    def name_of(self, stage: Stage, now: Snapshot) -> str:
        with self._changed:
            adapter = self._adapter_of(stage, now)
        if adapter is None:  # if no deletion took it, it is loaded again
            raise UnknownAdapterError(f"{stage} has no adapter in the engine any more", public=_SWAPPING)
        return adapter.name

    def _answering(self, now: Snapshot) -> list[Adapter] | None:
        """Adapters that may answer at a state of the ledger; None if the engine is not as it has to be."""
        if not self._asked or any(adapter.is_tainted(now) for adapter in self._known.values()):
            return None
        shards = sorted(self._serving(now))
        return [self._routes[shard] for shard in shards] if self._routes.keys() >= {*shards} else None

    def _work(self) -> None:
        pause = 0.0
        while not self._closed:
            seen = self._latest.recent()
            self._lost = False
            try:
                self._tend()
                trouble, pause = None, 0.0
            except FsyncError:
                return  # this process must end
            except Exception as error:  # any: without this thread no deletion would ever be effective
                line = failure_lines(error, command="gateway")[0]
                trouble = error if isinstance(error, EngineError) else EngineError(line)
                pause = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            if (trouble is None) != (self._trouble is None):
                self._troubled_at = time.monotonic()
            if str(trouble) != str(self._trouble):
                _LOG.info("the engine has what serves, and nothing else") if trouble is None else _LOG.warning(trouble)
            self._trouble = trouble
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

    def _tend(self) -> None:
        """Bring the engine to what the ledger says; raises the first reason why something is left to do.

        New adapters are loaded first, then answers are routed to them, then old ones leave: no request finds none.
        """
        now = self._latest.snapshot()
        listed = {name for name in self._engine.models()[1] if name.startswith(f"{self._prefix}-")}
        self._learn(now, listed)
        failures: list[S3TError] = []
        wanted = self._wanted(now, listed, failures)
        for name in sorted({*wanted.values()} - listed):
            with _collected(failures):
                self._load(name, listed)
        now = self._latest.snapshot()  # exports may be of stages that are newer than the first
        with self._changed:
            known = self._known.values()
            tainted = {adapter.name for adapter in known if adapter.is_tainted(now)}
            routed = {shard: adapter.name for shard, adapter in self._routes.items()}
            routes = routes_of(wanted, routed, listed=listed, tainted=tainted)
            self._routes = {shard: self._known[name] for shard, name in routes.items()}
            in_use = {adapter.name for adapter in known if adapter.users}
            leaving = leaving_of({*listed, *self._known}, wanted, routes, in_use=in_use, tainted=tainted)
            self._changed.notify_all()
        for name in leaving:
            with _collected(failures):
                self._leave(name)
        if failures:
            raise failures[0]

    def _learn(self, now: Snapshot, listed: Collection[str]) -> None:
        """Take up adapters that this keeper did not load: a gateway that was killed may have left each export."""
        for each in self._exports():
            name = self._name_of(each)
            if name in self._proven and name not in listed:
                self._withdraw(each)
            elif name not in self._known:
                self._hold(each, now)
        with self._changed:
            for name in listed:
                self._known.setdefault(name, Adapter(name=name, export=None))
            self._asked = True

    def _hold(self, made: ExportRow, now: Snapshot) -> Adapter:
        """Let deletions wait for the adapter of an export from now on, if its stages are still there."""
        adapter = Adapter(name=self._name_of(made), export=made)
        with suppress(Overtaken):
            uses = Uses(stages=made.stages)
            adapter.work = adapter.hold.enter_context(self._parts.presence.pending(now, uses, leaving=Leaving.NOW))
        with self._changed:
            self._known[adapter.name] = adapter
        self._proven.discard(adapter.name)
        return adapter

    def _wanted(self, now: Snapshot, listed: Collection[str], failures: list[S3TError]) -> dict[int, str]:
        """Names of the adapters of the chains that serve, each with its files."""
        found: dict[int, str] = {}
        for shard, stage in self._serving(now).items():
            with _collected(failures), suppress(Overtaken):  # a deletion came, and so does the next round
                adapter = self._adapter_of(stage, now)
                has_files = adapter is not None and adapter.export is not None and adapter.export.path.is_dir()
                if adapter is None or (adapter.name not in listed and not has_files):
                    made = self._ensure_export(shard)
                    adapter = self._known.get(self._name_of(made)) or self._hold(made, self._latest.snapshot())
                found[shard] = adapter.name
        return found

    def _adapter_of(self, stage: Stage, now: Snapshot) -> Adapter | None:
        wanted = {link: now.stages.get(link) for link in stage.chain}
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
        if adapter.export is not None:
            self._parts.withdrawer.remove_files(adapter.export)
        self._engine.unload(name)
        self._engine.check_gone(name, self._prompt)
        if time.monotonic() < adapter.loading_until:
            reason = f"the engine gave no answer when it was to load {name}, and may still do it; it is waited for"
            raise EngineError(reason, public=_SWAPPING)
        with self._changed:
            del self._known[name]
            self._proven.add(name)
            self._changed.notify_all()
        _LOG.info("%s has left the engine", name)
        adapter.hold.close()
        if adapter.export is not None:
            self._withdraw(adapter.export)

    def _serving(self, now: Snapshot) -> dict[int, Stage]:
        return self._latest.answering(now).members()

    def _name_of(self, made: ExportRow) -> str:
        """An export's name in the engine. No other content has it, of this run or another."""
        return f"{self._prefix}-{made.name}"

    @cached_property
    def _exporter(self) -> Exporter:
        """Made at the first export, which checks the folder and the base model."""
        return Exporter.of(self._parts, self._output, shard=None, merge=False, engine="vllm")

    def _exports(self) -> list[ExportRow]:
        """Exports for the engine that are not withdrawn."""
        with self._parts.ledger.reading() as transaction:
            return [each for each in transaction.exports.standing() if each.output == self._output and each.name]

    def _ensure_export(self, shard: int) -> ExportRow:
        """Export the chain that answers for a shard, unless that is done."""
        (done,) = replace(self._exporter, shard=shard).export(silent).exports
        for each in self._exports():
            if each.name == done.name and each.made_at is not None:
                return each
        raise Overtaken  # withdrawn since

    def _withdraw(self, made: ExportRow) -> None:
        """Note that an export is gone: the engine has nothing of it, and its files are removed.

        A copy below the folder, or files on another host, keep it from being withdrawn, and the deletion from being
        erased; the log says so.
        """
        with self._parts.ledger.reading() as transaction:
            noted = transaction.rows.find(ExportRow, mark=made.mark)
        if noted is None or noted.withdrawn_at is not None:
            return
        left = f"export {noted.label} was made on {noted.host}: remove it there, then say so (s3t export --withdrawn)"
        if noted.host == platform.node():
            try:
                self._parts.withdrawer.retire(noted)
                return
            except InputError as error:
                left = str(error)
        if noted.mark not in self._told:
            self._told.add(noted.mark)
            _LOG.warning("%s", left)


def routes_of(
    wanted: Mapping[int, str], routed: Mapping[int, str], *, listed: Collection[str], tainted: Collection[str]
) -> dict[int, str]:
    """Adapters that may answer, by shard. A shard whose wanted one is not loaded keeps its old one.

    >>> routes_of({0: "b", 1: "d"}, {0: "a", 1: "c"}, listed=["a", "c"], tainted=["c"])
    {0: 'a'}
    """
    loaded = {shard: name for shard, name in wanted.items() if name in listed}
    return {shard: name for shard, name in ({**routed} | loaded).items() if name not in tainted}


def leaving_of(
    doubtful: Collection[str],
    wanted: Mapping[int, str],
    routes: Mapping[int, str],
    *,
    in_use: Collection[str],
    tainted: Collection[str],
) -> list[str]:
    """The adapters to unload, and then to probe: those that the engine may have, listed or not, and that nobody needs.
    One with a deleted record leaves at once, even if it is in use."""
    kept = {*wanted.values(), *routes.values(), *in_use}.difference(tainted)
    return sorted({*doubtful} - kept)


@contextmanager
def _collected(failures: list[S3TError]) -> Iterator[None]:
    """Keep an error, and go on with what does not depend on it."""
    try:
        yield
    except FsyncError:
        raise
    except S3TError as error:
        failures.append(error)
