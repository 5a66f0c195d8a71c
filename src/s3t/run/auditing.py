"""An audit of an open run."""

from __future__ import annotations

from s3t.audit import Auditor, Mismatch, stray_artifacts, stray_versions, table_problems, witness_problems
from s3t.core import Place, Stage
from s3t.deletion.witness import Witness
from s3t.errors import IntegrityError
from s3t.events import Progress, WorkNote, telling
from s3t.ledger import Snapshot
from s3t.ledger.damage import contents_of, structure_problems
from s3t.ledger.locks import hold
from s3t.ledger.work import Overtaken, Uses
from s3t.models.source import model_digest, model_folder
from s3t.results.changes import Audit
from s3t.run.answerer import watched
from s3t.run.parts import Parts
from s3t.run.reporting import outage_of
from s3t.run.training import training_steps
from s3t.wording import counted


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
    mismatches += _public_problems(parts)
    if contents.wrong:  # then nothing can be compared with the ledger
        mismatches += [{"problem": problem} for problem in table_problems(contents)]
        return Audit(generation=contents.generation, checked=0, replayed=(), mismatches=tuple(mismatches))
    auditor = Auditor(
        slices=parts.slices,
        secret=parts.secret,
        store=parts.store,
        inputs=parts.key_inputs,
        base_digest=model_digest(model_folder(parts.recipe.base_model, revision=parts.recipe.revision)),
        train=parts.loaded.train,
    )
    now, problems = _compared(parts, auditor)
    mismatches += problems
    stages = auditor.sample(now, replay, seed)
    steps = training_steps(parts.latest.inventory(now), stages, parts.recipe)
    with telling(progress, f"replaying {counted(len(stages), 'stage')}", steps):
        replayed = [stage for stage in stages if _replay(parts, auditor, stage, mismatches, progress)]
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


def _compared(parts: Parts, auditor: Auditor) -> tuple[Snapshot, list[Mismatch]]:
    """(Snapshot, mismatches of ledger, slices, witness and store)."""
    now, problems = _looked(parts, auditor)
    problems += stray_artifacts(parts.store.keys(), named=now.artifacts)
    problems += stray_versions(parts.slices.versions(), named=_current(now))
    if problems:  # perhaps a deletion was at work, or a trainer: once more, while neither changes what is looked at
        with hold(parts.lock):  # nothing is erased meanwhile, though deletions are accepted
            parts.upkeep.erase_due()
            now, problems = _looked(parts, auditor)
            lying, versions = parts.store.keys(), parts.slices.versions()  # first: what is put later is announced
            with parts.ledger.reading() as transaction:
                named = now.artifacts | transaction.snapshot().artifacts | transaction.sessions.announced()
                work, current = transaction.to_erase(received_by=0.0), _current(now) | _current(transaction.snapshot())
            problems += stray_artifacts(lying, named=named | work.artifacts)
            problems += stray_versions(versions, named=current | work.versions)
    return now, problems


def _looked(parts: Parts, auditor: Auditor) -> tuple[Snapshot, list[Mismatch]]:
    """(Snapshot, problems of the ledger and the slices' files)."""
    parts.ledger.snapshot(anew=True)  # an audit believes no note that nothing has changed
    # A deletion is in the ledger first: what was noted before the ledger is read is in it, and what is in it is noted
    # by the time that it is read again.
    earlier = Witness(parts.witness.path).tokens()
    with parts.ledger.reading() as transaction:
        now, contents = transaction.snapshot(), contents_of(transaction.rows)
    parts.witness.catch_up(parts.ledger)
    problems = witness_problems(contents, earlier=earlier, later=Witness(parts.witness.path).tokens())
    mismatches: list[Mismatch] = [{"problem": problem} for problem in problems]
    return now, mismatches + auditor.check(now, contents)


def _public_problems(parts: Parts) -> list[Mismatch]:
    try:
        if parts.public is not None:
            _ = parts.public.rows
    except IntegrityError as error:
        return [{"problem": str(error)}]
    return []


def _current(snapshot: Snapshot) -> set[tuple[Place, str]]:
    """Every slice and the digest of its current version."""
    return {(place, state.digest) for place, state in snapshot.slices.items()}


def _replay(parts: Parts, auditor: Auditor, stage: Stage, mismatches: list[Mismatch], progress: Progress) -> bool:
    """Train a stage again; False if a deletion took it before that was done."""
    now = parts.upkeep.erase_due()
    if stage not in now.stages:
        return False
    progress(WorkNote(what=str(stage)))
    uses = Uses(stages={link: now.stages[link] for link in stage.chain}, slices=now.seen(stage))
    try:
        with parts.presence.answering(now, uses) as work:
            problems = list(auditor.replay(stage, now, watched(progress, work)))
    except Overtaken:
        return False
    mismatches += problems
    return True
