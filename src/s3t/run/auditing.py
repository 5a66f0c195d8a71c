"""An audit of an open run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from s3t.audit.audit import Auditor, Mismatch, Retrain
from s3t.audit.contents import table_problems, witness_problems
from s3t.deletion.witness import Witness
from s3t.errors import IntegrityError
from s3t.inventory import Inventory
from s3t.ledger import Snapshot
from s3t.ledger.locks import needed
from s3t.ledger.presence import Overtaken
from s3t.models.source import model_digest, model_folder
from s3t.partition import Place
from s3t.progress import Progress, telling
from s3t.run.parts import Parts
from s3t.run.results import AuditReport
from s3t.run.serving import Watched
from s3t.stages import Stage
from s3t.wording import counted


def audit(
    parts: Parts,
    *,
    snapshot: Callable[[], Snapshot],
    cost: Callable[[Inventory, Sequence[Stage]], int],
    retrain: Retrain,
    replay: int,
    seed: int | None,
    progress: Progress,
) -> AuditReport:
    """Check every live stage, and train some again.

    Args:
        parts: of the run.
        snapshot: its ledger now.
        cost: records to go through to train stages.
        retrain: trains a stage again.
        replay: how many to train again.
        seed: chooses which.
        progress: hears of replayed training.

    Raises:
        KeyDestroyedError: the run's secret was destroyed.
    """
    parts.secret.reveal()  # without it, everything would look wrong
    recipe = parts.recipe
    auditor = Auditor(
        slices=parts.slices,
        secret=parts.secret,
        store=parts.store,
        inputs=parts.key_inputs,
        base_digest=lambda: model_digest(model_folder(recipe.base_model, revision=recipe.revision)),
        retrain=retrain,
    )
    snapshot()
    try:
        with parts.ledger.reading() as transaction:
            structure, contents = transaction.structure_problems(), transaction.contents()
    except IntegrityError as error:
        return AuditReport(generation=0, checked=0, replayed=(), mismatches=({"problem": str(error)},))
    mismatches: list[Mismatch] = [{"problem": f"the ledger's database: {line}"} for line in structure]
    mismatches += _public_problems(parts)
    if contents.wrong:  # then nothing can be compared with the ledger
        mismatches += [{"problem": problem} for problem in table_problems(contents)]
        return AuditReport(generation=contents.generation, checked=0, replayed=(), mismatches=tuple(mismatches))
    now, found = _compared(parts, auditor, snapshot)
    mismatches += found
    stages = auditor.sample(now, replay, seed)
    with telling(progress, f"replaying {counted(len(stages), 'stage')}", cost(parts.inventory(now), stages)):
        replayed = [stage for stage in stages if _replay(parts, auditor, stage, snapshot, mismatches, progress)]
    return AuditReport(
        generation=now.generation,
        checked=len(now.stages),
        replayed=tuple(replayed),
        mismatches=tuple(mismatches),
    )


def _compared(parts: Parts, auditor: Auditor, snapshot: Callable[[], Snapshot]) -> tuple[Snapshot, list[Mismatch]]:
    """The ledger now, and what of run and store is not as it says."""
    now, found = _looked(parts, auditor)
    found += auditor.check_store(parts.store.keys(), named=_named(now))
    found += auditor.check_versions(parts.slices.versions(), named=_current(now))
    if found:  # perhaps a deletion was at work, or a trainer: once more, while neither changes what is looked at
        with needed(parts.lock):  # nothing is erased meanwhile, though deletions are accepted
            snapshot()
            now, found = _looked(parts, auditor)
            lying, versions = (
                parts.store.keys(),
                parts.slices.versions(),
            )  # first: what is put later was announced before
            with parts.ledger.reading() as transaction:
                named = _named(now) | _named(transaction.snapshot()) | transaction.sessions.announced()
                work, current = transaction.to_erase(received_by=0.0), _current(now) | _current(transaction.snapshot())
            found += auditor.check_store(lying, named=named | work.artifacts)
            found += auditor.check_versions(versions, named=current | work.versions)
    return now, found


def _looked(parts: Parts, auditor: Auditor) -> tuple[Snapshot, list[Mismatch]]:
    """The ledger now, and what is wrong with it and with the files."""
    parts.ledger.snapshot(anew=True)  # an audit believes no note that nothing has changed
    # A deletion is in the ledger first: what was noted before the ledger is read is in it, and what is in it is noted
    # by the time that it is read again.
    earlier = Witness(parts.witness.path).tokens()
    with parts.ledger.reading() as transaction:
        now, contents = transaction.snapshot(), transaction.contents()
    parts.witness.catch_up(parts.ledger)
    problems = witness_problems(contents, earlier=earlier, later=Witness(parts.witness.path).tokens())
    found: list[Mismatch] = [{"problem": problem} for problem in problems]
    return now, found + auditor.check(now, contents)


def _public_problems(parts: Parts) -> list[Mismatch]:
    try:
        if parts.public is not None:
            _ = parts.public.rows
    except IntegrityError as error:
        return [{"problem": str(error)}]
    return []


def _named(snapshot: Snapshot) -> set[tuple[int, str]]:
    """(shard, key) of what lives."""
    return {(stage.shard, key) for stage, key in snapshot.stages.items()}


def _current(snapshot: Snapshot) -> set[tuple[Place, str]]:
    """Every slice and the digest of its current version."""
    return {(place, state.digest) for place, state in snapshot.slices.items()}


def _replay(
    parts: Parts,
    auditor: Auditor,
    stage: Stage,
    snapshot: Callable[[], Snapshot],
    mismatches: list[Mismatch],
    progress: Progress,
) -> bool:
    """Train a stage again; False if a deletion took it before that was done."""
    now = snapshot()
    if stage not in now.stages:
        return False
    progress.note(str(stage))
    used, seen = {link: now.stages[link] for link in stage.chain}, now.seen(stage)
    with (
        suppress(Overtaken),
        parts.presence.working(now, lambda later: later.still_has(used) and later.still_as(seen)) as work,
    ):
        found = list(auditor.replay(stage, now, on_step=Watched(progress, work).advance))
        work.look(parts.ledger.snapshot())
        work.check()
        mismatches += found
        return True
    return False
