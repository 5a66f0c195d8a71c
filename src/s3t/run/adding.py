"""Records that come after init: an addition gives every slice one more segment, in which its records lie.

`sync` makes a run equal to a table: what is new is added, what is gone deleted, what has changed both.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s3t.aftermath import EXCHANGED, NOTHING_CHANGED, OUT_OF_USE, TAKEN_IN, after_refusal
from s3t.core import Place
from s3t.deletion.acceptance import Request
from s3t.errors import InputError, IntegrityError, RecipeError, S3TError
from s3t.events import Progress, silent
from s3t.ledger import Incoming, SliceState, Snapshot
from s3t.ledger.filling import WaitingRecords, record_rows
from s3t.ledger.locks import hold
from s3t.ledger.presence import Leaving, Overtaken, Uses
from s3t.recipe.labels import alike, name_of
from s3t.results.changes import Added
from s3t.run.deleting import MAX_EXPIRED, check_expiry, check_share, deletion_of, repaired
from s3t.run.reporting import inventory_now
from s3t.run.training import engine_of, train_missing
from s3t.store.disk import storage_errors
from s3t.store.rows import WINDOW_ROWS, Cells, contents
from s3t.store.slices import copies_in_order, slice_digest
from s3t.store.spill import Spill
from s3t.wording import counted, duration

if TYPE_CHECKING:
    import pyarrow as pa

    from s3t.deletion.acceptance import Accepted
    from s3t.deletion.lookup import FileMatches
    from s3t.recipe import Recipe
    from s3t.records.ingest import Records
    from s3t.records.reading import Data, Problems
    from s3t.records.splitting import Split
    from s3t.run.parts import Parts
    from s3t.run.run import Run

MAX_DELETIONS = 0.01
"""Share of the run's records that a sync deletes or replaces at most: a table may be cut short."""
_PRESENT = "its id is in the run already; drop the row, or, if it has changed, have it replaced (--replace)"
_SAME = "the run holds a record of the same content, and there are no ids; drop the row"
_GONE = "was deleted from the run, so it is not taken in again; drop the row, or, if it came back, have it readmitted"
_MOVED = "the other records of its subject are in another group; a subject's records have one"
_PUBLIC = "is a public record of prediction.validation, so it could not be deleted; drop the row"
_COMPARED_ROWS = 512
"""Rows that are compared at once; only where they differ, row by row."""


def add(
    run: Run,
    data: Data,
    *,
    replace: bool = False,
    readmit: bool = False,
    new_labels: Sequence[str] = (),
    train: bool = True,
    wait: bool = True,
    progress: Progress | None = None,
) -> Added:
    """Take more records in, durably, each in the slice that the run's secret names: all, or none. They may be deleted
    at once. They are learned by `train`, or now, if the recipe's `additions.learn_every` says so: the result has the
    training, or its error, which takes nothing of the addition back.

    Args:
        data: as for `create`, with the same columns. Labels are those of the run, or `new_labels`.
        replace: an id that the run holds is no error: if anything of its row has changed, the record is deleted, and
            taken in as it is now, in one step.
        readmit: ids and subjects that were deleted are no error: they came back.
        new_labels: labels that the run has from now on, behind its others, if any record comes in: of classifications
            by `method: ridge`, for other heads have as many outputs as at `init`.
        train: False: learn nothing now, and repair nothing; `due` says if the first is to be done.
        wait: as for `delete`, of what is replaced.

    Raises:
        InputError: with all problems of the data; ids that the run holds, or names that were deleted from it; labels
            that it cannot take.
        KeyDestroyedError: the run's secret was destroyed.
    """
    if replace:
        _check_ids(run.parts)
    return _changed(
        run.parts,
        data,
        replace=replace,
        readmit=readmit,
        new_labels=new_labels,
        train=train,
        wait=wait,
        progress=progress or silent,
    )


