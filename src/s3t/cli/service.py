"""`s3t plan` for a level of service: repair as needed of given shards and slices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s3t.cli import as_needed
from s3t.cli.declarations import noted, numbers_in
from s3t.cli.display import print_table
from s3t.cli.outcome import show
from s3t.cli.proposal import left_out, recipe_lines
from s3t.errors import DataError, InputError
from s3t.progress import telling
from s3t.progress_bar import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.planning.compared import Comparison
    from s3t.planning.service import Level, System
    from s3t.recipe import Recipe

DepthOption = Annotated[
    float | None,
    typer.Option("--mean-depth", metavar="X", help="Service: slices that a shard serves with after repairs, at least."),
]
NeverDeadOption = Annotated[
    bool, typer.Option("--never-dead", help="Service: no shard is dead right after any one deletion.")
]
AfterOption = Annotated[
    int | None,
    typer.Option(
        "--depth-after-deletion",
        metavar="K",
        help="Service: slices that a shard serves with right after any one deletion, at least.",
    ),
]
ScoreOption = Annotated[
    float | None,
    typer.Option(
        "--score",
        metavar="X",
        help="Service: score of the ensemble after repairs, at least; higher is better. Needs --scores-by-depth.",
    ),
]
ScoresOption = Annotated[
    str | None,
    typer.Option(
        "--scores-by-depth",
        metavar="S1,S2,...",
        help="Service: score at each depth, 1 to L, as s3t evaluate measures it on public records.",
    ),
]
HoursADayOption = Annotated[
    float | None,
    typer.Option(
        "--hours-a-day",
        metavar="H",
        help="Service: hours of repairs a day at most; needs --stage-seconds or --training-hours.",
    ),
]
ShardsOption = Annotated[
    int | None, typer.Option("--shards", metavar="M", help="Service: shards. Without, the recipe's.")
]
SlicesOption = Annotated[
    int | None, typer.Option("--slices", metavar="L", help="Service: slices a shard. Without, the recipe's.")
]
LEVEL = ("--mean-depth", "--never-dead", "--depth-after-deletion", "--score", "--hours-a-day")
"""Options of which each asks for a level of service."""
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help="Service: draw cost against depth, into a .png, .svg or .pdf file. Needs the extra plots.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of a level of service, as they were given."""

    mean_depth: float | None
    never_dead: bool
    after_deletion: int | None
    score: float | None
    scores: str | None
    hours_a_day: float | None
    trainings: float | None
    """--budget, which belongs to both plans."""
    shards: int | None
    slices: int | None
    stage_seconds: str | None
    training_hours: float | None
    plot: Path | None

    @property
    def given(self) -> list[str]:
        """Names of the options that belong to a level of service alone."""
        named = {
            "--mean-depth": self.mean_depth,
            "--never-dead": self.never_dead or None,
            "--depth-after-deletion": self.after_deletion,
            "--score": self.score,
            "--scores-by-depth": self.scores,
            "--hours-a-day": self.hours_a_day,
            "--shards": self.shards,
            "--slices": self.slices,
            "--stage-seconds": self.stage_seconds,
            "--plot": self.plot,
        }
        return [name for name, value in named.items() if value is not None]

    @property
    def is_level(self) -> bool:
        """True if a level of service is asked for."""
        return not set(LEVEL).isdisjoint(self.given)

    def level(self, slices: int | None, problems: list[str]) -> Level:
        """The level of service that the options ask for; what is wrong with the scores is among the problems.

        Args:
            slices: L; None if it is not known.
        """
        from s3t.planning.service import Level

        after = self.after_deletion if self.after_deletion is not None else int(self.never_dead)
        depth = self._depth_of_score(slices, problems)
        return Level(
            mean_depth=depth if self.mean_depth is None else max(self.mean_depth, depth),
            after_deletion=max(after, 1) if self.never_dead and after >= 0 else after,
            hours_a_day=self.hours_a_day,
            trainings=self.trainings,
        )

    def _depth_of_score(self, slices: int | None, problems: list[str]) -> int:
        """Slices that serve with the score that is asked for; 1 without one."""
        from s3t.planning.service import depth_for

        if self.score is None or self.scores is None:
            if (self.score is None) != (self.scores is None):
                problems.append("--score and --scores-by-depth belong together: give both, or none")
            return 1
        with noted(problems):
            scores = numbers_in(self.scores, where="--scores-by-depth")
            if slices not in (None, len(scores)):
                raise DataError("--scores-by-depth", f"has {len(scores)} numbers for {slices} slices; give one a depth")
            return depth_for(self.score, scores)
        return 1


