"""Withdrawal of exports: what was trained on a deleted record leaves the folders and servers that it was exported to.

s3t removes the files that it wrote, where they are on this host and unchanged. Whether a server has let go of them, and
whether there are copies, only the operator knows, or the command that the recipe names. Until one of them says so, the
deletion is not erased.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from s3t.deletion.witness import VARIABLE, state_folder
from s3t.errors import InputError
from s3t.export.folders import File, is_being_written, left_behind, part_folder, remove_unchanged
from s3t.ledger import ExportRow, Ledger
from s3t.ledger.exports import is_of
from s3t.ledger.schema import row_of, value_of
from s3t.store.disk import append_durably, make_folder, remove_folder_durably, storage_errors
from s3t.wording import did_you_mean

HOOK_SECONDS = 60.0
"""Time that the command may take."""
_SECRETS = ("S3T_SECRET", "S3T_SECRET_FILE", "S3T_LEDGER", "PGPASSWORD")
"""Variables of the environment that the command does not get."""
_STDERR = 2


class ExportMemory:
    """Exports remembered outside of the run folder: a ledger that is put back from a backup does not know later ones.

    One file for each run, beside the witness (`witness.py`): a line whenever an export gets its name, is made, or is
    withdrawn. The last line of an export counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of_run(cls, run: str) -> ExportMemory:
        """The memory of a run's id, on this machine."""
        return cls(state_folder() / f"{run}.exports")

    def note(self, exports: Iterable[ExportRow]) -> None:
        """Append the present state of some exports, durably."""
        lines = "".join(json.dumps(row_of(export)) + "\n" for export in exports)
        if lines:
            with storage_errors(f"using {self._path}, the memory of exports ({VARIABLE} may name another folder)"):
                make_folder(self._path.parent)
                append_durably(self._path, lines.encode())

    def noted(self) -> Mapping[str, ExportRow]:
        """The last state of every export, by its mark. A line that a crash tore tells nothing: it is written again."""
        found: dict[str, ExportRow] = {}
        with storage_errors(f"reading {self._path}, the memory of exports"):
            try:
                lines = self._path.read_bytes().splitlines()
            except FileNotFoundError:
                lines = []
        for line in lines:
            try:
                export = value_of(ExportRow, SimpleNamespace(**json.loads(line)))
            except (ValueError, TypeError, AttributeError):
                continue
            found[export.mark] = export
        return found

    def catch_up(self, ledger: Ledger) -> None:
        """Tell the ledger of exports that it lacks, or takes for standing or good; note here those that are missing."""
        noted = self.noted()
        with ledger.reading() as transaction:
            snapshot, tainted = transaction.snapshot(), transaction.exports.tainted()
            known = {export.mark: export for export in transaction.rows.all(ExportRow) if export.name}
        lacking = [
            export
            for mark, export in noted.items()
            if _is_news(export, known.get(mark)) and (mark in known or export.withdrawn_at is None)
        ]
        # A lost row of a deletion has no check; an export that was made of an older version of its slices shows it.
        lacking += [
            export
            for mark, export in known.items()
            if mark not in tainted and export.withdrawn_at is None and not is_of(export, snapshot.slices)
        ]
        if lacking:
            with ledger.writing() as transaction:
                snapshot = transaction.snapshot()
                transaction.exports.remember(lacking, slices=snapshot.slices, generation=snapshot.generation)
                transaction.settle()
        self.note(export for mark, export in known.items() if _is_news(export, noted.get(mark)))


def _is_news(export: ExportRow, known: ExportRow | None) -> bool:
    """True if a state of an export is later than the known one: it was withdrawn since, or made."""
    return known is None or _steps(export) > _steps(known)


def _steps(export: ExportRow) -> int:
    return 2 if export.withdrawn_at is not None else 1 if export.made_at is not None else 0


