"""A run whose folder or ledger is an older state, brought back, is made to forget again what was deleted since.

Three things remember deletions: the ledger, the run's folder (its slices), and the witness outside of it. A record is
present only where all three say so. What the ledger does not know of a later deletion is accepted anew, as one
generation above all that were seen; what a slice's file holds too much is taken out of it.

A file that is not the slice's, or not whole, would be taken for a memory of deletions, and they would be made. So all
files are compared with what is remembered before anything is changed.

After the run's secret was destroyed no record can be told from another, but then nothing reads slices any more: of a
slice whose file holds more than the ledger counts, the whole file goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from s3t.aftermath import RECONCILING, after_refusal
from s3t.deletion.erasure import Eraser
from s3t.deletion.mending import mend_ledger
from s3t.deletion.plan import plan_deletion
from s3t.deletion.witness import Line, Witness
from s3t.disk import remove_durably, storage_errors, sync_folder
from s3t.errors import IntegrityError, RestoredError
from s3t.inventory import Inventory
from s3t.ledger import Acceptance, Ledger, RecordRow, Snapshot, Transaction
from s3t.ledger.locks import RunLock, needed
from s3t.partition import Place, Secret
from s3t.records import (
    SliceContent,
    count_rows,
    read_slice,
    slice_digest,
    slice_path,
    without_records,
    write_slice,
)
from s3t.stages import Stage


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """What was done."""

    rows: int
    """Rows of the ledger that were damaged or lost, and were mended."""

    records: int
    """Records that the ledger still had, and that had been deleted."""
    slices: tuple[Place, ...]
    """Slices whose files were rewritten; after the run's secret was destroyed, removed."""
    stages: int
    """Stages that were in use and had to go."""


def refuse_if_restored(
    ledger: Ledger, witness: Witness, *, erasures: Callable[[], int], lock: RunLock, run: Path, slices: Path
) -> None:
    """Look whether the run is an older state of itself.

    Args:
        ledger: the run's.
        witness: what was seen of the run on this machine.
        erasures: how often slices were rewritten, as the folder notes it.
        lock: the run's.
        run: the folder, for the message.
        slices: the folder of the slices' files, whose rows are counted.

    Raises:
        RestoredError: it is.
        StorageError: the disk or the database refused.
    """
    with ledger.reading() as transaction:
        what = _what_is_old(transaction, witness, erasures(), slices)
    if what is not None:  # or a deletion came between our looking here and there: once more, while none can
        with ledger.reading() if ledger.read_only else _alone(ledger, lock) as transaction:
            what = _what_is_old(transaction, witness, erasures(), slices)
    if what is not None:
        raise RestoredError(
            f"{run} is an older state of the run ({what}): a backup was put back, or it is a copy. It neither "
            f"serves nor trains until the later deletions are applied: run `s3t reconcile {run}`. If it is a copy to "
            f"try things on, make it a run of its own: `s3t clone --adopt {run}`"
        )


@contextmanager
def _alone(ledger: Ledger, lock: RunLock) -> Iterator[Transaction]:
    """A transaction while nothing is accepted and nothing erased."""
    with needed(lock), ledger.writing() as transaction:
        yield transaction


def _what_is_old(transaction: Transaction, witness: Witness, erasures: int, slices: Path) -> str | None:
    snapshot, seen = transaction.snapshot(), witness.newest()
    if seen > snapshot.generation:
        return f"its ledger is at generation {snapshot.generation}, but {witness.path} has seen generation {seen}"
    if (number := _unknown_deletion(transaction, witness)) is not None:
        return f"generation {number} of its ledger is another deletion than the one that {witness.path} has seen"
    if not snapshot.erasures <= erasures <= _most_erasures(snapshot):
        return f"its slices were rewritten {erasures} times, but its ledger counts {snapshot.erasures}"
    return _file_of_another_time(transaction, slices)