def sync(
    run: Run,
    data: Data,
    *,
    readmit: bool = False,
    new_labels: Sequence[str] = (),
    max_deletions: float = MAX_DELETIONS,
    dry_run: bool = False,
    train: bool = True,
    progress: Progress | None = None,
) -> Added:
    """Make the run equal to a table, by ids: take in what is new, delete what is gone, replace what has changed, in one
    step. Nothing happens where nothing differs.

    Args:
        data: the whole table; as for `add`.
        readmit, new_labels: as for `add`.
        max_deletions: share of the run's records that may be gone or changed, or, if it is above 10 %, have expired;
            with more, nothing is done.
        dry_run: say what would happen, and do nothing.
        train: as for `add`.

    Raises:
        InputError: as `add`; or more is gone or changed than `max_deletions`.
    """
    _check_ids(run.parts)
    return _changed(
        run.parts,
        data,
        replace=True,
        readmit=readmit,
        new_labels=new_labels,
        most=max_deletions,
        dry_run=dry_run,
        train=train,
        progress=progress or silent,
    )


@dataclass(kw_only=True)
class _Change:
    """The differences between data and a run."""

    split: Split
    whole: bool
    """The data is a whole table: what is not in it is gone."""
    replace: bool
    """Ids that the run holds are no problem."""
    readmit: bool
    """Names that were deleted are no problem."""
    later_labels: Sequence[str]
    """Labels behind those of init: the run's, and those that come with the data."""
    back: dict[bytes, int] = field(default_factory=dict)
    """Deleted tokens that come back, and the generations that deleted them."""
    readmitted: int = 0
    """Records that come back, or whose subject does."""
    present: dict[bytes, tuple[str, Place]] = field(default_factory=dict)
    """Records of the data that the run holds, by token, with the segment; empty for a whole table."""
    taken: dict[Place, list[int]] = field(default_factory=dict)
    """Rows that come in, by slice; of a slice that is not here, all."""
    lost: dict[str, Place] = field(default_factory=dict)
    """Records that the run loses, with the segment: those that are `replaced`, and of a whole table those that are not
    in it, `expired` if they are too old to stay, else `gone`."""
    replaced: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    too_old: int = 0
    """Rows of the data that are too old to come in, or to stay."""
    unchanged: int = 0

    def rows(self, place: Place) -> pa.Table:
        """The rows of a slice that come in."""
        from s3t.store.tables import rows_at

        rows = self.split[place]
        return rows_at(rows, self.taken[place]) if place in self.taken else rows

    @property
    def records(self) -> int:
        """Number of rows that come in."""
        return sum(len(self.taken.get(place, range(count))) for place, count in self.split.counts.items())


def _check_ids(parts: Parts) -> None:
    if parts.recipe.columns.id is None:
        raise RecipeError("the recipe", "names no column of ids, by which records could be compared (columns.id)")


def _changed(
    parts: Parts,
    data: Data,
    *,
    replace: bool,
    readmit: bool,
    new_labels: Sequence[str],
    most: float | None = None,
    dry_run: bool = False,
    train: bool,
    wait: bool = True,
    progress: Progress,
) -> Added:
    """The steps of `add` and `sync`. With `most`, the greatest share to delete, the data is a whole table."""
    parts.check_changeable()
    parts.check_trainable()
    with (
        after_refusal(NOTHING_CHANGED),
        storage_errors("keeping records in a temporary file"),
        _in_memory(parts),
        Spill(parts.layout.tmp) as records,
        Spill(parts.layout.tmp) as names,
    ):
        from s3t.records.splitting import Split  # here: it imports pyarrow, which a short command should not wait for

        partition = parts.recipe.partition
        split = Split(records, secret=parts.secret, shards=partition.shards, slices=partition.slices)
        labels = _later_labels(parts, now := parts.latest.snapshot(), new_labels)
        change = _Change(split=split, whole=most is not None, replace=replace, readmit=readmit, later_labels=labels)
        _check(parts, data, change)
        _compare(parts, change)
        if most is not None:
            what = f"{counted(len(change.gone), 'record')} would go, and {len(change.replaced):,} be replaced"
            going = len(change.gone) + len(change.replaced)
            check_share(parts, most, going, what, "See whether the table is whole")
            what = f"{counted(len(change.expired), 'record')} would expire"
            check_expiry(parts, max(most, MAX_EXPIRED), len(change.expired), what, dry_run=dry_run)
        request = Request.unasked(parts.secret, change.lost)
        going_names = change.lost.keys()
        done = Added(
            addition=None,
            records=change.records,
            replaced=len(change.replaced),
            unchanged=change.unchanged,
            expired=len(change.expired),
            too_old=change.too_old,
            readmitted=change.readmitted,
            new_labels=tuple(labels[len(now.new_labels) :]) if change.records else (),
            to_learn=inventory_now(parts).to_learn(),
            due=False,
            notices=_noticed(parts.recipe, change) if change.records else (),
            dry_run=dry_run,
        )
        if dry_run:
            planned = parts.deleter.delete(request, dry_run=True)
            deletion = deletion_of(parts, planned, dry_run=True) if going_names else None
            to_learn = planned.after.to_learn() + change.records
            return done.model_copy(update={"deletion": deletion, "to_learn": to_learn})
        if not change.records and not going_names:
            return done
        number, in_files, accepted = _take_in(parts, change, request, WaitingRecords(names))
    with after_refusal(OUT_OF_USE if number is None else EXCHANGED if going_names else TAKEN_IN):
        outcome = parts.deleter.finished(request, in_files, accepted, until_erased=wait)
        if not wait and outcome.entries:
            parts.upkeep.erase_soon(outcome.after.generation)
            parts.presence.start()
        inventory, trained = inventory_now(parts), parts.latest.snapshot().trained
        due = number is not None and inventory.learned == number and trained and bool(inventory.missing())
        deletion = deletion_of(parts, outcome, dry_run=False) if going_names else None
        told = {"addition": number, "deletion": deletion, "to_learn": inventory.to_learn(), "due": due}
        done = done.model_copy(update=told)
    if not due:
        if deletion is not None and train and wait:
            done = done.model_copy(update={"deletion": repaired(parts, deletion, progress)})
        return done
    if not train:
        return done
    try:
        training = train_missing(parts, progress, engine=engine_of(parts))
    except S3TError as failed:
        return done.model_copy(update={"training_failed": str(failed)})
    if deletion is not None:
        deletion = deletion.model_copy(update={"repair": training, "warnings": training.outage})
    to_learn = inventory_now(parts).to_learn()
    return done.model_copy(update={"due": False, "training": training, "deletion": deletion, "to_learn": to_learn})


