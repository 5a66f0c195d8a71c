"""`s3t tune`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s3t.cli.display import print_table
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.progress import ProgressBar

if TYPE_CHECKING:
    from s3t.tuning import Tuning

SHOWN = 20
"""Trials in the table."""


class Sampler(StrEnum):
    """Samplers of a study's values."""

    TPE = "tpe"
    GRID = "grid"


RecipeArgument = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="The recipe whose other fields stay.", show_default=False)
]
SpaceOption = Annotated[
    Path,
    typer.Option(
        "--space",
        metavar="YAML",
        help="The search space: fields with a list of values, {between: [LOW, HIGH]} or {log: [LOW, HIGH]}.",
        show_default=False,
    ),
]
DataOption = Annotated[
    Path, typer.Option("--data", metavar="FILE", help="Public records to train on.", show_default=False)
]
ValidationOption = Annotated[
    Path, typer.Option("--validation", metavar="FILE", help="Public records to measure on.", show_default=False)
]
StudyOption = Annotated[
    Path,
    typer.Option(
        "--study", metavar="FOLDER", help="Folder of noted trials; a stopped study goes on.", show_default=False
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="YAML", help="Write the best recipe there, without a salt.", show_default=False),
]
PrivateOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--private",
        metavar="FILE|RUN",
        help="Private records, compared by content, or a run, asked by id for all it has held: refuse the public files "
        "if they hold one. May be repeated.",
        show_default=False,
    ),
]
PublicOption = Annotated[
    bool, typer.Option("--all-public", help="Declare that no private record is in the files; nothing is compared.")
]
TrialsOption = Annotated[
    int,
    typer.Option(
        "--trials", metavar="N", min=1, max=100_000, help="Recipes to try, including those already in the study."
    ),
]
SamplerOption = Annotated[Sampler, typer.Option("--sampler", help="Sampler: tpe, or grid for every combination.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="S", min=0, max=2**32 - 1, help="Seed of the sampler.")]


def command(
    recipe: RecipeArgument,
    space: SpaceOption,
    data: DataOption,
    validation: ValidationOption,
    study: StudyOption,
    out: OutOption = None,
    private: PrivateOption = None,
    declared_public: PublicOption = False,
    trials: TrialsOption = 20,
    sampler: SamplerOption = Sampler.TPE,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Choose a recipe's numbers on public data, with Optuna (the extra tune).

    Each trial makes a run of the public records, trains it and measures the ensemble. Private records are refused: a
    recipe chosen with them would reveal something about them, even after their deletion.

    Example:  s3t tune recipe.yaml --space space.yaml --data public.csv --validation held-out.csv --private records.csv
    --study tuning --out tuned.yaml
    """
    with failures_reported(as_json):
        from s3t.disk import storage_errors
        from s3t.tuning import read_space, tune

        tuning = tune(
            recipe,
            read_space(space),
            data=data,
            validation=validation,
            folder=study,
            private=private or (),
            declared_public=declared_public,
            trials=trials,
            sampler=sampler.value,
            seed=seed,
            progress=ProgressBar(),
        )
        if out is not None:
            with storage_errors(f"writing {out}"):
                out.write_text(tuning.to_yaml(), encoding="utf-8")
        show(tuning.to_json(), as_json, lambda: _render(tuning, out))


def _render(tuning: Tuning, out: Path | None) -> None:
    rows = [
        {
            "trial": trial.number,
            "score": "-" if trial.score is None else f"{trial.score:.4f}",
            "seconds": f"{trial.seconds:.1f}",
            **{name: f"{value:.3g}" if isinstance(value, float) else value for name, value in trial.values.items()},
        }
        for trial in sorted(tuning.trials, key=lambda trial: (trial.score is None, -(trial.score or 0.0)))
    ]
    print_table("trials, the best first", rows[:SHOWN])
    for problem in sorted({trial.problem for trial in tuning.trials if trial.problem}):
        typer.echo(f"not trained: {problem}")
    typer.echo(f"best: trial {tuning.best.number}, {tuning.best.score:.4f}{'' if out is None else f', in {out}'}")
