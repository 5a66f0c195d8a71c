"""Audit: is everything that may serve what today's slices ask for, and does training it again give its bytes?

These are the oracles that a run can ask of itself (the counterfactual run is in the tests).

ledger  every row is as it was written, every index whole; it knows the records that the slices hold, and no others
slices  every slice file is the one that the ledger knows
keys    every live stage's key is what today's slices ask for; its bytes and its parent's are the manifests'
store   nothing lies in the store that no live stage names
replay  a stage trained again from today's slices gives the same bytes
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from s3t.core import KeyInputs, Place, Secret, Stage, stage_key
from s3t.errors import IntegrityError
from s3t.events import Progress
from s3t.ledger import SliceState, Snapshot
from s3t.ledger.damage import Contents
from s3t.ledger.filling import record_rows
from s3t.store.artifacts import Artifacts, Manifest, read_chain
from s3t.store.slices import Slices, count_copies

Mismatch = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Auditor:
    """Checks one run. Reads every byte again and trusts no cache."""

    slices: Slices
    secret: Secret
    store: Artifacts
    inputs: KeyInputs
    base_digest: str
    """Digest of the base model's files as they are now."""
    train: Callable[[Stage, Snapshot, Progress], tuple[str, bytes, Manifest]]
    """Trains a stage; returns key, tensor file and manifest."""

    def check(self, snapshot: Snapshot, contents: Contents) -> list[Mismatch]:
        """Mismatches of base model, ledger, slices, keys, bytes and chains."""
        digests: dict[Place, str] = {}
        mismatches: list[Mismatch] = [{"problem": problem} for problem in table_problems(contents)]
        if self.base_digest != self.inputs.base_digest:
            mismatches.append({"problem": "the base model has changed since the run was made; put the old one back"})
        for place, state in sorted(snapshot.slices.items()):
            try:
                rows = self.slices.read(place, state.digest)
            except IntegrityError as error:
                mismatches.append(_of_slice(place, str(error)))
                continue
            digests[place] = state.digest
            mismatches += _check_slice(place, state, rows.num_rows)
            problems = record_problems(place, count_copies(rows), contents, self.secret)
            mismatches += [_of_slice(place, problem) for problem in problems]
        keys: dict[Stage, str] = {}
        for stage in sorted(snapshot.stages, key=lambda stage: stage.depth):
            mismatches += self._check_stage(stage, snapshot, digests, keys)
        return mismatches

    def sample(self, snapshot: Snapshot, count: int, seed: int | None) -> list[Stage]:
        """Up to `count` live stages, drawn at random; unpredictable unless a seed is given."""
        chooser = random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311
        stages = sorted(snapshot.stages)
        return sorted(chooser.sample(stages, min(count, len(stages))))

    def replay(self, stage: Stage, snapshot: Snapshot, progress: Progress) -> Iterable[Mismatch]:
        """Train a stage again; returns how it differs from the stored artifact."""
        try:
            stored = self.store.get(stage.shard, snapshot.stages[stage])
            key, content, manifest = self.train(stage, snapshot, progress)
        except IntegrityError as error:
            return [_of_stage(stage, f"replay: {error}")]
        if key != stored.manifest.key:
            return [_of_stage(stage, "replay: trained again, it has another key")]
        if content != stored.content:
            problem = "replay: trained again, it has other bytes"
            changed = _changed(stored.manifest.environment, manifest.environment)
            return [_of_stage(stage, f"{problem}; the numeric environment differs: {changed}" if changed else problem)]
        if manifest.validation != stored.manifest.validation:
            return [_of_stage(stage, "replay: on the public records, it is not as good as its manifest says")]
        return []

    def _check_stage(
        self, stage: Stage, snapshot: Snapshot, digests: dict[Place, str], keys: dict[Stage, str]
    ) -> Iterator[Mismatch]:
        """Check one stage; its recomputed key goes to `keys`, for its children."""
        places = [Place(stage.shard, index) for index in stage.prefix]
        if any(place not in digests for place in places):
            return  # said already, of the slice
        if stage.parent is not None and stage.parent not in keys:
            yield _of_stage(stage, "its parent is not alive")
            return
        today = [digests[place] for place in places]
        parent = None if stage.parent is None else keys[stage.parent]
        keys[stage] = stage_key(self.inputs, stage, slice_digests=today, parent=parent)
        if keys[stage] != snapshot.stages[stage]:
            yield _of_stage(stage, "its key is not the one that today's slices ask for")
            return
        try:
            manifest_hash = snapshot.manifests.get(stage)
            if manifest_hash != self.store.manifest_digest(stage.shard, keys[stage]):
                yield _of_stage(stage, "its manifest is not the one that was written with it")
            read_chain(self.store, stage, keys=snapshot.stages, slice_digests=today)
        except (IntegrityError, KeyError) as error:
            yield _of_stage(stage, str(error))


