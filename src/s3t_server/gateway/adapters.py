"""Adapters of one run: exports in the folder that the engine sees, and what deletions wait for.

An adapter holds deletions up (`Presence.pending`) from before the engine is told of it until the engine is known to
have nothing of it: a deletion that takes one of its stages is not effective before that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from s3t.core import Stage
from s3t.errors import InputError
from s3t.events import silent
from s3t.export.folders import this_host
from s3t.ledger import ExportRow, Snapshot
from s3t.ledger.work import Leaving, Overtaken, Uses, Work
from s3t.run.exporting import ExportArguments, export
from s3t.run.parts import Parts

_RUN_DIGITS = 12


@dataclass(eq=False, kw_only=True)
class Adapter:
    """An adapter that the engine has, may have, or is about to get."""

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
        """Stages of its chain, and their keys."""
        return {} if self.export is None else self.export.stages

    @property
    def has_files(self) -> bool:
        """True if its folder is there."""
        return self.export is not None and self.export.path.is_dir()

    def is_tainted(self, now: Snapshot) -> bool:
        """True if one of its stages is gone at a state of the ledger, or was when this process learned of it."""
        return self.work is None or self.work.overtaken or not now.still_has(self.stages)


class Adapters:
    """Makes, finds and withdraws them. For one thread.

    Args:
        folder: that this process and the engine see under the same path. The run has one of its own in it.
    """

    def __init__(self, parts: Parts, folder: Path) -> None:
        self._parts = parts
        self.prefix = f"s3t-{parts.description.run[:_RUN_DIGITS]}"
        self._output = folder.resolve() / self.prefix
        self._base_is_checked = False
        self._told: set[str] = set()

    def name_of(self, export: ExportRow) -> str:
        """The export's name in the engine. No other content has it, of this run or another."""
        return f"{self.prefix}-{export.name}"

    def is_ours(self, name: str) -> bool:
        """True if a name in the engine is one of an adapter of this run."""
        return name.startswith(f"{self.prefix}-")

    def serving(self, now: Snapshot) -> dict[int, Stage]:
        """The chain that answers for each shard that can."""
        members = self._parts.latest.inventory(now).members()
        return {shard: Stage(shard, serving.prefix) for shard, serving in members.items()}

    def exports(self) -> list[ExportRow]:
        """Exports for the engine that are not withdrawn."""
        with self._parts.ledger.reading() as transaction:
            return [each for each in transaction.exports.standing() if each.output == self._output and each.name]

    def ensure_export(self, shard: int) -> ExportRow:
        """Export the chain that answers for a shard, unless that is done."""
        asked = ExportArguments(
            output=self._output, shard=shard, merge=False, engine="vllm", base_is_checked=self._base_is_checked
        )
        (done,) = export(self._parts, asked, silent).exports
        self._base_is_checked = True
        for each in self.exports():
            if each.name == done.name and each.made_at is not None:
                return each
        raise Overtaken  # withdrawn since

    def check(self) -> None:
        """Export what serves now, and check that the engine could load it. Errors as `ensure_export`."""
        for shard in self.serving(self._parts.latest.snapshot()):
            with suppress(Overtaken):
                self.ensure_export(shard)

    def watched_by_deletions(self, export: ExportRow, now: Snapshot) -> Adapter:
        """Let deletions wait for the adapter of an export from now on, if its stages are still there."""
        adapter = Adapter(name=self.name_of(export), export=export)
        try:
            uses = Uses(stages=export.stages)
            adapter.work = adapter.hold.enter_context(self._parts.presence.pending(now, uses, leaving=Leaving.NOW))
        except Overtaken:
            pass
        return adapter

    def remove_files(self, adapter: Adapter) -> None:
        """Remove its files, so that the engine cannot load it again."""
        if adapter.export is not None:
            self._parts.withdrawer.remove_files(adapter.export)

    def withdraw(self, export: ExportRow) -> None:
        """Note that an export is gone: the engine has nothing of it, and its files are removed.

        A copy below the folder, or files on another host, keep it from being withdrawn, and the deletion from being
        erased; the log says so.
        """
        with self._parts.ledger.reading() as transaction:
            noted = transaction.exports.find(export.mark)
        if noted is None or noted.withdrawn_at is not None:
            return
        left = f"export {noted.label} was made on {noted.host}: remove it there, then say so (s3t export --withdrawn)"
        if noted.host == this_host():
            try:
                self._parts.withdrawer.retire(noted)
                return
            except InputError as error:
                left = str(error)
        if noted.mark not in self._told:
            self._told.add(noted.mark)
            logging.getLogger("s3t_server.gateway").warning("%s", left)