@dataclass(frozen=True, kw_only=True)
class Planned:
    """Options that both plans share: expected deletions, and the model."""

    deletions_per_month: float
    persons: bool
    """True if persons ask, and not for single records."""
    months: float
    recipe: Recipe | None
    layers: int | None
    """Number of the model's transformer layers; None: not known."""
    layers_per_slice: int | None
    """Layers of a block; None: as many as there is room for."""
    seed: int

    @property
    def layers_or_assumed(self) -> int:
        """Layers of the model, or of one of base size."""
        from s3t.planning.plan import ASSUMED_LAYERS

        return ASSUMED_LAYERS if self.layers is None else self.layers


def plan_service(asked: Asked, planned: Planned, problems: list[str], as_json: bool) -> None:
    """Propose chains for a level of service, compare, draw and print."""
    from s3t.drawing import check_picture
    from s3t.planning.compared import compare, compared_orders
    from s3t.planning.rounding import rounded
    from s3t.planning.service import cheapest

    system = _system(asked, planned, problems)
    level = asked.level(None if system is None else system.slices, problems)
    if system is not None:
        with noted(problems):
            cheapest(level, system)
    if asked.plot is not None:
        with noted(problems):
            check_picture(asked.plot)
    if problems or system is None:
        raise InputError("the command", problems)
    bar = ProgressBar()
    with telling(bar, "simulating fixed orders", len(compared_orders(system.slices))):
        found = compare(level, system, seed=planned.seed, steps=bar)
    layers_per_slice = planned.layers_per_slice or planned.layers_or_assumed // system.slices
    lines = recipe_lines(
        planned.recipe,
        partition={"shards": system.shards, "slices": system.slices},
        layers_per_slice=layers_per_slice,
        repair={"policy": "as-needed", **vars(found.policy)},
    )
    if asked.plot is not None:
        _draw(found, asked.plot)
    document = rounded(found.to_json() | {"recipe": lines, "layers_per_slice": layers_per_slice})
    show(document, as_json, lambda: _print(found, lines, planned, asked.plot))


def _system(asked: Asked, planned: Planned, problems: list[str]) -> System | None:
    """The system to plan; None if something is wrong, which is then among the problems."""
    from s3t.forests import StageCosts
    from s3t.planning.service import System

    shards, slices = asked.shards, asked.slices
    if planned.recipe is not None:
        partition = planned.recipe.partition
        shards = partition.shards if shards is None else shards
        slices = partition.slices if slices is None else slices
    if shards is None or slices is None:
        problems.append("a level of service is planned for given shards and slices: give --shards and --slices")
        return None
    most = planned.layers_or_assumed // (planned.layers_per_slice or 1)
    if not 1 <= slices <= most:
        problems.append(f"{slices} slices: the model's layers have room for 1 to {most}; see --layers")
        return None
    if asked.stage_seconds is not None and asked.training_hours is not None:
        problems.append("--stage-seconds and --training-hours both say how long training takes; leave one out")
    measured = as_needed.stage_seconds(asked.stage_seconds, slices=slices, problems=problems)
    with noted(problems):
        return System(
            shards=shards,
            costs=measured or StageCosts.declared(slices),
            hours=asked.training_hours if measured is None else shards * measured.by_depth[-1] / 3600,
            deletions_per_month=planned.deletions_per_month,
            months=planned.months,
        )
    return None


