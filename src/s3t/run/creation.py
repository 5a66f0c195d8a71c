"""Making a run: everything is checked first, written beside the final place, and moved there in one step."""

from __future__ import annotations

import itertools
import math
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from s3t.aftermath import NO_RUN_MADE, RUN_MADE, after_refusal
from s3t.core import Order, Place, Secret, Stage
from s3t.deletion.unfinished import new_folder, remove_run, remove_unfinished
from s3t.engine import cores_worth
from s3t.errors import InputError, RecipeError, RunFolderError, StorageError
from s3t.events import Progress, WorkWarning, silent
from s3t.extras import how_to_install
from s3t.files import is_folder, reason_of, too_long
from s3t.ledger import Ledger, SliceState
from s3t.ledger.engines import VARIABLE, address_of, without_password
from s3t.ledger.filling import WaitingRecords, record_rows
from s3t.orders import KNOW_NO_PRIOR, orders_of_shards
from s3t.recipe import Recipe, RepairAsNeeded, recipe_from
from s3t.recipe.schema import store_url
from s3t.records.ingest import ingest_into
from s3t.records.public import public_digest, public_records, write_public
from s3t.records.reading import Data
from s3t.records.splitting import Split
from s3t.run.notices import Notices, copies_elsewhere
from s3t.run.parts import slices_of
from s3t.run.reporting import fit, short_stages, sizes_of_stages
from s3t.store.disk import OpenedFolder, make_folder, storage_errors, sync_folder
from s3t.store.folder import Description, Home, Layout, write_home, write_layout
from s3t.store.rows import WINDOW_ROWS
from s3t.store.secret import secret_of_new_run
from s3t.store.slices import copies_in_order
from s3t.store.spill import Spill
from s3t.version import __version__

_TIMED_RECORDS, _TIMED_BYTES = 8, 2 * 10**9
"""Records that a step is timed with; and size of a model that is not timed, for that would take minutes."""
INFERRED_LABELS = (
    "labels: infer: the label set was read from the records; had a record that was the only one of its label never "
    "been there, the head would have another shape. Declare the labels to close this"
)


def create_run(
    path: Path,
    given: Recipe | Mapping[str, Any] | str | Path,
    data: Data,
    *,
    public_data: bool = False,
    progress: Progress | None = None,
) -> tuple[str, ...]:
    """Check recipe and data, partition the records, draw the orders, write the run folder.

    Returns notices of odd records, which are stored nowhere. A refusal before the final rename leaves no folder.
    """
    recipe, recipe_name = recipe_from(given), str(given) if isinstance(given, str | Path) else "the recipe"
    check_free(path)
    if is_folder(Path(recipe.base_model)):  # found again from whatever folder the run is opened
        recipe = recipe.model_copy(update={"base_model": str(Path(recipe.base_model).resolve())})
    with Spill(path.parent) as records, Spill(path.parent) as names:
        checked = _checked(recipe, data, recipe_name, public_data=public_data, spill=records)
        try:
            url = checked.recipe.ledger or os.environ.get(VARIABLE) or None
            ledger = None if url is None else without_password(url)
        except ValueError as error:
            raise InputError(VARIABLE, str(error)) from None
        description = Description(
            version=__version__,
            run=secrets.token_hex(8),
            ledger=ledger,
            store=recipe.store,
            labels=checked.labels,
            orders=_orders(checked.recipe, progress or silent),
            base_digest=checked.base_digest,
            validation=None if checked.public is None else public_digest(checked.public),
            secret_check=checked.secret.check(),
            gaps=(INFERRED_LABELS,) if recipe.labels == "infer" else (),
            warnings=tuple(_unused(recipe)),
        )
        growth = checked.recipe.growth(description.orders)
        chains = [growth.chains(shard, ()) for shard in range(checked.recipe.partition.shards)]
        counts, labels = checked.records.counts, len(checked.labels)
        sizes = sizes_of_stages(checked.recipe, chains, counts)
        seconds = _training_seconds(checked, sizes) if short_stages(checked.recipe, sizes, labels=labels) else 0.0
        for warning in fit(checked.recipe, sizes, counts, labels=labels, seconds=seconds):
            (progress or silent)(WorkWarning(what=warning))
        return _made(path, checked, description, WaitingRecords(names), data)


