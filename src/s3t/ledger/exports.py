"""Exports in the ledger: copies of chains for other programs, and the deletions that wait for their withdrawal.

An export is announced before its first byte is written, named before it gets its place, and committed when its stages
were found alive after that. A deletion that comes in between finds it here, whatever the exporter has done by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from s3t.core import Place
from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.schema import row_of
from s3t.ledger.state import Acceptance, ExportRow, SliceState, Snapshot


class ExportRows:
    """Exports, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def standing(self) -> list[ExportRow]:
        """Exports that are not withdrawn, the oldest first; announced ones included."""
        return self._rows.all(ExportRow, withdrawn_at=None)

    def tainted(self) -> dict[str, frozenset[int]]:
        """Marks of exports that have to be withdrawn, and the deletions that wait for it."""
        found: dict[str, frozenset[int]] = {}
        for row in self._rows.read(schema.withdrawals):
            found[row.mark] = found.get(row.mark, frozenset()) | {row.generation}
        return found

    def to_withdraw(self) -> list[ExportRow]:
        """Exports with a deleted record in them, the oldest first."""
        tainted = self.tainted()
        return [export for export in self.standing() if export.mark in tainted] if tainted else []

    def waited_for(self) -> dict[int, tuple[str, ...]]:
        """Names of the exports whose withdrawal each deletion waits for."""
        tainted = self.tainted()
        found: dict[int, dict[str, None]] = {}
        for export in self.standing() if tainted else ():
            for generation in tainted.get(export.mark, ()):
                found.setdefault(generation, {})[export.label] = None
        return {generation: tuple(names) for generation, names in found.items()}

    def announce(self, export: ExportRow, snapshot: Snapshot) -> bool:
        """Note that an export is about to be written; False if its stages are not alive any more."""
        if not snapshot.still_has(export.stages):
            return False
        self._rows.add(replace(export, announced_at=self._rows.now()))
        return True

    def name(self, export: ExportRow) -> None:
        """Note the name and the files of an export that was written and is about to get its place."""
        self._rows.amend(schema.exports, mark=export.mark, to={"name": export.name, "files": export.files})

    def commit(self, export: ExportRow, snapshot: Snapshot) -> bool:
        """Note that an export is in its place and may be used; False if a deletion has come since it was announced."""
        if export.mark in self.tainted() or not snapshot.still_has(export.stages):
            return False
        return self._rows.amend(schema.exports, mark=export.mark, to={"made_at": self._rows.now()}) == 1

    def discard(self, mark: str) -> None:
        """Forget an export of which nothing is left and that nobody can have used."""
        self._wait_no_more([mark])
        self._rows.delete(schema.exports, mark=mark)

    def taint(self, numbered: Iterable[tuple[int, Acceptance]]) -> None:
        """Note which exports hold records of new deletions.

        Every export that was made of a slice before it lost a record holds that record, whether or not the stages of
        its chain are still alive.
        """
        hit = {number: {*acceptance.losses} for number, acceptance in numbered}
        self._rows.upsert(
            schema.withdrawals,
            (
                {"mark": export.mark, "generation": number}
                for export in self.standing()
                for number, places in hit.items()
                if not places.isdisjoint(export.places)
            ),
        )

    def withdraw(self, marks: Collection[str]) -> None:
        """Note that no copy of some exports is left; deletions wait for them no more."""
        self._rows.amend(schema.exports, schema.exports.c.mark.in_(marks), to={"withdrawn_at": self._rows.now()})
        self._wait_no_more(marks)
        self._rows.note_change()

    def remember(self, exports: Sequence[ExportRow], *, slices: Mapping[Place, SliceState], generation: int) -> None:
        """Write rows that an older ledger lacks or has as standing; `slices` are all slices, as they are now."""
        self._rows.upsert(schema.exports, map(row_of, exports))
        self._wait_no_more([export.mark for export in exports if export.withdrawn_at is not None])
        stale = (export for export in exports if export.withdrawn_at is None and not is_of(export, slices))
        self._rows.upsert(schema.withdrawals, ({"mark": each.mark, "generation": generation} for each in stale))

    def _wait_no_more(self, marks: Collection[str]) -> None:
        self._rows.remove(schema.withdrawals, ({"mark": mark} for mark in marks))


def is_of(export: ExportRow, slices: Mapping[Place, SliceState]) -> bool:
    """True if an export was made of the present records of its slices."""
    states = [slices.get(place) for place in export.places]
    return all(
        state is not None and state.digest == digest and not state.pending
        for state, digest in zip(states, export.digests, strict=True)
    )