@dataclass(frozen=True, kw_only=True)
class Withdrawer:
    ledger: Ledger
    memory: ExportMemory
    hook: tuple[str, ...]
    """The recipe's command, with placeholders; empty: none."""
    failures: dict[str, str] = field(default_factory=dict, init=False)
    """Reasons why this process could not withdraw exports, by the export's mark."""

    def withdraw_tainted(self, standing: Sequence[ExportRow] | None = None) -> None:
        """Remove the files of exports with deleted records in them, and run the command for each.

        `standing` are those that the ledger has, if the caller knows. Nothing is raised where a file or a command
        refuses: the deletion waits for the export, and the status says why.
        """
        if standing is not None and not standing:
            return
        with self.ledger.reading() as transaction:
            exports = transaction.exports.standing()
        self.remove_unfinished(exports)
        with self.ledger.reading() as transaction:
            tainted = transaction.exports.to_withdraw()
        for export in tainted:
            if not _is_in_work(export):
                try:
                    problem = self._withdraw(export)
                except OSError as error:
                    problem = f"{error.filename or export.path}: {error.strerror or error}"
                if problem is None:
                    self.failures.pop(export.mark, None)
                else:
                    self.failures[export.mark] = f"export {export.label} is still to be withdrawn: {problem}"

    def _withdraw(self, export: ExportRow) -> str | None:
        """Remove an export's files, and withdraw it if the command says that it is gone; the problem, if any."""
        files, here = files_of(export), export.host == platform.node()
        changed = remove_unchanged(export.path, files) if here else []
        if not self.hook:
            return f"{changed[0]} was changed, and stays" if changed else None
        values = {"name": export.label, "path": str(export.path), "host": export.host}
        if (problem := run_hook(self.hook, values)) is not None:
            return problem
        if here and (left := self._left(export)):
            return f"the command ended well, but {left[0]} is still there"
        self._note_withdrawn([export])
        return None

    def remove_unfinished(self, exports: Sequence[ExportRow]) -> None:
        """Remove what killed processes of this host left of exports that never got their place."""
        for export in exports:
            if export.made_at is None and export.host == platform.node() and not _is_in_work(export):
                try:
                    remove_folder_durably(part_folder(export.output, export.mark))
                    if export.name and export.path.exists():  # a server may have found it there
                        continue
                except OSError as error:
                    self.failures[export.mark] = f"{error.filename}: {error.strerror or error}"
                    continue
                self.discard(export)

    def discard(self, export: ExportRow) -> None:
        """Forget an export of which nothing is left and that nobody can have used."""
        with self.ledger.writing() as transaction:
            named = transaction.rows.find(ExportRow, mark=export.mark)
            transaction.exports.discard(export.mark)
            transaction.settle()
        if named is not None and named.name:
            self.memory.note([replace(named, withdrawn_at=time.time())])

    def withdraw(self, name: str) -> None:
        """Believe the operator that no copy of an export is left, on this host only after a look."""
        with self.ledger.reading() as transaction:
            exports = transaction.rows.all(ExportRow)
        named = [export for export in exports if export.label == name]
        if not named:
            standing = [export.label for export in exports if export.withdrawn_at is None]
            listed = f"; standing are {', '.join(dict.fromkeys(standing))}" if standing else "; none stands"
            raise InputError(
                "the command", f"the run has made no export {name!r}{did_you_mean(name, standing)}{listed}"
            )
        self._withdraw_gone([export for export in named if export.withdrawn_at is None])

    def retire(self, export: ExportRow) -> None:
        """Remove an export's files, and believe that its one server has let go. The same content elsewhere stays."""
        self.remove_files(export)
        self._withdraw_gone([export])

    def remove_files(self, export: ExportRow) -> None:
        """Remove an export's files where they are on this host and unchanged, so that no server loads them again."""
        if export.host == platform.node():
            with storage_errors(f"removing the export {export.label} from {export.output}"):
                remove_unchanged(export.path, files_of(export))

    def _withdraw_gone(self, exports: Sequence[ExportRow]) -> None:
        """Note that exports are withdrawn, on this host only after a look."""
        problems = [
            f"export {export.label} is being written by another process; try again when it has ended"
            for export in exports
            if _is_in_work(export)
        ]
        problems += [
            f"{path} is still there; remove it, and unload it wherever it is served"
            for export in exports
            if export.host == platform.node()
            for path in self._left(export)
        ]
        if problems:
            raise InputError(f"export {exports[0].label}, which is not withdrawn", dict.fromkeys(problems))
        self._note_withdrawn(exports)

    def warnings(self, exports: Sequence[ExportRow]) -> list[str]:
        """Why exports could not be withdrawn by this process."""
        return [self.failures[export.mark] for export in exports if export.mark in self.failures]

    def _left(self, export: ExportRow) -> list[Path]:
        """Remains of an export, without those of other exports that the run knows."""
        with self.ledger.reading() as transaction:
            others = {each.path for each in transaction.exports.standing() if each.label != export.label}
        part = part_folder(export.output, export.mark)
        left = left_behind(export.output, export.label, files_of(export), but=others)
        return [part, *left] if part.exists() else left

    def _note_withdrawn(self, exports: Sequence[ExportRow]) -> None:
        marks = [export.mark for export in exports]
        with self.ledger.writing() as transaction:
            transaction.exports.withdraw(marks)
            transaction.settle()
            gone = [export for export in transaction.rows.all(ExportRow) if export.mark in marks and export.name]
        for mark in marks:
            self.failures.pop(mark, None)
        self.memory.note(gone)


def files_of(export: ExportRow) -> tuple[File, ...]:
    """An export's files; none before it has a name."""
    return tuple(File(*file) for file in json.loads(export.files)) if export.files else ()


def _is_in_work(export: ExportRow) -> bool:
    return export.made_at is None and is_being_written(export.mark, announced_at=export.announced_at)


def run_hook(arguments: Sequence[str], values: Mapping[str, str], *, seconds: float = HOOK_SECONDS) -> str | None:
    """Run the operator's command that unloads and deletes an export, without a shell, and with values in place of
    `{name}`, `{path}` and `{host}`; returns why it failed, else None.

    Its standard input is empty, and its output goes to standard error: standard output is for results.
    """
    line = [_filled(argument, values) for argument in arguments]
    environment = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's own command, without a shell
            line, stdin=subprocess.DEVNULL, stdout=_STDERR, env=environment, start_new_session=True
        )
    except (OSError, ValueError) as error:
        return f"{line[0]} could not be started: {getattr(error, 'strerror', None) or error}"
    try:
        status = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"{line[0]} took longer than {seconds:.0f} s, and was killed"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if status == 0 else f"{line[0]} ended with {status}"


def _filled(argument: str, values: Mapping[str, str]) -> str:
    """An argument with values in place; what a value itself holds in braces stays.

    >>> _filled("{host}:{path}", {"host": "h", "path": "/srv/{host}"})
    'h:/srv/{host}'
    """
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), argument)