def _print(found: Comparison, lines: list[str], planned: Planned, plot: Path | None) -> None:
    system, policy = found.system, found.policy
    slices = counted(policy.depth, "slice")
    spare = f"a spare of {policy.spare_depth}" if policy.spares else "no spare"
    unit = "of a person's records " if planned.persons else ""
    typer.echo(f"{counted(system.deletions, 'deletion')} {unit}in {planned.months:g} months")
    if planned.layers is None:
        typer.echo(f"assumed, for neither --layers nor --recipe is given: {planned.layers_or_assumed} layers")
    typer.echo(f"proposed: repair as needed, with a main chain of {slices} and {spare}. In the recipe, in place of")
    typer.echo("its lines of these names, and of sequences:")
    for line in lines:
        typer.echo(f"  {line}")
    if planned.recipe is not None and (names := left_out(planned.recipe)):
        typer.echo(f"not planned for, and not in these lines: the recipe's {', '.join(names)}")
    services = {"as needed": found.service, "SISA, as needed": found.sisa}
    if (fixed := found.fixed) is not None:
        services[f"{counted(fixed.budget, 'order')}, below {fixed.below}"] = fixed.service
    rows = [
        _row(system, name, each.repairs, each.mean_depth, training=f"{each.training:.2f}", least=each.after_deletion)
        for name, each in services.items()
    ]
    print_table("what serves this level", [*rows, _row(system, "bound", found.bound, found.service.mean_depth)])
    if fixed is None:
        typer.echo("no fixed orders that were compared serve this level")
    typer.echo(
        "Costs are in full trainings, all records through all blocks; training is the first one. Slices serve after\n"
        "repairs, in the mean; the least right after any one deletion. The bound is that of any policy of this mean\n"
        "depth, dead shards allowed."
    )
    if plot is not None:
        typer.echo(f"drawn: {plot}")


def _row(
    system: System, name: str, repairs: float, mean_depth: float, *, training: str = "", least: int | None = None
) -> dict[str, Any]:
    hours = system.hours_a_day(repairs)
    return (
        {"system": name, "training": training, "repairs": f"{repairs:.4g}"}
        | ({} if hours is None else {"hours a day": f"{hours:.3g}"})
        | {"slices": f"{mean_depth:.2f}", "least": "" if least is None else str(least)}
    )


def _draw(found: Comparison, path: Path) -> None:
    from s3t.drawing import Curve, draw_frontier

    system, curves = found.system, found.curves()
    timed = system.hours is not None

    def curve(label: str, depths: list[float], repairs: list[float]) -> Curve:
        costs = [system.hours_a_day(each) or 0.0 for each in repairs] if timed else repairs
        return Curve(label=label, depths=depths, costs=costs)

    depths = [float(each.depth) for each in curves]
    ours = curve("as needed", depths, [each.as_needed for each in curves])
    sisa = curve("SISA, as needed", depths, [each.sisa for each in curves])
    least = curve("bound of any policy", depths, [each.bound for each in curves])
    orders = []
    for budget in dict.fromkeys(each.budget for each in found.all_fixed):
        points = [each.service for each in found.all_fixed if each.budget == budget]
        name = f"fixed, {counted(budget, 'order')}"
        orders.append(curve(name, [each.mean_depth for each in points], [each.repairs for each in points]))
    place = found.policy.depth - curves[0].depth
    draw_frontier(
        [ours, sisa, least],
        orders,
        path,
        title=f"{counted(system.shards, 'shard')}, {counted(system.deletions, 'deletion')}",
        cost="hours of repairs a day" if timed else "cost of repairs, full trainings",
        slices=system.slices,
        proposal=(ours.depths[place], ours.costs[place]),
    )