def _made(
    path: Path, checked: _Checked, description: Description, records: WaitingRecords, data: Data
) -> tuple[str, ...]:
    """Write the run beside its final place, and move it there; the notices."""
    notices = Notices(checked.recipe, model=_folder(checked.recipe))
    part = new_folder(path)
    with after_refusal(NO_RUN_MADE), storage_errors(f"writing the run {path}"):
        make_folder(path.parent, mode=0o777)  # the user's, not the run's
        remove_unfinished(path)
        part.mkdir(mode=0o700)
        sync_folder(path.parent)  # a ledger in a database is found by this folder alone
        try:
            layout = Layout(part)
            address = address_of(layout, description)
            slices = _write(layout, checked, description, records, notices)
            ledger = Ledger.create(address, slices=slices, records=records, key=checked.secret.key("row"))
            try:
                write_home(layout, Home.of(part, named=path))
                part.rename(path)
            except BaseException:
                ledger.drop()
                raise
            finally:
                ledger.close()
        finally:
            with suppress(StorageError, OSError):  # else the next init, or a deletion in a run of that name, removes it
                remove_run(part)
    with after_refusal(RUN_MADE), storage_errors(f"confirming the name of the run {path}"):
        sync_folder(path.parent)
    return (*notices.sentences(), *copies_elsewhere(data))


def _orders(recipe: Recipe, progress: Progress) -> tuple[tuple[Order, ...], ...]:
    """Every shard's orders: from what is declared, never from how many records a slice has."""
    if isinstance(recipe.deletion.repair, RepairAsNeeded):  # chains follow from live stages
        return ((tuple(range(recipe.partition.slices)),),) * recipe.partition.shards
    sequences = recipe.sequences
    return orders_of_shards(sequences.selector, recipe.settings(), vary=sequences.vary_by_shard, progress=progress)


def check_free(path: Path) -> None:
    """Check that a run can be made there, before any work is done for it."""
    part = new_folder(path)
    try:
        problem = too_long(part)
        if problem is None and os.path.lexists(path):
            problem = "exists already; choose another folder, or remove it first"
    except ValueError as error:
        problem = f"cannot be made: {reason_of(error)}; choose another name"
    if problem is not None:
        raise RunFolderError(str(path), problem)


@dataclass(frozen=True, kw_only=True)
class _Checked:
    """Inputs of a new run, free of problems."""

    base_digest: str
    recipe: Recipe
    """With every `auto` resolved that decides bits."""
    secret: Secret
    records: Split
    labels: tuple[str, ...]
    public: pa.Table | None
    """Public records, if stages are tried on some."""


def _checked(recipe: Recipe, data: Data, recipe_name: str, *, public_data: bool, spill: Spill) -> _Checked:
    """Checked inputs of a new run; or the problems of recipe and data together."""
    public, split = None, None
    problems: list[InputError] = []
    try:
        secret = secret_of_new_run(recipe, recipe_name=recipe_name, public_data=public_data)
        split = Split(spill, secret=secret, shards=recipe.partition.shards, slices=recipe.partition.slices)
    except InputError as error:
        problems.append(error)
    try:
        if recipe.store is not None:
            check_store(recipe.store, recipe_name)
        digest, resolved_recipe = _check_model(recipe)
    except InputError as error:
        problems.append(RecipeError(recipe_name, error.problems))
    try:
        with after_refusal(NO_RUN_MADE), storage_errors("keeping records in a temporary file"):
            labels = ingest_into(split, data, recipe)
            if recipe.prediction.validation is not None:
                private = () if split is None else split.values()
                public = public_records(Path(recipe.prediction.validation), recipe, private)
    except InputError as error:
        problems.append(error)
    if len(problems) > 1:
        listed = [f"{error.where}: {problem}" for error in problems for problem in error.problems]
        raise InputError("the recipe and the data", listed)
    if problems or split is None:
        raise problems[0]
    return _Checked(
        base_digest=digest, recipe=resolved_recipe, secret=secret, records=split, labels=labels, public=public
    )


