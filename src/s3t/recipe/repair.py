"""The recipe's policies of repair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from s3t import forests
from s3t.errors import PlanningError
from s3t.recipe.part import Part

MOST_SPARES = 100
_CHAINS = {"depth", "spares", "spare_depth"}


class BelowDepth(Part):
    """Repair when a shard serves with fewer slices."""

    model_config = ConfigDict(populate_by_name=True)

    below_depth: int = Field(alias="below-depth", ge=1, le=10_000)
    """Slices; a shard that does not answer serves with 0."""


class Level(Part):
    """A level of service."""

    mean_depth: float = Field(default=1.0, gt=0, le=10_000)
    """Slices that a shard serves with after its repairs, at least."""
    after_deletion: int = Field(default=0, ge=0, le=5_000)
    """Slices right after any one deletion, at least, up to L / 2. 1: no shard is ever dead."""


class AsNeeded(Part):
    """Repair what a main chain and a few spares lack; the run's orders follow from this in the place of `sequences`."""

    policy: Literal["as-needed"]
    """Its name."""
    level: Level | None = None
    """The level of service. If the next three fields are absent, the cheapest chains that meet it are computed when the
    recipe is read."""
    depth: int = Field(ge=1, le=10_000)
    """Slices that serve: those of the main chain."""
    spares: int = Field(default=1, ge=0, le=MOST_SPARES)
    """Other chains, each with a first slice of its own. 0: a shard is dead until repaired once its first slice is
    hit."""
    spare_depth: int = Field(default=1, ge=1, le=10_000)
    """Slices of a spare."""

    @model_validator(mode="before")
    @classmethod
    def _level_is_resolved(cls, content: Any) -> Any:
        """Chains of a level that is given alone. What is wrong with its numbers is said of its fields."""
        if not isinstance(content, Mapping) or content.get("level") is None or not _CHAINS.isdisjoint(content):
            return content
        try:
            level = Level.model_validate(content["level"])
        except ValidationError:
            return {**content, "depth": 1}
        chains = forests.AsNeeded.keeping(mean_depth=level.mean_depth, after_deletion=level.after_deletion)
        return {**content, **vars(chains)}

    def problems(self, slices: int) -> list[str]:
        """Numbers that do not fit each other, or shards of L slices; each with its field."""
        try:
            chains = self.made()
            chains.check(slices)
        except PlanningError as error:
            return [f"deletion.repair: {problem}" for problem in error.problems]
        if self.level is None:
            return []
        problems, level, kept = [], self.level, chains.least_after_hit(slices)
        if self.depth < level.mean_depth:
            problems.append(f"mean_depth {level.mean_depth:g}: depth is {self.depth}; take one of them out")
        if kept < level.after_deletion:
            problems.append(
                f"after_deletion {level.after_deletion}: chains of {slices} slices with spares of {self.spare_depth} "
                f"keep {kept}; ask for at most {slices // 2}, and leave out depth and spares"
            )
        return [f"deletion.repair.level.{problem}" for problem in problems]

    def made(self) -> forests.AsNeeded:
        """The policy."""
        return forests.AsNeeded(depth=self.depth, spares=self.spares, spare_depth=self.spare_depth)


def _policy_kind(value: Any) -> str:
    named = isinstance(value, Mapping) and not {"below-depth", "below_depth"}.isdisjoint(value)
    if named or isinstance(value, BelowDepth):
        return f"{TAGGED}below-depth"
    return f"{TAGGED}as-needed" if isinstance(value, AsNeeded | Mapping) else f"{TAGGED}name"


TAGGED = "kind: "
"""Beginning of the tag of an alternative, which is no part of a field's name."""

RepairPolicy: TypeAlias = Annotated[
    Annotated[Literal["manual", "on-exhaustion", "eager"], Tag(f"{TAGGED}name")]
    | Annotated[BelowDepth, Tag(f"{TAGGED}below-depth")]
    | Annotated[AsNeeded, Tag(f"{TAGGED}as-needed")],
    Discriminator(_policy_kind),
]