def _unknown_deletion(transaction: Transaction, witness: Witness) -> int | None:
    """The generation of a deletion that the witness has seen and of which the ledger does not know all."""
    strangers = witness.strangers(transaction)
    if not strangers or not _unknown(transaction, witness, strangers):
        return None
    return next((line.generation for line in strangers if _unknown(transaction, witness, [line])), None)


def _unknown(transaction: Transaction, witness: Witness, lines: Sequence[Line]) -> bool:
    tokens = witness.tokens(lines)
    located = transaction.locate(records=tokens, subjects=())
    return bool(located.rows) or len(located.gone) < len(tokens)


def _file_of_another_time(transaction: Transaction, slices: Path) -> str | None:
    """A slice's file with more or fewer rows than the ledger counts: a slice only ever loses records.

    One that is missing or cannot be read is no state of the run: what reads it says so, and the rest serves on.
    """
    destroyed = transaction.key_destroyed_at() is not None  # then reconciling has removed what may be too old
    for place, state in sorted(transaction.snapshot().slices.items()):
        path = slice_path(slices, place)
        rows = count_rows(path)
        if rows is None:
            continue
        if rows > state.records and not state.pending:
            return f"{path} holds {rows} records, of which its ledger counts {state.records}"
        if rows < state.records and not destroyed:
            return f"its ledger counts {state.records} records in {path}, which holds {rows}"
    return None


def _most_erasures(snapshot: Snapshot) -> int:
    """What a folder may count that is not newer than its ledger: it counts an erasure that is under way first."""
    return snapshot.erasures + (1 if snapshot.pending_since is not None else 0)


@dataclass(frozen=True, kw_only=True)
class _File:
    """A slice's file as it was found."""

    content: SliceContent
    copies: Mapping[bytes, int]
    """Rows of each record, by its token."""