@contextmanager
def _in_memory(parts: Parts) -> Iterator[None]:
    """While within, any record may be in memory, or in a temporary file: what is deleted meanwhile is not erased."""
    with ExitStack() as held:
        while True:
            now = parts.latest.snapshot()  # refuses an older ledger
            with suppress(Overtaken):  # at its very beginning
                held.enter_context(parts.presence.working(now, Uses(generation=now.generation), leaving=Leaving.NEVER))
                break
        yield


def _check(parts: Parts, data: Data, change: _Change) -> None:
    """Check the records, and divide them into slices."""
    from s3t.records.ingest import Checks  # here: it imports pyarrow, which a short command should not wait for

    recipe, labels, count = parts.recipe, (*parts.description.labels, *change.later_labels), 0
    retention = recipe.retention if change.whole else None
    problems: Problems | None = None
    grouped: list[tuple[int, bytes, Sequence[int]]] = []
    for records in Checks(recipe, fixed=labels, old=change.whole).windows(data):
        numbers: Sequence[int] = range(count, count := count + records.rows.num_rows)
        if retention is not None:
            records, numbers = _since(records, given := numbers, retention.oldest())
            change.too_old += len(given) - len(numbers)
        owners, problems = _check_names(parts, records, change, numbers), records.problems
        for number, owner, allowed in zip(numbers, owners, records.among or (), strict=False):
            if owner is not None and not change.whole:  # a whole table has all records of its subjects
                grouped.append((number, owner, allowed))
        change.split.add(records.rows, records.among)
    if problems is not None and grouped:
        with parts.ledger.reading() as transaction:
            slices = transaction.slices_of({owner for _, owner, _ in grouped}, but=change.present)
        for number, owner, among in grouped:
            if not slices.get(owner, set()) <= {*among}:
                problems.add(_MOVED, number)
        problems.refuse()


def _later_labels(parts: Parts, now: Snapshot, more: Sequence[str]) -> list[str]:
    """The labels behind those of init: the run's, and then those of `more` that it does not have, if it takes them."""
    recipe, known = parts.recipe, parts.labels_at(now)
    if isinstance(more, str) or not all(isinstance(label, str) for label in more):
        raise InputError("the new labels", "give a list of texts")
    given = [label for label in dict.fromkeys(map(str, more)) if label not in known]
    later = [*known[len(parts.description.labels) :], *given]
    if not given:
        return later
    if not recipe.takes_new_labels:
        with parts.ledger.reading() as transaction:
            seconds = transaction.history.training_seconds()
        again = f", which took {duration(seconds)} here" if seconds else ""
        what = f"{recipe.task} by method {recipe.method} has a head for the labels of init alone"
        raise InputError("the new labels", f"{what}; make a new run with more, and train that{again}")
    names, problems = recipe.label_names or {}, []
    like = {label for group in alike([*known, *names, *given]) for label in group} | names.keys()
    for number, label in enumerate(given, start=1):
        if not label.isprintable() or name_of(label) != label:
            problems.append(f"number {number} is blank, or holds characters that are not printed; give another name")
        elif label in like:
            problems.append(f"number {number} looks like another label, or stands for one; use that, or another name")
    if problems:
        raise InputError("the new labels", problems)
    return later


