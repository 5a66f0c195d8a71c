"""Records that come after init: an addition gives every slice one more segment, in which its records lie."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

from s3t.aftermath import NOTHING_CHANGED, TAKEN_IN, after_refusal
from s3t.errors import DataError, S3TError
from s3t.events import Progress, silent
from s3t.ledger import SliceState
from s3t.ledger.filling import WaitingRecords, record_rows
from s3t.ledger.locks import hold
from s3t.results.changes import Added
from s3t.run.reporting import inventory_now
from s3t.run.training import train_missing
from s3t.store.disk import storage_errors
from s3t.store.rows import WINDOW_ROWS, Cells
from s3t.store.slices import copies_in_order, slice_digest
from s3t.store.spill import Spill

if TYPE_CHECKING:
    from s3t.records.ingest import Records
    from s3t.records.reading import Data
    from s3t.records.splitting import Split
    from s3t.run.parts import Parts
    from s3t.run.run import Run

_PRESENT = (
    "its id is in the run already; drop the row, or, if it has changed, delete the old one and give it another id"
)
_SAME = "the run holds a record of the same content, and there are no ids; drop the row"
_GONE = "was deleted from the run, so it is not taken in again; drop the row"
_MOVED = "the other records of its subject are in another group; a subject's records have one"
_PUBLIC = "is a public record of prediction.validation, so it could not be deleted; drop the row"
_CHANGED = "meanwhile another process changed what they were checked by; run the same command again"


def add(run: Run, data: Data, *, train: bool = True, progress: Progress | None = None) -> Added:
    """Take more records in, durably, each in the slice that the run's secret names: all, or none. They may be deleted
    at once. They are learned by `train`, or now, if the recipe's `additions.learn_every` says so: the result has the
    training, or its error, which takes nothing of the addition back.

    Args:
        data: as for `create`, with the same columns. Labels are those of the run.
        train: False: learn nothing now; `due` says if that is to be done.

    Raises:
        InputError: with all problems of the data; ids that the run holds, or names that were deleted from it.
        KeyDestroyedError: the run's secret was destroyed.
    """
    parts = run.parts
    parts.check_changeable()
    parts.check_trainable()
    with after_refusal(NOTHING_CHANGED):
        parts.latest.snapshot()  # refuses an older ledger
    with (
        after_refusal(NOTHING_CHANGED),
        storage_errors("keeping records in a temporary file"),
        Spill(parts.layout.tmp) as records,
        Spill(parts.layout.tmp) as names,
    ):
        split, notices = _checked(parts, data, records)
        try:
            number = _take_in(parts, split, WaitingRecords(names))
        except BaseException:
            with suppress(S3TError):  # what was put is condemned; if this is refused, whatever opens the run goes on
                parts.upkeep.erase_due()
            raise
    with after_refusal(TAKEN_IN):
        inventory, trained = inventory_now(parts), parts.latest.snapshot().trained
        done = Added(
            addition=number,
            records=sum(split.counts.values()),
            to_learn=inventory.to_learn(),
            due=inventory.learned == number and trained and bool(inventory.missing()),
            notices=notices,
        )
    if not (done.due and train):
        return done
    try:
        training = train_missing(parts, progress or silent)
    except S3TError as failed:
        return done.model_copy(update={"training_failed": str(failed)})
    to_learn = inventory_now(parts).to_learn()
    return done.model_copy(update={"due": False, "training": training, "to_learn": to_learn})


def _checked(parts: Parts, data: Data, spill: Spill) -> tuple[Split, tuple[str, ...]]:
    """The records by slices, and notices of odd ones."""
    # Here: they import torch or pyarrow, which a short command should not wait for.
    from s3t.models.source import model_folder
    from s3t.records.ingest import Checks
    from s3t.records.splitting import Split
    from s3t.run.notices import Notices

    recipe, partition, count = parts.recipe, parts.recipe.partition, 0
    split = Split(spill, secret=parts.secret, shards=partition.shards, slices=partition.slices)
    for records in Checks(recipe, fixed=parts.description.labels).windows(data):
        _check_names(parts, records, first=count)
        split.add(records.rows, records.among)
        count += records.rows.num_rows
    notices = Notices(recipe, model=model_folder(recipe.base_model, revision=recipe.revision))
    for rows in split.values():
        notices.add(rows)
    notices.check()
    return split, tuple(notices.of_records())


def _check_names(parts: Parts, records: Records, *, first: int) -> None:
    """Note problems of a window, whose first row has this number in the data: names that the run holds, or has
    deleted; records that are public."""
    from s3t.records.public import shared

    secret, rows = parts.secret, records.rows
    tokens = [secret.token("ledger", "record", name) for name in Cells(rows["record"])]
    owners = [name and secret.token("ledger", "subject", name) for name in Cells(rows["subject"])]
    given = [owner for owner in owners if owner]
    with parts.ledger.reading() as transaction:
        present, gone = transaction.known(tokens, given)
        slices = {} if records.among is None else transaction.slices_of(given)
    same = _PRESENT if parts.recipe.columns.id is not None else _SAME
    for number, (token, owner) in enumerate(zip(tokens, owners, strict=True), first):
        if token in present:
            records.problems.add(same, number)
        if token in gone:
            records.problems.add(f"the record {_GONE}", number)
        if owner in gone:
            records.problems.add(f"its subject {_GONE}", number)
    for number, (owner, among) in enumerate(zip(owners, records.among or (), strict=False), first):
        if not slices.get(owner, set()) <= {*among}:
            records.problems.add(_MOVED, number)
    if parts.public is not None:
        public = parts.public.rows
        for number in shared(rows, [public], columns=public.column_names):
            records.problems.add(_PUBLIC, first + number)


def _take_in(parts: Parts, split: Split, waiting: WaitingRecords) -> int:
    """Put a segment of every slice into the store, then all of them into the ledger at once; its number."""
    secret = parts.secret
    with hold(parts.lock):
        number = parts.ledger.snapshot().added + 1
        states = {
            place._replace(segment=number): SliceState(
                records=rows.num_rows, digest=slice_digest(rows, secret), pending=False
            )
            for place, rows in split.items()
        }
        versions = [(place, state.digest) for place, state in states.items()]
        with parts.ledger.writing() as transaction:  # a killed process leaves nothing that is never taken in
            transaction.rows.condemn(versions=versions)
        try:
            for place, rows in zip(states, split.values(), strict=True):
                parts.slices.put(place, rows)
                copies = iter(copies_in_order(rows))
                while window := dict(itertools.islice(copies, WINDOW_ROWS)):
                    waiting.add(place, record_rows(place, window, secret))
            with parts.ledger.writing() as transaction:
                if not transaction.add(states, waiting):
                    raise DataError("the data", _CHANGED)
                every = parts.recipe.additions.learn_every
                if every is not None and number - transaction.snapshot().learned >= every:
                    transaction.learn()
        except BaseException:
            with (
                suppress(S3TError),
                parts.ledger.writing() as transaction,
            ):  # whoever took the lock may have erased some
                transaction.rows.condemn(versions=versions)
            raise
    return number
