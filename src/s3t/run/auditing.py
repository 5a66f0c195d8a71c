"""An audit of an open run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from s3t.audit.audit import Auditor, Mismatch, Retrain
from s3t.inventory import Inventory
from s3t.ledger import Snapshot
from s3t.ledger.locks import needed
from s3t.ledger.presence import Overtaken
from s3t.models.source import model_digest, model_folder
from s3t.progress import Progress, telling
from s3t.run.parts import Parts
from s3t.run.results import AuditReport
from s3t.run.serving import Watched
from s3t.stages import Stage


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
        slices=parts.layout.slices,
        secret=parts.secret,
        store=parts.store,
        inputs=parts.key_inputs,
        base_digest=lambda: model_digest(model_folder(recipe.base_model, revision=recipe.revision)),
        retrain=retrain,
    )
    snapshot()
    now = parts.ledger.snapshot(anew=True)  # an audit believes no note that nothing has changed
    mismatches = auditor.check(now) + auditor.check_store(_named(now))
    if mismatches:  # perhaps a deletion was at work, or a trainer: once more, while neither changes what is looked at
        with needed(parts.lock):  # nothing is erased meanwhile, though deletions are accepted
            snapshot()
            now = parts.ledger.snapshot(anew=True)
            mismatches = auditor.check(now)
            with parts.ledger.writing() as transaction:  # a stage is stored and noted in one such
                later = transaction.snapshot()
                named = _named(now) | _named(later)
                if later.generation > now.generation:
                    named |= set(transaction.to_erase(accepted_by=0.0).artifacts)
                mismatches += auditor.check_store(named)
    stages = auditor.sample(now, replay, seed)
    with telling(progress, "replaying", cost(parts.inventory(now), stages)):
        replayed = [stage for stage in stages if _replay(parts, auditor, stage, snapshot, mismatches, progress)]
    return AuditReport(
        generation=now.generation,
        checked=len(now.stages),
        replayed=tuple(replayed),
        mismatches=tuple(mismatches),
    )


def _named(snapshot: Snapshot) -> set[tuple[int, str]]:
    """(shard, key) of what lives."""
    return {(stage.shard, key) for stage, key in snapshot.stages.items()}


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
    progress.note(f"replaying {stage}")
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