def _noticed(recipe: Recipe, change: _Change) -> tuple[str, ...]:
    """Notices of odd records among those that come in."""
    from s3t.models.source import model_folder  # here: they import torch
    from s3t.run.notices import Notices

    notices = Notices(recipe, model=model_folder(recipe.base_model, revision=recipe.revision))
    for place in change.split:
        notices.add(change.rows(place))
    notices.check()
    return tuple(notices.of_records())


def _since(records: Records, numbers: Sequence[int], oldest: str) -> tuple[Records, Sequence[int]]:
    """The records that are not too old to stay, with their numbers: those of a table that are count as gone."""
    from s3t.store.tables import rows_at

    kept = [row for row, date in enumerate(Cells(records.rows["date"])) if date >= oldest]
    among = None if records.among is None else [records.among[row] for row in kept]
    return records._replace(rows=rows_at(records.rows, kept), among=among), [numbers[row] for row in kept]


def _check_names(parts: Parts, records: Records, change: _Change, numbers: Sequence[int]) -> list[bytes | None]:
    """Note problems of a window, whose rows have these numbers in the data: names that the run holds, or has deleted;
    records that are public. Returns the tokens of the subjects."""
    from s3t.records.public import shared

    secret, rows = parts.secret, records.rows
    names = list(Cells(rows["record"]))
    tokens = [secret.token("ledger", "record", name) for name in names]
    owners = [name and secret.token("ledger", "subject", name) for name in Cells(rows["subject"])]
    given = {owner for owner in owners if owner}
    with parts.ledger.reading() as transaction:
        present = {} if change.whole else transaction.places_of(tokens)
        gone = transaction.gone(tokens, given)
    if change.readmit:
        change.back |= gone
        change.readmitted += sum(not gone.keys().isdisjoint(names) for names in zip(tokens, owners, strict=True))
        gone = {}
    if change.replace:
        named = zip(tokens, names, strict=True)
        change.present |= {token: (name, present[token]) for token, name in named if token in present}
    same = _PRESENT if parts.recipe.columns.id is not None else _SAME
    for number, token, owner in zip(numbers, tokens, owners, strict=True):
        if token in present and not change.replace:
            records.problems.add(same, number)
        if token in gone:
            records.problems.add(f"the record {_GONE}", number)
        if owner in gone:
            records.problems.add(f"its subject {_GONE}", number)
    if parts.public is not None:
        public = parts.public.rows
        for number in shared(rows, [public], columns=public.column_names):
            records.problems.add(_PUBLIC, numbers[number])
    return owners


def _compare(parts: Parts, change: _Change) -> None:
    """Find which records of the data the run holds already, the same or changed, and, of a whole table, which it holds
    that are not in the data."""
    from s3t.store.tables import rows_at

    whole = change.whole
    segments: dict[Place, set[Place]] = {place: set() for place in change.split} if whole else {}
    present = parts.ledger.snapshot().slices if whole else {place for _, place in change.present.values()}
    for place in present:
        segments.setdefault(place._replace(segment=0), set()).add(place)
    oldest = parts.recipe.retention.oldest() if whole and parts.recipe.retention is not None else None
    lost, coming, old = dict(change.present.values()), set[str](), set[str]()
    for place, read in sorted(segments.items()):
        (stored, lie), given = _stored(parts, read), change.split[place]
        at = {name: number for number, name in enumerate(Cells(stored["record"]))}
        names = list(Cells(given["record"]))
        both = [number for number, name in enumerate(names) if name in at]
        alike = _alike(rows_at(given, both), rows_at(stored, [at[names[number]] for number in both]))
        same = set(itertools.compress(both, alike))
        change.taken[place] = [number for number in range(len(names)) if number not in same]
        change.unchanged += len(same)
        coming.update(names[number] for number in change.taken[place])
        if whole:
            lost |= zip(at, lie, strict=True)
        if oldest is not None:
            old.update(itertools.compress(at, (date < oldest for date in Cells(stored["date"]))))
        for number in same:
            lost.pop(names[number], None)
    change.lost = lost
    change.replaced = lost.keys() & coming if whole else set(lost)
    change.gone = lost.keys() - change.replaced - old
    change.expired = lost.keys() - change.replaced - change.gone