def check_store(url: str, where: str) -> str:
    """Try whether a bucket can hold a run; its URL as it is kept."""
    try:
        from s3t.store.buckets import try_out  # here: obstore is an extra

        url = store_url(url)
        try_out(url)
    except ImportError as error:
        raise InputError(where, f"store: needs a library ({error}); install it with: {how_to_install('s3')}") from error
    except ValueError as error:
        raise InputError(where, f"store: {error}") from error
    return url


def _check_model(recipe: Recipe) -> tuple[str, Recipe]:
    """The base model's digest, and the recipe with every `auto` resolved that decides bits."""
    # Here: they import torch and transformers, which opening a run does not need.
    from s3t.models.assembly import check_assembly
    from s3t.models.base import pooling_of
    from s3t.models.language import with_date
    from s3t.models.source import model_digest
    from s3t.training.numerics import resolved

    folder = _folder(recipe)
    abilities = check_assembly(folder, recipe := with_date(recipe, folder))
    training = resolved(recipe.training, abilities, cores=cores_worth())
    update: dict[str, Any] = {
        "training": training,
        "prediction": recipe.prediction.model_copy(update={"writing": abilities.writing}),
    }
    if recipe.task.pools:
        update["text"] = recipe.text.model_copy(update={"pooling": pooling_of(folder, recipe)})
    return model_digest(folder), recipe.model_copy(update=update)


def _training_seconds(checked: _Checked, sizes: Mapping[Stage, int]) -> float:
    """Seconds in which this machine trains stages of these sizes, about, from passes of a few records; 0 if it cannot
    make them, or not soon. Told, and stored nowhere."""
    from s3t.models.assembly import assemble
    from s3t.training.numerics import resolve_device
    from s3t.training.stage import seconds_a_record

    recipe, fullest = checked.recipe, max(checked.records.counts, key=checked.records.counts.__getitem__)
    if sum(path.stat().st_size for path in _folder(recipe).iterdir()) > _TIMED_BYTES:
        return 0.0
    with suppress(Exception):  # as of a device that another machine has, which will train
        model, encoder = assemble(_folder(recipe), recipe, labels=recipe.task.target.outputs(checked.labels))
        model.base.model.to(resolve_device(recipe.training.device))
        each = seconds_a_record(model, encoder, recipe, checked.records[fullest].slice(0, _TIMED_RECORDS))
        return recipe.training.epochs * math.fsum(size * each[stage.depth - 1] for stage, size in sizes.items())
    return 0.0


def _folder(recipe: Recipe) -> Path:
    from s3t.models.source import model_folder

    return model_folder(recipe.base_model, revision=recipe.revision)


def _write(
    layout: Layout, checked: _Checked, description: Description, records: WaitingRecords, notices: Notices
) -> dict[Place, SliceState]:
    """Write all of the run folder but the ledger, slice by slice; returns the slices that the ledger will hold."""
    secret = checked.secret
    write_layout(layout, checked.recipe, description, secret)
    if checked.public is not None:
        write_public(layout.public, checked.public, tmp=layout.tmp)
    make_folder(layout.artifacts)
    slices = slices_of(layout, description, secret, within=OpenedFolder.of(layout.root))
    states: dict[Place, SliceState] = {}
    for place, rows in checked.records.items():
        states[place] = SliceState(records=rows.num_rows, digest=slices.put(place, rows), pending=False)
        copies = iter(copies_in_order(rows))
        while window := dict(itertools.islice(copies, WINDOW_ROWS)):
            records.add(place, record_rows(place, window, secret))
        notices.add(rows)
    notices.check()
    return states


def _unused(recipe: Recipe) -> list[str]:
    selector = recipe.sequences.selector
    if selector in KNOW_NO_PRIOR and any(setting.prior is not None for setting in recipe.settings()):
        return [f"selector {selector} takes no notice of the declared prior; survival, bms and sorted-cyclic do"]
    return []
