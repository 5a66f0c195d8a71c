"""Groups: a declared column sends records to declared slices, and declared probabilities say which lose records.

A person's chance of asking for a deletion may be known to depend on a group (age, country, product). Whose slices are
hit often is then declared, never counted: a prior that followed the records would be fitted on them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from s3t.recipe.descriptions import add_descriptions
from s3t.recipe.labels import alike, refuse_untyped
from s3t.recipe.numbers import NumbersAlone

SHOWN = 10
FIELD = "partition.group"


def _by_name(value: Any) -> Any:
    """A mapping with the groups' names as text."""
    if not isinstance(value, Mapping):
        return value
    refuse_untyped(value, "groups")
    named = [str(name) if isinstance(name, int) else name for name in value]
    repeated = [name for name, count in Counter(named).items() if count > 1]
    if repeated:
        raise ValueError(f"groups {repeated} are declared more than once")
    for group in alike(name for name in named if isinstance(name, str)):
        raise ValueError(f"groups {group!a} differ in blanks or Unicode form alone; keep one of them")
    return dict(zip(named, value.values(), strict=True))


class Group(BaseModel):
    """The slices of each group's records. Checked by the recipe, which knows slices and columns."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra=add_descriptions, hide_input_in_errors=True
    )

    column: str = Field(min_length=1)
    """The column of the data that names each record's group. Never a feature; it may be a classification's label."""
    slices: Annotated[dict[str, tuple[Annotated[int, NumbersAlone], ...]], BeforeValidator(_by_name)]
    """Slices of a shard over which each group's records are spread. Every slice is in exactly one group."""
    deletion: Annotated[dict[str, Annotated[float, NumbersAlone]], BeforeValidator(_by_name)]
    """Probability that a given record of each group is deleted. Only the ratios count."""

    def among(self, name: str) -> tuple[int, ...]:
        """The slices of a group, in the order of their numbers."""
        return tuple(sorted(self.slices[name]))

    def prior(self) -> tuple[float, ...]:
        """Probability of each slice of a shard to be hit by a deletion.

        A slice of group g weighs `deletion[g]`, and the weights are divided by their sum. So slices count as equally
        large: how many records a group has is not declared, and must not be counted.

        >>> Group(column="age", slices={"young": [0], "old": [1, 2]}, deletion={"young": 0.3, "old": 0.15}).prior()
        (0.5, 0.25, 0.25)
        """
        weights = {index: self.deletion[name] for name, indices in self.slices.items() for index in indices}
        largest = max(weights.values())  # of several huge weights the sum would not be finite
        scaled = [weights[index] / largest for index in sorted(weights)]
        total = math.fsum(scaled)
        return tuple(weight / total for weight in scaled)

    def problems(self, slices: int) -> list[str]:
        """Problems of the group in shards of `slices` slices, each with its field and the remedy."""
        return [*self._name_problems(), *self._slice_problems(slices), *self._deletion_problems()]

    def _name_problems(self) -> list[str]:
        problems = []
        if "" in self.slices or "" in self.deletion:
            problems.append(f"{FIELD}: a group has an empty name; an empty cell names no group, so give it another")
        for name in self.slices.keys() - self.deletion.keys():
            problems.append(f"{FIELD}.deletion: group {name!r} is not there; say how probable its deletions are")
        for name in self.deletion.keys() - self.slices.keys():
            problems.append(f"{FIELD}.slices: group {name!r} is not there; give it slices, or leave it out of deletion")
        return sorted(problems)

    def _slice_problems(self, slices: int) -> list[str]:
        where = f"{FIELD}.slices"
        given = Counter(index for indices in self.slices.values() for index in indices)
        empty = [name for name, indices in self.slices.items() if not indices]
        problems = [f"{where}: group {name!r} has no slice; give it one, or leave it out" for name in empty]
        outside = {index for index in given if not 0 <= index < slices}
        if outside:
            problems.append(
                f"{where}: {_listed(outside)} not among the slices 0 to {slices - 1}; correct it or partition.slices"
            )
        twice = {index for index, count in given.items() if count > 1} - outside
        if twice:
            problems.append(f"{where}: {_listed(twice)} given more than once; a slice is in exactly one group")
        left = set(range(slices)) - set(given)
        if left:
            problems.append(f"{where}: {_listed(left)} in no group; a slice is in exactly one group")
        return problems

    def _deletion_problems(self) -> list[str]:
        where = f"{FIELD}.deletion"
        problems = [
            f"{where}: {name!r} has {weight}; give a finite number, 0 or above"
            for name, weight in self.deletion.items()
            if not (math.isfinite(weight) and weight >= 0)
        ]
        if not any(self.deletion.values()):
            problems.append(f"{where}: no group is above 0; without groups, all slices are equally probable")
        return problems


def _listed(indices: Iterable[int]) -> str:
    """Slices with their verb: slice 3 is; slices 3, 4 are.

    >>> _listed({3}), _listed({4, 3})
    ('slice 3 is', 'slices 3, 4 are')
    """
    numbers = sorted(indices)
    shown = ", ".join(map(str, numbers[:SHOWN]))
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return f"slice {shown} is" if len(numbers) == 1 else f"slices {shown}{more} are"