def stray_versions(
    stored: Mapping[Place, Collection[str]], *, named: Collection[tuple[Place, str]]
) -> Iterator[Mismatch]:
    """Mismatches: stored versions of slices that the ledger does not name."""
    for place, digest in sorted(
        {(place, digest) for place, digests in stored.items() for digest in digests} - set(named)
    ):
        yield _of_slice(place, f"its version {digest} lies in the store, and is not current")


def stray_artifacts(stored: Collection[tuple[int, str]], *, named: Collection[tuple[int, str]]) -> Iterator[Mismatch]:
    """Mismatches: stored artifacts that no live stage names."""
    for shard, key in sorted(set(stored) - set(named)):
        yield {"shard": shard, "key": key, "problem": "it lies in the store, and no live stage names it"}


def table_problems(contents: Contents) -> Iterator[str]:
    for table, count in sorted(contents.wrong.items()):
        rows = "a row" if count == 1 else f"{count} rows"
        yield f"the ledger's table `{table}` has {rows} that changed outside of s3t; run `s3t reconcile RUN`"


def record_problems(
    place: Place, rows: Mapping[tuple[str, str | None], int], contents: Contents, secret: Secret
) -> Iterator[str]:
    """Differences between a slice's rows and the ledger's records of that slice."""
    in_file = {row.token: row for row in record_rows(place, rows, secret)}
    present, erasing = contents.records.get(place, {}), contents.erasing.get(place, frozenset())
    if unknown := in_file.keys() - present.keys() - erasing:
        yield f"its file holds {len(unknown)} records that the ledger does not know; run `s3t reconcile RUN`"
    if absent := present.keys() - in_file.keys():
        yield f"the ledger knows {len(absent)} records that its file does not hold"
    both = present.keys() & in_file.keys()
    if other := [token for token in both if in_file[token] != present[token]]:
        yield f"the ledger has {len(other)} records with another subject or number of rows than its file"


def witness_problems(contents: Contents, *, earlier: Collection[bytes], later: Collection[bytes]) -> Iterator[str]:
    """Differences between the ledger and the witness, as it was before and after the ledger was read."""
    if unknown := set(earlier) - contents.deleted:
        yield f"the memory of deletions has {len(unknown)} names that the ledger does not know as deleted"
    if lost := contents.deleted - set(later):
        yield (
            f"the memory of deletions lacks {len(lost)} names that the ledger knows as deleted; run "
            "`s3t reconcile RUN`, which notes them again"
        )


def _check_slice(place: Place, state: SliceState, rows: int) -> Iterator[Mismatch]:
    # Deleted records may wait in the current version (deletion.erase_within).
    if rows <= state.records if state.pending else rows != state.records:
        yield _of_slice(place, f"its file holds {rows} records, the ledger counts {state.records}")


def _of_stage(stage: Stage, problem: str) -> Mismatch:
    return {**stage.to_json(), "problem": problem}


def _of_slice(place: Place, problem: str) -> Mismatch:
    return {"shard": place.shard, "slice": place.slice, "problem": problem}


def _changed(then: dict[str, str], now: dict[str, str]) -> str:
    return ", ".join(
        f"{name} {then.get(name)} -> {now.get(name)}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    )
