"""Exports remembered outside of the run folder: a ledger that is put back from a backup does not know later ones.

One file for each run, beside the witness (`witness.py`): a line whenever an export gets its name, is made, or is
withdrawn. The last line of an export counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace

from s3t.deletion.witness import VARIABLE, state_folder
from s3t.disk import append_durably, make_folder, storage_errors
from s3t.ledger import ExportRow, Ledger
from s3t.ledger.exports import is_of
from s3t.ledger.schema import row_of, value_of


class ExportMemory:
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
            known = {export.mark: export for export in transaction.exports.all() if export.name}
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
