"""Two runs of the same recipe: one that forgot, one that never knew."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import s3t
from tests import tiny


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
            here = self.forgot.predict(self.probe)
        except s3t.NoLiveShardError:
            return True
        there = self.never_knew.predict(self.probe, prefixes=here.members)
        return np.array_equal(here.logits, there.logits, equal_nan=True) and here.predicted == there.predicted

    def identical(self) -> bool:
        """Whether the two folders of artifacts are the same, file for file and byte for byte."""
        return tiny.artifacts(self.forgot.path) == tiny.artifacts(self.never_knew.path)

    def assert_exact(self) -> None:
        """The counterfactual oracle, before and after repair."""
        assert self.differing_artifacts() == []
        assert self.predictions_agree()
        assert self.forgot.audit().ok
        self.forgot.repair()
        assert self.identical()
        assert self.predictions_agree()
        assert self.forgot.audit().ok

    def close(self) -> None:
        self.forgot.close()
        self.never_knew.close()


def make_worlds(
    folder: Path, recipe: dict[str, Any], table: pd.DataFrame, requests: Collection[Collection[str]]
) -> Worlds:
    """Train on everything and delete request after request; train without the deleted records."""
    gone = {record for request in requests for record in request}
    forgot = s3t.Run.create(folder / "forgot", recipe=recipe, data=table)
    forgot.train()
    for request in requests:
        forgot.delete(records=list(request))
    left = table[~table.id.isin(gone)]
    never_knew = s3t.Run.create(folder / "never-knew", recipe=recipe, data=left)
    never_knew.train()
    return Worlds(forgot, never_knew, table)


def records_by_slice(recipe: dict[str, Any], table: pd.DataFrame) -> dict[tuple[int, int], list[str]]:
    """Where each record of a table lies."""
    from s3t.partition import Secret, place_of

    part = recipe["partition"]
    secret, shards, slices, group = Secret(salt=part["salt"]), part["shards"], part["slices"], part.get("group")
    places: dict[tuple[int, int], list[str]] = {}
    for row in table.to_dict("records"):
        among = group["slices"][row[group["column"]]] if group else None
        place = place_of(row["id"], None, secret=secret, shards=shards, slices=slices, among=among)
        places.setdefault(tuple(place), []).append(row["id"])
    return places