def _stored(parts: Parts, segments: Collection[Place]) -> tuple[pa.Table, list[Place]]:
    """The present records of some segments of a slice, and in which of them each lies."""
    import pyarrow as pa

    from s3t.store.slices import without_records

    while True:
        with parts.ledger.reading() as transaction:
            states, going = transaction.snapshot().slices, transaction.to_erase().records
        # Of those without a record one is read, for the columns.
        full = [place for place in sorted(segments) if states[place].records] or [min(segments)]
        try:
            tables = [
                without_records(parts.slices.read(place, states[place].digest), going.get(place, ()), parts.secret)
                for place in full
            ]
        except IntegrityError:  # unless another process has superseded and removed it
            now = parts.ledger.snapshot().slices
            if all(now[place].digest == states[place].digest for place in full):
                raise
            continue
        lie = [place for place, table in zip(full, tables, strict=True) for _ in range(table.num_rows)]
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks(), lie


def _alike(rows: pa.Table, others: pa.Table) -> Iterator[bool]:
    """For each row, whether the other table's has the same content."""
    names = sorted(rows.column_names)
    ours, theirs = rows.select(names), others.select(names).cast(rows.select(names).schema)
    for start in range(0, rows.num_rows, _COMPARED_ROWS):
        some, other = ours.slice(start, _COMPARED_ROWS), theirs.slice(start, _COMPARED_ROWS)
        if some.equals(other):
            yield from itertools.repeat(True, some.num_rows)
        else:
            yield from map(operator.eq, contents(some, names), contents(other, names))


def _take_in(
    parts: Parts, change: _Change, request: Request, waiting: WaitingRecords
) -> tuple[int | None, FileMatches, Sequence[Accepted]]:
    """Put a segment of every slice into the store, then all of them into the ledger at once, and delete what goes; the
    number of the addition, None if nothing comes, and what is left to be done of the deletion."""
    if not change.records:
        return None, *parts.deleter.exchange(request, None)
    try:
        with hold(parts.lock):
            now = parts.ledger.snapshot()
            change.later_labels = _later_labels(parts, now, change.later_labels)  # another may have added some
            number = now.added + 1
            states = {place._replace(segment=number): _state_of(change.rows(place), parts) for place in change.split}
            return number, *_put(parts, change, request, waiting, states)
    except BaseException:
        with suppress(S3TError):  # what was put is condemned; if this is refused, whatever opens the run goes on
            parts.upkeep.erase_due()
        raise


def _state_of(rows: pa.Table, parts: Parts) -> SliceState:
    return SliceState(records=rows.num_rows, digest=slice_digest(rows, parts.secret), pending=False)


def _put(
    parts: Parts, change: _Change, request: Request, waiting: WaitingRecords, states: Mapping[Place, SliceState]
) -> tuple[FileMatches, Sequence[Accepted]]:
    versions = [(place, state.digest) for place, state in states.items()]
    with parts.ledger.writing() as transaction:  # a killed process leaves nothing that is never taken in
        transaction.rows.condemn(versions=versions)
    try:
        for place in states:
            rows = change.rows(place._replace(segment=0))
            parts.slices.put(place, rows)
            copies = iter(copies_in_order(rows))
            while window := dict(itertools.islice(copies, WINDOW_ROWS)):
                waiting.add(place, record_rows(place, window, parts.secret))
        every = parts.recipe.additions.learn_every
        return parts.deleter.exchange(
            request,
            Incoming(
                slices=states,
                labels=change.later_labels,
                records=waiting,
                back=change.back,
                readmitted=change.readmitted,
                learn_every=every,
            ),
        )
    except BaseException:
        # Current ones are left out. Whoever took the lock may have erased some.
        with suppress(S3TError), parts.ledger.writing() as transaction:
            transaction.rows.condemn(versions=versions)
        raise
