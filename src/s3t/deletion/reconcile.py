"""A run whose folder or ledger is an older state, brought back, is made to forget again what was deleted since.

Three things remember deletions: the ledger, the run's folder (its slices), and the witness outside of it. A record is
present only where all three say so. What the ledger does not know of a later deletion is accepted anew, as one
generation above all that were seen; what a slice's file holds too much is taken out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from s3t.deletion.erasure import Eraser
from s3t.deletion.plan import plan_deletion
from s3t.deletion.witness import Witness
from s3t.disk import storage_errors, sync_folder
from s3t.errors import IntegrityError, RestoredError
from s3t.inventory import Inventory
from s3t.ledger import Acceptance, Ledger, RecordRow, Snapshot
from s3t.partition import Place, Secret
from s3t.records import SliceContent, read_slice, slice_digest, slice_path, without_records, write_slice
from s3t.stages import Stage


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """What was done."""

    records: int
    """Records that the ledger still had, and that had been deleted."""
    slices: tuple[Place, ...]
    """Slices whose files were rewritten."""
    stages: int
    """Stages that were in use and had to go."""


def refuse_if_restored(ledger: Ledger, witness: Witness, *, erasures: int, run: Path) -> None:
    """Look whether the run is an older state of itself.

    Args:
        ledger: the run's.
        witness: what was seen of the run on this machine.
        erasures: how often slices were rewritten, as the folder notes it.
        run: the folder, for the message.

    Raises:
        RestoredError: it is.
    """
    snapshot = ledger.snapshot()
    seen = witness.generation()
    if seen > snapshot.generation:
        what = f"its ledger is at generation {snapshot.generation}, but {witness.path} has seen generation {seen}"
    elif erasures < snapshot.erasures:
        what = f"its slices were rewritten {erasures} times, but its ledger counts {snapshot.erasures}"
    elif erasures > snapshot.erasures + 1:  # one may be under way, or was when a crash came
        what = f"its slices were rewritten {erasures} times, but its ledger knows of {snapshot.erasures} alone"
    else:
        return
    raise RestoredError(
        f"{run} is an older state of the run ({what}): a backup was put back, or it is a copy. It neither serves nor "
        f"trains until the later deletions are applied: run `s3t reconcile {run}`. If it is a copy to try things on, "
        "give it a memory of its own: set S3T_STATE to another folder"
    )


@dataclass(frozen=True, kw_only=True)
class Reconciler:
    """Reconciles one run. The caller holds the run's lock."""

    ledger: Ledger
    witness: Witness
    eraser: Eraser
    secret: Secret
    inventory: Callable[[Snapshot], Inventory]
    erasures: Callable[[], int]
    """How often slices were rewritten, as the folder notes it."""

    def reconcile(self) -> Reconciled:
        """Apply later deletions, wherever they are remembered.

        Raises:
            IntegrityError: a slice's file is not one that deletions explain; nothing of it is changed.
            StorageError: the disk or the database refused; running it again goes on.
        """
        places = sorted(self.ledger.snapshot().slices)
        contents = {place: read_slice(self.eraser.slices, place, self.secret) for place in places}
        before = len(self.ledger.snapshot().stages)
        taken, short = self._accept_later(contents)
        rewritten = tuple(place for place in places if self._mend(place, contents[place], short=place in short))
        with storage_errors("marking the run folder"), self.ledger.writing() as transaction:
            count = max(self.erasures(), transaction.snapshot().erasures + 1)
            self.eraser.mark(count)
            transaction.count_erasure(at_least=count)
        self.eraser.erase(everything=True)
        with self.ledger.writing() as transaction:
            transaction.forget_stages(self._without_artifact(transaction.snapshot()))
            transaction.settle()
        self.eraser.sweep()
        self.witness.catch_up(self.ledger)
        return Reconciled(records=taken, slices=rewritten, stages=before - len(self.ledger.snapshot().stages))

    def _accept_later(self, contents: dict[Place, SliceContent]) -> tuple[int, set[Place]]:
        """Accept what the witness or the folder knows to be deleted, and the ledger does not.

        Returns:
            Records taken, and the slices whose files had lost records that the ledger did not know to be deleted.
        """
        short: set[Place] = set()
        seen = self.witness.generation()
        with self.ledger.writing() as transaction:
            snapshot = transaction.snapshot()
            later = self.witness.since(snapshot.generation)
            rows: dict[bytes, RecordRow] = {
                row.token: row for row in transaction.locate(records=later, subjects=()).rows
            }
            for place, content in contents.items():
                held = self._tokens(content)
                missing = {row.token: row for row in transaction.records_in(place) if row.token not in held}
                rows |= missing
                short |= {place} if missing else set()
            if not rows and seen <= snapshot.generation:
                return 0, short
            before = self.inventory(snapshot)
            losses: dict[Place, int] = {}
            for row in rows.values():
                losses[row.place] = losses.get(row.place, 0) + row.copies
            plan = plan_deletion(before, losses)
            tainted = {stage: snapshot.stages[stage] for stage in plan.tainted}
            taken = Acceptance(rows=list(rows.values()), losses=losses, tainted=tainted)
            (generation,) = transaction.accept([taken], above=seen)
            transaction.remember(later, generation=generation)
        return sum(losses.values()), short

    def _mend(self, place: Place, content: SliceContent, *, short: bool) -> bool:
        """Make a slice's file hold what the ledger says is present; whether it was rewritten or its digest was
        other."""
        with self.ledger.reading() as transaction:
            known = transaction.snapshot().slices[place]
            present = {row.token for row in transaction.records_in(place)}
        held = self._tokens(content)
        kept = without_records(content.rows, held - present, self.secret)
        digest = slice_digest(kept, self.secret)
        explained = short or digest in (known.digest, known.next_digest) or content.digest == known.digest
        if kept.num_rows != known.records or not explained:
            raise IntegrityError(
                f"the file of slice {place.slice} of shard {place.shard} holds other records than any state of the run "
                "did; restore it from a backup, then reconcile again"
            )
        if kept.num_rows < content.rows.num_rows:
            with self.ledger.writing() as transaction:
                transaction.will_rewrite(place, digest)
            with storage_errors("erasing records from a slice"):
                write_slice(self.eraser.slices, place, kept, self.secret, tmp=self.eraser.tmp)
        else:
            with storage_errors("reconciling a slice"):  # who rewrote it may have been killed before its name was safe
                sync_folder(slice_path(self.eraser.slices, place).parent)
            if digest == known.digest:
                return False
        with self.ledger.writing() as transaction:
            if digest != known.digest:
                above = [
                    stage
                    for stage in transaction.snapshot().stages
                    if place.shard == stage.shard and place.slice in stage.prefix
                ]
                transaction.forget_stages(above)
                transaction.mend_slice(place, digest=digest)
            transaction.rewritten(place, digest, held - present)
        return True

    def _without_artifact(self, snapshot: Snapshot) -> list[Stage]:
        """Stages that were trained after the backup of the folder was made, and those that stand on them."""
        present = self.eraser.store.present()
        whole = {stage for stage, key in snapshot.stages.items() if (stage.shard, key) in present}
        return [stage for stage in snapshot.stages if not whole.issuperset(stage.chain)]

    def _tokens(self, content: SliceContent) -> set[bytes]:
        return {self.secret.token("ledger", "record", name) for name in content.rows["record"].to_pylist()}
