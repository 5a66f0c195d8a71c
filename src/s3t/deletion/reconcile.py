"""A run whose folder or ledger is an older state, brought back, is made to forget again what was deleted since.

Three things remember deletions: the ledger, the run's folder (its slices), and the witness outside of it. A record is
present only where all three say so. What the ledger does not know of a later deletion is accepted anew, as one
generation above all that were seen; what a slice's file holds too much is taken out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from s3t.deletion.erasure import Eraser
from s3t.deletion.plan import plan_deletion
from s3t.deletion.witness import Witness
from s3t.disk import storage_errors, sync_folder
from s3t.errors import IntegrityError, RestoredError
from s3t.inventory import Inventory
from s3t.ledger import Acceptance, Ledger, RecordRow, Snapshot, Transaction
from s3t.ledger.locks import RunLock, held
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


def refuse_if_restored(
    ledger: Ledger, witness: Witness, *, erasures: Callable[[], int], lock: RunLock, run: Path
) -> None:
    """Look whether the run is an older state of itself.

    Args:
        ledger: the run's.
        witness: what was seen of the run on this machine.
        erasures: how often slices were rewritten, as the folder notes it.
        lock: the run's.
        run: the folder, for the message.

    Raises:
        RestoredError: it is.
        StorageError: the disk or the database refused.
    """
    with ledger.reading() as transaction:
        what = _what_is_old(transaction, witness, erasures())
    if what is not None:  # or a deletion came between our looking here and there: once more, while none can
        with held(lock), ledger.writing() as transaction:
            what = _what_is_old(transaction, witness, erasures())
    if what is not None:
        raise RestoredError(
            f"{run} is an older state of the run ({what}): a backup was put back, or it is a copy. It neither "
            f"serves nor trains until the later deletions are applied: run `s3t reconcile {run}`. If it is a copy to "
            "try things on, give it a memory of its own: set S3T_STATE to another folder"
        )


def _what_is_old(transaction: Transaction, witness: Witness, erasures: int) -> str | None:
    snapshot, (seen, mark) = transaction.snapshot(), witness.newest()
    if seen > snapshot.generation:
        return f"its ledger is at generation {snapshot.generation}, but {witness.path} has seen generation {seen}"
    if seen > 0 and transaction.mark_of(seen) != mark:
        return f"generation {seen} of its ledger is another deletion than the one that {witness.path} has seen"
    under_way = 1 if snapshot.pending_since is not None else 0
    if not snapshot.erasures <= erasures <= snapshot.erasures + under_way:
        return f"its slices were rewritten {erasures} times, but its ledger counts {snapshot.erasures}"
    return None


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
        taken = self._accept_later(contents)
        rewritten = tuple(place for place in places if self._mend(place, contents[place]))
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

    def _accept_later(self, contents: dict[Place, SliceContent]) -> int:
        """Accept what the witness or the folder knows to be deleted, and the ledger does not; records taken."""
        seen, mark = self.witness.newest()
        with self.ledger.writing() as transaction:
            snapshot = transaction.snapshot()
            located = transaction.locate(records=self.witness.tokens(), subjects=())
            later = [token for token in self.witness.tokens() if token not in located.gone]
            rows: dict[bytes, RecordRow] = {row.token: row for row in located.rows}
            short = {}
            for place, content in contents.items():
                held_now = self._tokens(content)
                missing = {row.token: row for row in transaction.records_in(place) if row.token not in held_now}
                rows |= missing
                if missing:
                    short[place] = content.digest
            same = seen == 0 or transaction.mark_of(seen) == mark
            if not rows and not later and same:
                return 0
            losses: dict[Place, int] = {}
            for row in rows.values():
                losses[row.place] = losses.get(row.place, 0) + row.copies
            plan = plan_deletion(self.inventory(snapshot), losses)
            tainted = {stage: snapshot.stages[stage] for stage in plan.tainted if stage in snapshot.stages}
            tainted |= {stage: key for stage, key in snapshot.stages.items() if _stands_on(stage, losses)}
            taken = Acceptance(rows=list(rows.values()), losses=losses, tainted=tainted)
            (generation,) = transaction.accept([taken], above=seen)
            transaction.remember(later, generation=generation)
            for place, digest in short.items():  # the file is newer than the ledger: it is right
                transaction.mend_slice(place, digest=digest)
        return sum(losses.values())

    def _mend(self, place: Place, content: SliceContent) -> bool:
        """Make a slice's file hold what the ledger says is present; whether anything was to do."""
        with self.ledger.reading() as transaction:
            known = transaction.snapshot().slices[place]
            present = {row.token for row in transaction.records_in(place)}
        held_now = self._tokens(content)
        kept = without_records(content.rows, held_now - present, self.secret)
        digest = slice_digest(kept, self.secret)
        explained = {digest, content.digest} & {known.digest, known.next_digest}
        if kept.num_rows != known.records or not explained:
            raise IntegrityError(
                f"the file of slice {place.slice} of shard {place.shard} holds other records than any state of the run "
                "did; restore it from a backup, then reconcile again"
            )
        if kept.num_rows < content.rows.num_rows:
            # A crash may have left the file that was to come. Noted as another, it would be nobody's after the next.
            now = content.digest if content.digest in (known.digest, known.next_digest) else known.digest
            with self.ledger.writing() as transaction:
                transaction.will_rewrite(place, known=known, now=now, then=digest)
            with storage_errors("erasing records from a slice"):
                around = self.eraser.still_rewriting(place, digest)
                write_slice(self.eraser.slices, place, kept, tmp=self.eraser.tmp, around=around)
        else:
            with storage_errors("reconciling a slice"):  # who rewrote it may have been killed before its name was safe
                sync_folder(slice_path(self.eraser.slices, place).parent)
            if digest == known.digest:
                return False
        with self.ledger.writing() as transaction:
            transaction.rewritten(place, digest, held_now - present)
            if digest != known.digest:
                above = [stage for stage in transaction.snapshot().stages if _stands_on(stage, [place])]
                transaction.forget_stages(above)
                transaction.mend_slice(place, digest=digest)
        return True

    def _without_artifact(self, snapshot: Snapshot) -> list[Stage]:
        """Stages that were trained after the backup of the folder was made, and those that stand on them."""
        present = self.eraser.store.present()
        whole = {stage for stage, key in snapshot.stages.items() if (stage.shard, key) in present}
        return [stage for stage in snapshot.stages if not whole.issuperset(stage.chain)]

    def _tokens(self, content: SliceContent) -> set[bytes]:
        return {self.secret.token("ledger", "record", name) for name in content.rows["record"].to_pylist()}


def _stands_on(stage: Stage, places: Collection[Place]) -> bool:
    return any(Place(stage.shard, index) in places for index in stage.prefix)
