"""Two runs of the same recipe: one that forgot, one that never knew."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import s3t
from s3t.core import Stage
from testing import tiny
from testing.roles import roles

SMALL: dict[str, Any] = {"partition": {"shards": 1}, "sequences": {"budget": 2}}
"""Changes of a recipe: 6 stages instead of 18."""
SIZES = pytest.mark.parametrize(
    "size", [pytest.param(SMALL, id="small"), pytest.param({}, id="large", marks=pytest.mark.integration)]
)


@dataclass(frozen=True)
class Worlds:
    """`forgot` was trained on all records and deleted some; `never_knew` was trained without them."""

    forgot: s3t.Run
    never_knew: s3t.Run
    probe: pd.DataFrame
    """Inputs to compare predictions on."""

    def differing_artifacts(self) -> list[str]:
        """Surviving artifacts that the other run does not have under the same name with the same bytes."""
        never_knew = tiny.artifacts(self.never_knew.path)
        return [name for name, content in tiny.artifacts(self.forgot.path).items() if never_knew.get(name) != content]

    def predictions_agree(self) -> bool:
        """Whether what serves answers, in bits, as the other run does from the same prefixes."""
        try:
            here = answers_of(self.forgot, self.probe)
        except s3t.NoLiveShardError:
            return True
        there = answers_of(self.never_knew, self.probe, prefixes=here.members)
        return np.array_equal(here.logits, there.logits, equal_nan=True) and said(here) == said(there)

    def identical(self) -> bool:
        """Whether the two folders of artifacts are the same, file for file and byte for byte."""
        return tiny.artifacts(self.forgot.path) == tiny.artifacts(self.never_knew.path)

    def assert_exact(self) -> None:
        """The counterfactual oracle, before and after repair."""
        assert self.differing_artifacts() == []
        assert self.predictions_agree()
        assert self.forgot.audit().ok
        self.assert_exact_repaired()

    def assert_exact_repaired(self) -> None:
        """The counterfactual oracle after repair."""
        self.forgot.repair()
        assert self.identical()
        assert self.predictions_agree()
        assert self.forgot.audit().ok

    def close(self) -> None:
        self.forgot.close()
        self.never_knew.close()


def answers_of(run: s3t.Run, inputs: pd.DataFrame, **prefixes: Any) -> s3t.Predictions | s3t.Likelihoods:
    """What a run answers: labels and the like; of a language model, how likely the texts are."""
    ask = run.score if run.recipe.task.target.over_vocabulary else run.predict
    return ask(inputs, **prefixes)


def said(answers: s3t.Predictions | s3t.Likelihoods) -> tuple[Any, ...]:
    """The answers alone."""
    return answers.predicted if isinstance(answers, s3t.Predictions) else answers.log_probabilities


def make_worlds(
    folder: Path,
    recipe: dict[str, Any],
    table: pd.DataFrame,
    requests: Collection[Collection[str]],
    *,
    trained: Path | None = None,
) -> Worlds:
    """Train on everything, or clone what was `trained` so, and delete; train without the deleted records."""
    gone = {record for request in requests for record in request}
    forgot = trained_run(folder / "forgot", recipe, table) if trained is None else clone(trained, folder / "forgot")
    for request in requests:
        forgot.delete(records=list(request))
    return Worlds(forgot, trained_run(folder / "never-knew", recipe, table[~table.id.isin(gone)]), table)


def assert_deletions_are_exact(
    folder: Path, recipe: dict[str, Any], table: pd.DataFrame, requests: Collection[Collection[str]]
) -> None:
    """The counterfactual oracle, before and after repair, of a run that deletes some records."""
    worlds = make_worlds(folder, recipe, table, requests)
    worlds.assert_exact()
    worlds.close()


def artifacts_after(
    folder: Path, recipe: dict[str, Any], table: pd.DataFrame, act: Callable[[s3t.Run], Any] = lambda _run: None
) -> dict[str, bytes]:
    """What a trained run keeps of its stages once something was done with it, and repaired."""
    with trained_run(folder, recipe, table) as run:
        act(run)
        run.repair()
        return tiny.artifacts(folder)


def clone(run: Path, to: Path) -> s3t.Run:
    """A run of its own id, so that each may delete something else."""
    to.parent.mkdir(exist_ok=True)
    return s3t.Run.clone(run, to)


def trained_run(folder: Path, recipe: dict[str, Any], table: pd.DataFrame) -> s3t.Run:
    """A run with every stage."""
    run = s3t.Run.create(folder, recipe=recipe, data=table)
    run.train()
    return run


def lose_stages(run: s3t.Run, lost: Callable[[Stage], bool]) -> None:
    """What deletions do to stages, without one: of a run in which the records never were."""
    with roles(run).ledger.writing() as transaction:
        transaction.forget_stages({stage: key for stage, key in run.inventory().alive.items() if lost(stage)})


def records_by_slice(recipe: dict[str, Any], table: pd.DataFrame) -> dict[tuple[int, int], list[str]]:
    """Where each record of a table lies."""
    from s3t.core import Secret, place_of

    part = recipe["partition"]
    secret, shards, slices, group = Secret(salt=part["salt"]), part["shards"], part["slices"], part.get("group")
    places: dict[tuple[int, int], list[str]] = {}
    for row in table.to_dict("records"):
        among = group["slices"][row[group["column"]]] if group else None
        place = place_of(row["id"], None, secret=secret, shards=shards, slices=slices, among=among)
        places.setdefault(place[:2], []).append(row["id"])
    return places
