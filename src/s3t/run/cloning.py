"""A run of its own identity from another: the same slices, secret and artifacts under a new id.

It has its own memory of deletions, its own ledger and its own lock. From then on a record deleted from the one must be
deleted from the other. What was deleted before is deleted in both: erasures are finished before files are copied. A
copy that was made by other means first applies the deletions in the run's memory.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from s3t.aftermath import NO_RUN_MADE, NOTHING_CHANGED, after_refusal
from s3t.deletion.unfinished import new_folder, remove_run, remove_unfinished
from s3t.deletion.witness import Witness
from s3t.errors import InputError, StorageError
from s3t.ledger import Clone
from s3t.ledger.engines import address_of
from s3t.ledger.locks import hold
from s3t.run.creation import check_free, check_store
from s3t.run.parts import Parts
from s3t.store.artifacts import blobs_of
from s3t.store.blobs import Blobs, open_blobs
from s3t.store.disk import (
    OpenedFolder,
    append_durably,
    make_folder,
    storage_errors,
    sync_folder,
    write_durably,
)
from s3t.store.folder import (
    Home,
    Layout,
    lasting_identity,
    moved_error,
    read_description,
    write_description,
    write_home,
)
from s3t.store.slices import version_name


def clone(parts: Parts, to: Path, *, store: str | None = None) -> None:
    """Make a run of its own identity from an open one, beside which it serves at once. Its slices and artifacts go to
    the bucket `store`, or where the run's are.

    A run whose secret was destroyed is refused: what it holds cannot be told any more.
    """
    check_free(to)
    if store is not None:
        store = check_store(store, "the command")
    parts.check_changeable()
    parts.check_trainable()
    made = Layout(new_folder(Path(os.path.realpath(to))))
    with after_refusal(NO_RUN_MADE), hold(parts.lock):  # no file changes meanwhile, though deletions are accepted
        parts.eraser.finish(everything=True)
        with storage_errors(f"writing the run {to}"):
            make_folder(to.absolute().parent, mode=0o777)  # the user's, not the run's
            remove_unfinished(to)
            note = Clone(path=made.root, host=platform.node(), beside=lasting_identity(made.root.parent))
            with parts.ledger.writing() as transaction:  # first: the run's deletions have to reach what it copies
                transaction.rows.add(note)
            try:
                made.root.mkdir(mode=0o700)
                sync_folder(to.parent)
                _fill(parts, made, to, note, store=store)
                sync_folder(to.parent)
            finally:
                with suppress(StorageError, OSError):  # else the next erasure removes it
                    remove_run(made.root)
                    with parts.ledger.writing() as transaction:
                        transaction.rows.discard([note])


def adopt(parts: Parts) -> None:
    """Give a copy of a run's folder an identity of its own. It is reconciled afterwards, under that."""
    layout = parts.layout
    if moved_error(layout, run=parts.description.run) is None:
        raise InputError("the folder", f"{layout.root} is the run itself, not a copy; name a folder to copy it to")
    if parts.description.store is not None:
        raise InputError("the folder", f"its slices are in {parts.description.store}, not copied; clone the run itself")
    parts.check_trainable()
    with after_refusal(NOTHING_CHANGED), hold(parts.lock), storage_errors("making the copy a run of its own"):
        description = read_description(layout).model_copy(update={"run": secrets.token_hex(8)})
        mine = Witness.of_run(description.run)
        if parts.witness.path.exists():  # first: what the run has deleted since is deleted from the copy, too
            make_folder(mine.path.parent)
            append_durably(mine.path, parts.witness.path.read_bytes())
        address, copied = address_of(layout, description), None
        if isinstance(address, Path):  # the copy's own file
            with parts.ledger.writing() as transaction:
                transaction.forget_run()
        else:  # the run's own schema, which goes on without change
            copied = parts.ledger.clone(address)
        try:
            write_description(layout, description, parts.secret)  # from here on it is another run
        except BaseException:
            if copied is not None:
                copied.drop()
            raise
        finally:
            if copied is not None:
                copied.close()
        write_home(layout, Home.of(layout.root))


def _copy(names: Iterable[str], source: Blobs, to: Blobs) -> None:
    """Copy blobs; one that is missing is missing there, too."""
    for name in sorted(names):
        try:
            with source.open(name) as file:
                content = file.read()
        except FileNotFoundError:
            continue
        to.put(name, content)


def _fill(parts: Parts, made: Layout, to: Path, note: Clone, *, store: str | None) -> None:
    """Write a run's folder beside its place, and move it there."""
    description = read_description(parts.layout).model_copy(update={"run": secrets.token_hex(8)})
    if store is not None:
        description = description.model_copy(update={"store": store})
    write_description(made, description, parts.secret)  # first: what a killed process leaves is taken away by it
    address = address_of(made, description)
    ledger = parts.ledger.clone(address)
    try:
        with ledger.writing() as transaction:
            transaction.rows.discard([note])  # it is this run itself
        source = parts.layout
        for path in filter(Path.is_file, (source.recipe, source.secret, source.public)):
            write_durably(made.root / path.relative_to(source.root), partial(shutil.copyfile, path), tmp=made.tmp)
        snapshot, within = ledger.snapshot(), OpenedFolder.of(made.root)
        slices = (version_name(place, each.digest) for place, each in snapshot.slices.items())
        artifacts = (name for stage, key in snapshot.stages.items() for name in blobs_of(stage.shard, key))
        _copy(slices, parts.slices.blobs, open_blobs(made, description, "slices", within=within))
        _copy(artifacts, parts.store.blobs, open_blobs(made, description, "artifacts", within=within))
        make_folder(made.artifacts)
        write_home(made, Home.of(made.root, named=to))
        Witness.of_run(description.run).catch_up(ledger)
        made.root.rename(to)
    except BaseException:
        with suppress(OSError):
            Witness.of_run(description.run).path.unlink(missing_ok=True)
        ledger.drop()
        raise
    finally:
        ledger.close()
