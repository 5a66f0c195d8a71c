"""Answering for one run: who answers is chosen at a generation, and the answer leaves only if that still stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from s3t.ledger import Snapshot
from s3t.ledger.presence import Work
from s3t.prediction.answers import Answers
from s3t.prediction.members import Prefixes, choose_members
from s3t.progress import Progress
from s3t.records.ingest import IngestedInputs
from s3t.run.answering import evaluate, predict
from s3t.run.answers import Evaluation, Predictions
from s3t.run.parts import Parts
from s3t.run.serving import Answer, Watched, at_one_generation
from s3t.stages import Stage

if TYPE_CHECKING:
    from s3t.run.workshop import Workshop


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """Answers and measures with what is alive in one run."""

    parts: Parts
    snapshot: Callable[[], Snapshot]
    """The ledger now."""
    workshop: Callable[[], Workshop]
    """Computes logits; loads the base model when it is first asked for."""

    def predict(self, inputs: IngestedInputs, prefixes: Prefixes | None, progress: Progress) -> Predictions:
        """The ensemble's answers. Errors as `Run.predict`."""
        counts = self.parts.recipe.task.inputs.counts(inputs.features)
        return self._at_one_generation(
            prefixes,
            lambda snapshot, members, work: predict(
                self.workshop(),
                self._answers,
                snapshot,
                members,
                inputs,
                counts=counts,
                progress=Watched(progress, work),
            ),
        )

    def evaluate(self, rows: pa.Table, *, per_depth: bool, progress: Progress) -> Evaluation:
        """How good it is. Errors as `Run.evaluate`."""
        return self._at_one_generation(
            None,
            lambda snapshot, members, work: evaluate(
                self.workshop(),
                self._answers,
                snapshot,
                members,
                rows,
                counts=self.parts.recipe.task.inputs.counts(rows),
                per_depth=per_depth,
                progress=Watched(progress, work),
            ),
        )

    @property
    def _answers(self) -> Answers:
        return Answers.of(self.parts.recipe, self.parts.description.labels)

    def _at_one_generation(
        self, prefixes: Prefixes | None, compute: Callable[[Snapshot, Sequence[Stage], Work], Answer]
    ) -> Answer:
        return at_one_generation(
            self.parts.ledger,
            self.parts.presence,
            snapshot=self.snapshot,
            members=lambda snapshot: choose_members(
                self.parts.inventory(snapshot),
                prefixes,
                settings=self.parts.recipe.prediction,
                run=str(self.parts.layout.root),
            ),
            compute=compute,
        )
