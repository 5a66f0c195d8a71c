"""Audit: is everything that may serve what today's slices ask for, and does training it again give its bytes?

These are the oracles that a run can ask of itself (the counterfactual run is in the tests). Every byte is read again,
and no cache is trusted.

ledger  every row is as it was written, every index whole; it knows the records that the slices hold, and no others
slices  every slice file is the one that the ledger knows
keys    every live stage's key is what today's slices ask for; its bytes and its parent's are the manifests'
store   nothing lies in the store that no live stage names
replay  a stage trained again from today's slices gives the same bytes
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa

from s3t.core import Place, Secret, Stage, stage_key
from s3t.deletion.witness import Witness
from s3t.errors import IntegrityError
from s3t.events import Progress, WorkNote, telling
from s3t.ledger import SliceState, Snapshot
from s3t.ledger.damage import Contents, contents_of, structure_problems
from s3t.ledger.filling import record_rows
from s3t.ledger.locks import hold
from s3t.ledger.presence import Overtaken, Uses
from s3t.models.source import model_digest, model_folder
from s3t.results.changes import Audit
from s3t.run.answerer import watched
from s3t.run.parts import Parts
from s3t.run.reporting import outage_of
from s3t.run.training import training_steps
from s3t.store.artifacts import read_chain
from s3t.store.slices import copies_in_order
from s3t.wording import counted

Mismatch = dict[str, Any]


def audit(parts: Parts, *, replay: int, seed: int | None, progress: Progress) -> Audit:
    """Check every live stage, and train `replay` of them again."""
    parts.secret.reveal()  # without it, everything would look wrong
    parts.upkeep.erase_due()
    try:
        with parts.ledger.reading() as transaction:
            structure, contents = structure_problems(transaction.rows), contents_of(transaction.rows)
    except IntegrityError as error:
        return Audit(generation=0, checked=0, replayed=(), mismatches=({"problem": str(error)},))
    mismatches: list[Mismatch] = [{"problem": f"the ledger's database: {line}"} for line in structure]
    try:
        if parts.public is not None:
            _ = parts.public.rows  # read, to be checked
    except IntegrityError as error:
        mismatches.append({"problem": str(error)})
    if contents.wrong:  # then nothing can be compared with the ledger
        mismatches += [{"problem": problem} for problem in _table_problems(contents)]
        return Audit(generation=contents.generation, checked=0, replayed=(), mismatches=tuple(mismatches))
    base = model_folder(parts.recipe.base_model, revision=parts.recipe.revision)
    if model_digest(base) != parts.key_inputs.base_digest:
        mismatches.append({"problem": "the base model has changed since the run was made; put the old one back"})
    now, problems = _looked(parts)
    if problems:  # perhaps a deletion was at work, or a trainer: once more, while neither changes what is looked at
        with hold(parts.lock):  # nothing is erased meanwhile, though deletions are accepted
            parts.upkeep.erase_due()
            now, problems = _looked(parts)
    mismatches += problems
    stages = sample(now, replay, seed)
    steps = training_steps(parts.latest.inventory(now), stages, parts.recipe)
    with telling(progress, f"replaying {counted(len(stages), 'stage')}", steps):
        replayed = [stage for stage in stages if _replay(parts, stage, mismatches, progress)]
    return Audit(
        generation=now.generation,
        checked=len(now.stages),
        replayed=tuple(replayed),
        mismatches=tuple(mismatches),
        warnings=(
            *(() if now.stages else ("no stage is alive, so none was checked",)),
            *outage_of(parts, parts.latest.inventory(now)),
        ),
    )


def sample(snapshot: Snapshot, count: int, seed: int | None) -> list[Stage]:
    """Up to `count` live stages, drawn at random; unpredictable unless a seed is given."""
    chooser = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311
    return sorted(chooser.sample(sorted(snapshot.stages), min(count, len(snapshot.stages))))


def _looked(parts: Parts) -> tuple[Snapshot, list[Mismatch]]:
    """(Snapshot, mismatches of ledger, witness, slices and store)."""
    parts.ledger.snapshot(anew=True)  # an audit believes no note that nothing has changed
    # A deletion is in the ledger first: what was noted before the ledger is read is in it, and what is in it is noted
    # by the time that it is read again.
    earlier = Witness(parts.witness.path).tokens()
    with parts.ledger.reading() as transaction:
        now, contents = transaction.snapshot(), contents_of(transaction.rows)
    parts.witness.catch_up(parts.ledger)
    problems = [*_table_problems(contents)]
    if unknown := earlier.keys() - contents.deleted.keys():
        problems.append(f"the memory of deletions has {len(unknown)} names that the ledger does not know as deleted")
    noted = Witness(parts.witness.path).tokens()
    if lost := [token for token, generation in contents.deleted.items() if noted.get(token, -1) < generation]:
        problems.append(
            f"the memory of deletions lacks {len(lost)} names that the ledger knows as deleted; run "
            "`s3t reconcile RUN`, which notes them again"
        )
    mismatches = [{"problem": problem} for problem in problems] + check(parts, now, contents)
    with parts.ledger.reading() as transaction:
        unfinished = transaction.unfinished_artifacts()  # of which one may be replaced meanwhile
    lying, versions = parts.store.keys(), parts.slices.versions()  # first: what is put later is announced
    with parts.ledger.reading() as transaction:
        named = unfinished | now.artifacts | transaction.snapshot().artifacts | transaction.unfinished_artifacts()
        work, current = transaction.to_erase(received_by=0.0), _current(now) | _current(transaction.snapshot())
    mismatches += _stray_artifacts(lying, named=named | work.artifacts)
    mismatches += _stray_versions(versions, named=current | work.versions)
    return now, mismatches


def check(parts: Parts, snapshot: Snapshot, contents: Contents) -> list[Mismatch]:
    """Mismatches of slices, keys, bytes and chains."""
    mismatches: list[Mismatch] = []
    digests: dict[Place, str] = {}
    for place, state in sorted(snapshot.slices.items()):
        try:
            rows = parts.slices.read(place, state.digest)
        except IntegrityError as error:
            mismatches.append(_of_slice(place, str(error)))
            continue
        digests[place] = state.digest
        problems = _slice_problems(place, state, rows, contents, parts.secret)
        mismatches += [_of_slice(place, problem) for problem in problems]
    keys: dict[Stage, str] = {}
    for stage in sorted(snapshot.stages, key=lambda stage: len(stage.places)):  # parents first
        mismatches += [_of_stage(stage, problem) for problem in _stage_problems(parts, stage, snapshot, digests, keys)]
    return mismatches


def _slice_problems(
    place: Place, state: SliceState, rows: pa.Table, contents: Contents, secret: Secret
) -> Iterator[str]:
    """Differences between a slice's file and the ledger's records of that slice."""
    # Deleted records may wait in the current version (deletion.erase_within).
    if rows.num_rows <= state.records if state.pending else rows.num_rows != state.records:
        yield f"its file holds {rows.num_rows} records, the ledger counts {state.records}"
    in_file = {row.token: row for row in record_rows(place, dict(copies_in_order(rows)), secret)}
    present, erasing = contents.records.get(place, {}), contents.erasing.get(place, frozenset())
    if unknown := in_file.keys() - present.keys() - erasing:
        yield f"its file holds {len(unknown)} records that the ledger does not know; run `s3t reconcile RUN`"
    if dead := sum(contents.deleted.get(token, 0) > state.after for token in present):
        yield f"the ledger holds {dead} records in it that were deleted since; run `s3t reconcile RUN`"
    if absent := present.keys() - in_file.keys():
        yield f"the ledger knows {len(absent)} records that its file does not hold"
    both = present.keys() & in_file.keys()
    if other := [token for token in both if in_file[token] != present[token]]:
        yield f"the ledger has {len(other)} records with another subject or number of rows than its file"


def _stage_problems(
    parts: Parts, stage: Stage, snapshot: Snapshot, digests: Mapping[Place, str], keys: dict[Stage, str]
) -> Iterator[str]:
    """Check one stage; its recomputed key goes to `keys`, for its children."""
    if any(place not in digests for place in stage.places):
        return  # said already, of the slice
    if any(parent not in keys for parent in stage.parents):
        yield "its parent is not alive"
        return
    today, parents = [digests[place] for place in stage.places], [keys[parent] for parent in stage.parents]
    labels = snapshot.labels_of(stage)
    keys[stage] = stage_key(parts.key_inputs, stage, slice_digests=today, parents=parents, labels=labels)
    if keys[stage] != snapshot.stages[stage]:
        yield "its key is not the one that today's slices ask for"
        return
    try:
        if snapshot.live.artifacts[stage][1] != parts.store.manifest_digest(stage.shard, keys[stage]):
            yield "its manifest is not the one that was written with it"
        read_chain(parts.store, stage, keys=snapshot.stages, slice_digests=today)
    except (IntegrityError, KeyError) as error:
        yield str(error)


def _replay(parts: Parts, stage: Stage, mismatches: list[Mismatch], progress: Progress) -> bool:
    """Train a stage again; False if a deletion took it before that was done."""
    now = parts.upkeep.erase_due()
    if stage not in now.stages:
        return False
    progress(WorkNote(what=str(stage)))
    uses = Uses(stages={link: now.stages[link] for link in stage.chain}, slices=now.seen(stage))
    try:
        with parts.presence.answering(now, uses) as work:
            problem = _difference(parts, stage, now, watched(progress, work))
    except Overtaken:
        return False
    if problem is not None:
        mismatches.append(_of_stage(stage, f"replay: {problem}"))
    return True


def _difference(parts: Parts, stage: Stage, snapshot: Snapshot, progress: Progress) -> str | None:
    """Difference between a stage, trained again, and its stored artifact."""
    try:
        stored = parts.store.get(stage.shard, snapshot.stages[stage])
        key, content, manifest = parts.loaded.train(stage, snapshot, progress)
    except IntegrityError as error:
        return str(error)
    if key != stored.manifest.key:
        return "trained again, it has another key"
    if content != stored.content:
        then, today = stored.manifest.environment, manifest.environment
        changed = ", ".join(
            f"{name} {then.get(name)} -> {today.get(name)}"
            for name in sorted(then.keys() | today.keys())
            if then.get(name) != today.get(name)
        )
        return "trained again, it has other bytes" + (
            f"; the numeric environment differs: {changed}" if changed else ""
        )
    if manifest.validation != stored.manifest.validation:
        return "on the public records, it is not as good as its manifest says"
    return None


def _stray_versions(
    stored: Mapping[Place, Collection[str]], *, named: Collection[tuple[Place, str]]
) -> Iterator[Mismatch]:
    """Mismatches: stored versions of slices that the ledger does not name."""
    for place, digest in sorted({(place, each) for place, digests in stored.items() for each in digests} - set(named)):
        yield _of_slice(place, f"its version {digest} lies in the store, and is not current")


def _stray_artifacts(stored: Collection[tuple[int, str]], *, named: Collection[tuple[int, str]]) -> Iterator[Mismatch]:
    """Mismatches: stored artifacts that no live stage names."""
    for shard, key in sorted(set(stored) - set(named)):
        yield {"shard": shard, "key": key, "problem": "it lies in the store, and no live stage names it"}


def _table_problems(contents: Contents) -> Iterator[str]:
    for table, count in sorted(contents.wrong.items()):
        rows = "a row" if count == 1 else f"{count} rows"
        yield f"the ledger's table `{table}` has {rows} that changed outside of s3t; run `s3t reconcile RUN`"


def _current(snapshot: Snapshot) -> set[tuple[Place, str]]:
    """Every slice and the digest of its current version."""
    return {(place, state.digest) for place, state in snapshot.slices.items()}


def _of_stage(stage: Stage, problem: str) -> Mismatch:
    return {**stage.to_json(), "problem": problem}


def _of_slice(place: Place, problem: str) -> Mismatch:
    segment = {"segment": place.segment} if place.segment else {}
    return {"shard": place.shard, "slice": place.slice, **segment, "problem": problem}