@dataclass(frozen=True, kw_only=True)
class _Remembered:
    """What ledger, witness and folder know of a slice and of what its file holds."""

    digests: Set[str | None]
    present: Mapping[bytes, int]
    """The ledger's records, and the rows of each."""
    erasing: Set[bytes]
    """What the ledger knows to be deleted, though it may still be in the file."""
    witnessed: Set[bytes]
    """What the witness knows to be deleted."""
    deleted: Set[bytes]
    """What else was deleted, of any slice."""
    older: bool
    """Whether the ledger is older than the folder: what was deleted since only the file may know."""

    def problem(self, file: _File, secret: Secret) -> str | None:
        """Why deletions do not explain a file; None if they do."""
        if foreign := self._foreign(file):
            return f"holds records that were never in this slice: {len(foreign)}. Is it the file of another?"
        staying = self.present.keys() - self.witnessed
        lost = staying - file.copies.keys()
        if self.lacks(file):
            return f"lacks {len(lost)} of {len(staying)} records, and nothing says that they were deleted"
        if any(file.copies[token] != self.present[token] for token in staying - lost):
            return "holds a record more often or less often than the ledger says"
        if self.present.keys() <= file.copies.keys() and not self._knows(file, secret):
            return "holds the right ids, but other records than any state of the run did"
        return None

    def lacks(self, file: _File) -> bool:
        """Whether a file of this slice lacks records of which nothing says that they were deleted."""
        lost = self.present.keys() - self.witnessed - file.copies.keys()
        return bool(lost) and not self.older and not self._foreign(file)

    def _foreign(self, file: _File) -> Set[bytes]:
        """Records of other slices."""
        return file.copies.keys() - self.present.keys() - self.deleted

    def _knows(self, file: _File, secret: Secret) -> bool:
        """Whether a file, or what the ledger would leave of one that is older, has a digest that the ledger knows."""
        if file.content.digest in self.digests:
            return True
        of_ledger = {frozenset(self.present), frozenset(self.present.keys() | self.erasing)}
        left = (without_records(file.content.rows, file.copies.keys() - held, secret) for held in of_ledger)
        return any(slice_digest(rows, secret) in self.digests for rows in left)


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
    trust_slices: bool = False
    """Whether what a slice's file lacks was deleted, although nothing else remembers that: the operator says so."""

    def reconcile(self) -> Reconciled:
        """Apply later deletions, wherever they are remembered.

        Raises:
            IntegrityError: files of slices are not ones that deletions explain, all of them named; nothing is changed.
            StorageError: the disk or the database refused; running it again goes on.
        """
        witnessed, has_key = frozenset(self.witness.tokens()), self.secret.salt is not None
        where = {"slices": self.eraser.slices, "run": self.eraser.run}
        rows = mend_ledger(self.ledger, secret=self.secret, witnessed=witnessed, **where) if has_key else 0
        files = self._explained(witnessed) if has_key else {}
        before = len(self.ledger.snapshot().stages)
        taken = self._accept_later(files, witnessed)  # tokens are compared, which needs no key
        with after_refusal(RECONCILING):
            mended = self._carry_out(files)
        return Reconciled(rows=rows, records=taken, slices=mended, stages=before - len(self.ledger.snapshot().stages))

    def _carry_out(self, files: Mapping[Place, _File]) -> tuple[Place, ...]:
        """Make folder and witness what the ledger says; the slices whose files were not."""
        has_key = self.secret.salt is not None
        mended = tuple(place for place, file in files.items() if self._mend(place, file))
        mended = mended if has_key else self._remove_older_files()
        with storage_errors("marking the run folder"), self.ledger.writing() as transaction:
            count = max(self.erasures(), transaction.snapshot().erasures + 1)
            self.eraser.mark(count)
            transaction.count_erasure(at_least=count)
        self.eraser.erase(everything=True)
        with self.ledger.writing() as transaction:
            if has_key:  # else nobody could train them again, but a newer backup of the folder may have them
                transaction.forget_stages(self._without_artifact(transaction.snapshot()))
            transaction.settle()
        self.eraser.sweep()
        self.witness.catch_up(self.ledger)
        self.witness.note_again(self.ledger)
        return mended

    def _explained(self, witnessed: Set[bytes]) -> dict[Place, _File]:
        """Every slice's file.

        Raises:
            IntegrityError: some are not what deletions leave of a slice.
        """
        files: dict[Place, _File] = {}
        problems: dict[Place, str] = {}
        lacking = False
        for place in sorted(self.ledger.snapshot().slices):
            try:
                files[place] = self._file(place)
            except IntegrityError as error:
                problems[place] = str(error)
        for place, remembered in self._remembered(files, witnessed).items():
            if (problem := remembered.problem(files[place], self.secret)) is not None:
                problems[place] = f"{slice_path(self.eraser.slices, place)} {problem}"
                lacking = lacking or remembered.lacks(files[place])
        if problems:
            run, lines = self.eraser.run, "".join(f"\n  - {problem}" for _, problem in sorted(problems.items()))
            newer = (
                ". If the ledger was put back from a backup, and the files that lack records are newer, run "
                f"`s3t reconcile {run} --trust-slices` instead: it deletes for good what they lack"
            )
            raise IntegrityError(
                f"{run} holds files of slices that no deletion explains; nothing was changed. Put the right ones back "
                f"from a backup, then run `s3t reconcile {run}` again{newer if lacking else ''}:{lines}"
            )
        return files

    def _file(self, place: Place) -> _File:
        content = read_slice(self.eraser.slices, place, self.secret)
        if "record" not in content.rows.column_names:
            raise IntegrityError(f"{slice_path(self.eraser.slices, place)} is not the file of a slice")
        names = content.rows["record"].to_pylist()
        return _File(content=content, copies=Counter(self.secret.token("ledger", "record", name) for name in names))

    def _remembered(self, files: Mapping[Place, _File], witnessed: Set[bytes]) -> dict[Place, _Remembered]:
        with self.ledger.reading() as transaction:
            snapshot, erasing = transaction.snapshot(), transaction.to_erase().records
            present = {place: {row.token: row.copies for row in transaction.records_in(place)} for place in files}
            others = {token for place, file in files.items() for token in file.copies.keys() - present[place].keys()}
            located = transaction.locate(records=others, subjects=())
        elsewhere = {row.token for row in located.rows}  # and so not from here, although it may have been deleted later
        older = self.trust_slices or self.erasures() > _most_erasures(snapshot)
        return {
            place: _Remembered(
                digests={snapshot.slices[place].digest, snapshot.slices[place].next_digest},
                present=present[place],
                erasing=erasing.get(place, frozenset()),
                witnessed=witnessed,
                deleted=(located.gone.keys() | witnessed) - elsewhere,
                older=older,
            )
            for place in files
        }

    def _accept_later(self, files: Mapping[Place, _File], witnessed: Set[bytes]) -> int:
        """Accept what the witness or the folder knows to be deleted, and the ledger does not; records taken."""
        seen = self.witness.newest()
        with self.ledger.writing() as transaction:
            snapshot = transaction.snapshot()
            strangers = self.witness.strangers(transaction)  # all of their tokens are the ledger's in a moment
            transaction.note_foreign({(line.mark, line.generation) for line in strangers})
            located = transaction.locate(records=witnessed, subjects=())
            later = witnessed - located.gone.keys()
            rows: dict[bytes, RecordRow] = {row.token: row for row in located.rows}
            short = {}
            for place, file in files.items():
                missing = {row.token: row for row in transaction.records_in(place) if row.token not in file.copies}
                rows |= missing
                if missing:
                    short[place] = file.content.digest
            if not rows and not later and seen <= snapshot.generation:
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

    def _mend(self, place: Place, file: _File) -> bool:
        """Make a slice's file hold what the ledger says is present; whether anything was to do."""
        with self.ledger.reading() as transaction:
            known = transaction.snapshot().slices[place]
            gone = file.copies.keys() - {row.token for row in transaction.records_in(place)}
        digest = found = file.content.digest
        if gone:
            kept = without_records(file.content.rows, gone, self.secret)
            digest = slice_digest(kept, self.secret)
            # A crash may have left the file that was to come. Noted as another, it would be nobody's after the next.
            now = found if found in (known.digest, known.next_digest) else known.digest
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
            transaction.rewritten(place, digest, gone)
            if digest != known.digest:
                above = [stage for stage in transaction.snapshot().stages if _stands_on(stage, [place])]
                transaction.forget_stages(above)
                transaction.mend_slice(place, digest=digest)
        return True

    def _remove_older_files(self) -> tuple[Place, ...]:
        """Without the key: remove files of slices that may hold a deleted record; the slices.

        A slice only ever loses records. So a file with as many as the ledger counts is the newest; one with more is
        older, and one that cannot be read may be.
        """
        with self.ledger.reading() as transaction:
            slices, erasing = transaction.snapshot().slices, transaction.to_erase().records
        paths = {place: slice_path(self.eraser.slices, place) for place in sorted(slices)}
        older = {place: path for place, path in paths.items() if not _holds_at_most(path, slices[place].records)}
        with storage_errors("removing files of slices"):
            remove_durably([*older.values()])
        with self.ledger.writing() as transaction:
            for place, tokens in erasing.items():
                transaction.rewritten(place, slices[place].digest, tokens)
        return tuple(older)

    def _without_artifact(self, snapshot: Snapshot) -> list[Stage]:
        """Stages that were trained after the backup of the folder was made, and those that stand on them."""
        present = self.eraser.store.present()
        whole = {stage for stage, key in snapshot.stages.items() if (stage.shard, key) in present}
        return [stage for stage in snapshot.stages if not whole.issuperset(stage.chain)]


def _stands_on(stage: Stage, places: Collection[Place]) -> bool:
    return any(Place(stage.shard, index) in places for index in stage.prefix)


def _holds_at_most(path: Path, records: int) -> bool:
    """Whether a slice's file surely holds no more than a number of records."""
    rows = count_rows(path)
    return not path.exists() if rows is None else rows <= records
