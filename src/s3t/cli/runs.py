"""Commands that make a run and look after it: init, ids, train, repair, extend, status, audit, clone, export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import s3t
from s3t.cli.delete import print_repair
from s3t.cli.display import (
    in_hours,
    print_deletion,
    print_parts,
    print_status,
    print_training,
    print_unfinished,
    to_learn,
)
from s3t.cli.options import (
    AddressOption,
    CpusOption,
    DryRunOption,
    GpusOption,
    MovedOption,
    NewLabelsOption,
    OnOption,
    QueryOption,
    ReadmitOption,
    RunArgument,
    RunOrServerArgument,
    SbatchOption,
    UrlOption,
    WorkersOption,
    data_of,
    engine_of,
    number_of,
    opened,
    share_of,
)
from s3t.cli.output import Output
from s3t.errors import InputError
from s3t.progress import ProgressBar
from s3t.wording import counted, numbers

if TYPE_CHECKING:
    from s3t.run.extension import Extension

LEAST_DEPTH = 0.1
"""Mean depth, in slices, below which a shard is as good as dead with any orders."""


def init(
    run: RunArgument,
    data: Annotated[
        Path, Option(metavar="FILE", help="Records: .csv, .tsv, .json, .jsonl, also compressed, .parquet, or a folder.")
    ],
    recipe: Annotated[Path, Option(metavar="YAML", help="The recipe; fields in docs/recipe.md.")],
) -> Iterator[Output]:
    """Make a run: check recipe and records, assign records to slices, draw the orders, write the folder RUN.

    Nothing is trained yet. If anything is wrong, all problems are listed and no folder is left. Notes tell of repeated
    records, equal features with different labels, and texts cut by text.max_length. Empty slices, and stages of few
    steps, are warned of before anything is written: with the epochs that would do, and the time that they take here.
    """
    with s3t.Run.create(run, recipe=recipe, data=data, progress=ProgressBar()) as created:
        status, notices = created.status(), created.notices
    if s3t.load_recipe(recipe).partition.salt is not None:
        typer.echo(
            f"s3t: {recipe} declares the salt, so it outlives `s3t destroy-key`: remove it there before that, or "
            "leave it out, and init draws one that the run alone has",
            err=True,
        )
    yield Output(status.to_json() | {"notices": list(notices)})
    print_status(status.model_copy(update={"advice": ()}), run)  # it was told before anything was written
    for notice in notices:
        typer.echo(f"note: {notice}")


def ids(
    data: Annotated[Path, Argument(metavar="FILE", help="Records: .csv, .jsonl or .parquet.")],
    recipe: Annotated[Path, Option(metavar="YAML", help="The recipe that names the columns.")],
) -> Iterator[Output]:
    """Print the id of every record of a file, one a line: what `delete` asks for where there is no id column.

    They are in the order of the rows. FILE must fit the recipe, labels included.
    """
    found = s3t.record_ids(data, s3t.load_recipe(recipe))
    yield Output({"ids": found})
    for record in found:
        typer.echo(record)


def train(
    run: RunArgument,
    workers: WorkersOption = None,
    on: OnOption = None,
    address: AddressOption = None,
    cpus_per_worker: CpusOption = None,
    gpus_per_worker: GpusOption = None,
    sbatch: SbatchOption = None,
    evaluate: Annotated[
        Path | None, Option(metavar="FILE", help="New labelled records to measure on; else the recipe's public ones.")
    ] = None,
    moved: MovedOption = False,
) -> Iterator[Output]:
    """Train every missing stage. May be killed and run again: what is stored is not trained twice.

    Shallow stages come first, so that every shard can answer soon. Progress shows each epoch's loss: the mean over its
    records of cross-entropy, or of squared error.
    """
    engine = engine_of(on, address, cpus_per_worker, gpus_per_worker, sbatch)
    with s3t.Run.open(run, moved=moved) as target:
        if evaluate is not None:
            target.check_labelled(evaluate)
        done = target.train(workers=number_of(workers), engine=engine, progress=ProgressBar())
        status, measured = target.status(), None
        if evaluate is not None or (target.parts.public is not None and status.answering):
            measured = target.evaluate(evaluate, progress=ProgressBar())
    yield Output(done.to_json() | ({} if measured is None else {"evaluation": measured}))
    print_training(done, status, run)
    if measured is not None:
        note = "" if evaluate else ". These are the recipe's public records, by which depths are chosen"
        typer.echo(f"{measured.sentence}{note}")
        print_parts(measured)


def add(
    run: RunArgument,
    data: Annotated[str, Option(metavar="FILE", help="More records, as for s3t init.")],
    query: QueryOption = None,
    replace: Annotated[
        bool, Option("--replace", help="Rows whose id is there are changes: the old record is deleted for the new one.")
    ] = False,
    readmit: ReadmitOption = False,
    new_labels: NewLabelsOption = None,
    moved: MovedOption = False,
) -> Iterator[Output]:
    """Take more records in, each in the slice that the run's secret names: all of FILE, or, if anything is wrong, none.

    They may be deleted at once. s3t train has them learned, or the recipe's additions.learn_every; until then the run
    answers as before. An id that is there, and a name that was deleted, are refused, unless options say otherwise.
    """
    with s3t.Run.open(run, moved=moved) as target:
        asked: dict[str, Any] = {"replace": replace, "readmit": readmit, "new_labels": new_labels or ()}
        done = target.add(data_of(data, query), **asked, progress=ProgressBar())
        status = None if done.training is None else target.status()
    yield from _told_of(done, status, run)


def sync(
    run: RunArgument,
    data: Annotated[str, Option(metavar="TABLE", help="All records that the run is to hold, as for s3t init.")],
    query: QueryOption = None,
    readmit: ReadmitOption = False,
    new_labels: NewLabelsOption = None,
    max_deletions: Annotated[
        str, Option(metavar="SHARE", help="Refuse if more of the run's records are gone or have changed.")
    ] = "1%",
    dry_run: DryRunOption = False,
    moved: MovedOption = False,
) -> Iterator[Output]:
    """Make the run equal to a table, by ids: take in what is new, delete what is gone, replace what has changed.

    All in one step, or, if anything is wrong, nothing; nothing happens where nothing differs. The same records stay
    learned; s3t train learns the new ones. A table that is cut short would delete people: --max-deletions refuses it.

        s3t sync RUN --data customers.parquet --dry-run
        s3t sync RUN --data postgresql+psycopg://me@db/shop --query 'select id, text, label from tickets'
    """
    with s3t.Run.open(run, moved=moved) as target:
        most = share_of(max_deletions, "--max-deletions")
        asked: dict[str, Any] = {"readmit": readmit, "new_labels": new_labels or (), "max_deletions": most}
        done = target.sync(data_of(data, query), **asked, dry_run=dry_run, progress=ProgressBar())
        status = None if done.training is None else target.status()
    yield from _told_of(done, status, run)


def expire(
    run: RunArgument,
    max_deletions: Annotated[
        str, Option(metavar="SHARE", help="Refuse if more of the run's records are too old: the clock may be wrong.")
    ] = "10%",
    dry_run: DryRunOption = False,
    moved: MovedOption = False,
) -> Iterator[Output]:
    """Delete the records that are older than the recipe's retention allows, as s3t delete does.

    A server does it by itself, every hour.
    """
    with s3t.Run.open(run, moved=moved) as target:
        most = share_of(max_deletions, "--max-deletions")
        done = target.expire(max_deletions=most, dry_run=dry_run, progress=ProgressBar())
    yield Output(done, failed=done.repair_failed is not None)
    _print_gone(done, run)


def _print_gone(done: s3t.Deletion, run: Path) -> None:
    print_deletion(done, run)
    print_repair(done)
    if done.repair_failed is not None:
        typer.echo(f"s3t: the deletion is done; the repair failed: {done.repair_failed}", err=True)


def _told_of(done: s3t.Added, status: s3t.Status | None, run: Path) -> Iterator[Output]:
    """Tell what came in, and what was deleted for it."""
    unrepaired = done.deletion is not None and done.deletion.repair_failed is not None
    yield Output(done, failed=done.training_failed is not None or unrepaired)
    would, new = "would be " if done.dry_run else "", counted(done.records - done.replaced, "record")
    came = f", {done.readmitted} of whom had been deleted" if done.readmitted else ""
    came += f"; new labels: {', '.join(done.new_labels)}" if done.new_labels else ""
    came += f"; {counted(done.too_old, 'row')} too old, left out" if done.too_old else ""
    if done.addition is None:
        typer.echo(f"{new} {would}taken in, {done.replaced} replaced, {done.unchanged} as before{came}")
    else:
        others = f", {done.replaced} replaced, {done.unchanged} as before" if done.replaced or done.unchanged else ""
        typer.echo(f"addition {done.addition}: {new} taken in{others}{came}")
    if done.deletion is not None:
        _print_gone(done.deletion, run)
    for notice in done.notices:
        typer.echo(f"note: {notice}")
    if done.training_failed is not None:
        typer.echo(f"s3t: they could not be learned: {done.training_failed}", err=True)
    if done.training is not None and status is not None:
        print_training(done.training, status, run)
    elif done.to_learn:
        typer.echo(to_learn(done.to_learn, run))


def repair(
    run: RunArgument,
    workers: WorkersOption = None,
    on: OnOption = None,
    address: AddressOption = None,
    cpus_per_worker: CpusOption = None,
    gpus_per_worker: GpusOption = None,
    sbatch: SbatchOption = None,
    hours: Annotated[
        float | None, Option(help="Begin no stage after so many hours. What is worth most for its time comes first.")
    ] = None,
    moved: MovedOption = False,
) -> Iterator[Output]:
    """Train what deletions cost: only the stages that are missing, each from its surviving parent.

    Afterwards the artifacts are, byte for byte, those of a run that never saw the deleted records.
    """
    engine = engine_of(on, address, cpus_per_worker, gpus_per_worker, sbatch)
    with s3t.Run.open(run, moved=moved) as target:
        done = target.repair(workers=number_of(workers), engine=engine, hours=hours, progress=ProgressBar())
        status = target.status()
    yield Output(done)
    print_training(done, status, run)


def extend(
    run: RunArgument,
    budget: Annotated[int | None, Option(metavar="B", help="Orders a shard, more than it has now, up to L!.")] = None,
    spares: Annotated[
        int | None, Option(metavar="N", help="If repaired as needed: chains beside the main one, fewer than L.")
    ] = None,
    spare_depth: Annotated[int | None, Option(metavar="K", help="If repaired as needed: slices of each spare.")] = None,
    policy: Annotated[
        str | None, Option(metavar="POLICY", help="Another deletion.repair: eager, or '{policy: as-needed, depth: 3}'.")
    ] = None,
    workers: WorkersOption = None,
    dry_run: DryRunOption = False,
    anyway: Annotated[bool, Option("--anyway", help="Add orders that make no shard survive longer, too.")] = False,
    moved: MovedOption = False,
) -> Iterator[Output]:
    """Add orders, or spares, to every shard, so that it survives more deletions, and train the stages that are missing.

    The old orders stay, and stay first. If the training is killed, s3t train goes on where it was. Orders that would
    add no survival are refused unless --anyway is given, or the recipe uses them (prediction.ensemble: sequences,
    prediction.select: validation). A run that is repaired as needed takes --spares, --spare-depth, or both. --policy
    changes between such a run and one with fixed orders; orders and live stages are kept.
    """
    with s3t.Run.open(run, moved=moved) as target:
        asked = {"budget": budget, "spares": spares, "spare_depth": spare_depth, "policy": _parsed(policy)}
        forecast = target.extension(**asked, progress=ProgressBar())
        told = _told(forecast)
        if not dry_run:
            if forecast.buys_nothing and not anyway:
                remedy = "give --anyway to train them all the same, or deepen shards with s3t repair"
                raise InputError("the budget", f"{told}; {remedy}")
            typer.echo(told, err=True)
            done = target.extend(**asked, workers=number_of(workers), progress=ProgressBar())
            status = target.status()
    if dry_run:
        yield Output(forecast)
        typer.echo(told)
        return
    bought = {name: forecast.to_json()[name] for name in ("budget", "repair", "gain")}
    yield Output({**bought, **done.to_json()})
    typer.echo(f"{forecast.described} now")
    print_training(done, status, run)


def _parsed(policy: str | None) -> Any:
    """A policy from YAML; what is wrong with its fields is found when they are checked."""
    if policy is None:
        return None
    from s3t.recipe.loading import parse_yaml

    try:
        return parse_yaml(policy)
    except ValueError as error:
        raise InputError("the policy", f"{error}. Quote it for the shell: '{{policy: as-needed, depth: 3}}'") from None


def _told(extension: Extension) -> str:
    """Costs and gain of an extension, in one line."""
    lost = f" and {extension.lost_stages} that are missing already" if extension.lost_stages else ""
    hours = "" if extension.hours is None else f", {in_hours(extension.hours)}"
    gain = extension.gain
    changes = ", ".join(
        f"{before:.2f} -> {after:.2f} after {count}"
        for count, before, after in zip(gain.deletions, gain.before, gain.after, strict=True)
        if after >= LEAST_DEPTH
    )
    nothing = ": these orders add no survival" if extension.buys_nothing else ""
    return (
        f"{counted(extension.stages, 'stage')} to train for {extension.described}{lost}{hours}; expected depth of a "
        f"shard by deletions in it: {changes}{nothing}"
    )


def status(run: RunOrServerArgument = None, url: UrlOption = None) -> Iterator[Output]:
    """Show what is alive and what serves, what is not erased yet, and how many more deletions the run will take."""
    with opened(run, url) as target:
        found = target.status() if run is None else target.status(full=True)
    yield Output(found)
    print_status(found, run or url)
    print_unfinished(found, run or url)
    typer.echo(f"ledger: {found.ledger}" + (f", store: {found.store}" if found.store else ""))


def audit(
    run: RunArgument,
    replay: Annotated[int, Option(metavar="N", min=0, help="Train N live stages again and compare their bytes.")] = 0,
    seed: Annotated[
        int | None, Option(help="Seed that chooses the stages to replay. By default the choice is unpredictable.")
    ] = None,
) -> Iterator[Output]:
    """Check that all that may serve is what today's slices ask for: keys, bytes, parents; then replay N stages.

    It also checks the base model's files, every row and page of the ledger, and every record of the slices. It checks
    the memory of deletions and the public records, and that no artifact is unnamed. SQLite's integrity_check checks
    pages, or PostgreSQL's extension amcheck where the role may use it. Exit status 1 if anything is wrong.
    """
    with s3t.Run.open(run) as target:
        report = target.audit(replay=replay, seed=seed, progress=ProgressBar())
    yield Output(report, failed=not report.ok)
    verdict = "no mismatch" if report.warnings else "nothing is wrong"
    verdict = verdict if report.ok else f"{len(report.mismatches)} wrong"
    typer.echo(f"{counted(report.checked, 'stage')} checked, {len(report.replayed)} replayed: {verdict}")
    for mismatch in report.mismatches:
        typer.echo(", ".join(f"{name} {value}" for name, value in mismatch.items()))
    for warning in report.warnings:
        typer.echo(f"warning: {warning}")


def clone(
    run: Annotated[Path, Argument(metavar="RUN", help="The run's folder; with --adopt the copy's.")],
    copy: Annotated[Path | None, Argument(metavar="[COPY]", help="A folder that does not exist.")] = None,
    adopt: Annotated[
        bool, Option("--adopt", help="RUN is a copy of a folder: make it a run of its own where it is.")
    ] = False,
    store: Annotated[
        str | None,
        Option(metavar="URL", help="Bucket for slices and artifacts, s3://BUCKET/PREFIX; else as the run."),
    ] = None,
) -> Iterator[Output]:
    """Copy a run as a run of its own: its own id, ledger, lock and memory of deletions. It answers at once.

    A folder that was copied by other means answers only: a deletion in it would take the run out of service. --adopt
    makes it a clone. What was deleted from the run is deleted from the clone. Records, secret and artifacts are the
    run's; a ledger in PostgreSQL gets a schema of its own. Pending erasures come first. Afterwards the two are
    independent: delete records from both.
    """
    if adopt == (copy is not None) or (adopt and store is not None):
        raise InputError("the command", "name a run and a folder that does not exist, or a copy and --adopt")
    made = run if copy is None else copy
    with s3t.Run.adopt(run) if copy is None else s3t.Run.clone(run, copy, store=store) as target:
        found = target.status()
    yield Output(found)
    typer.echo(f"{made} is a run of its own now; delete records from both")
    print_status(found, made)


def export(
    run: RunArgument,
    output: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Folder in which each export gets a folder of its own, named by its content. Made if it is missing.",
        ),
    ] = None,
    shard: Annotated[int | None, Option(metavar="I", help="This shard alone; by default all that answer.")] = None,
    merge: Annotated[
        bool, Option("--merge", help="Write the whole model, the adapter folded into its weights, for transformers.")
    ] = False,
    engine: Annotated[
        str,
        Option(
            "--for",
            metavar="ENGINE",
            help="Reader of the adapter: peft, vllm or sglang. What the engine would refuse is refused here, with all "
            "reasons.",
        ),
    ] = "peft",
    withdrawn: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Export nothing: say that no copy of the export NAME is left, in no folder and in no server. "
            "Deletions wait for it no more. Refused while it is still there on this host.",
        ),
    ] = None,
    moved: MovedOption = False,
) -> Iterator[Output]:
    """Write the live chain of each shard for other programs: an adapter that PEFT loads, or a whole model.

    An export is a copy of what records were used for, and the run knows it. A deletion that hits it says so, and is not
    erased before the export is withdrawn: by --withdrawn, or by the command in deletion.export_hook.

        s3t export RUN --output adapters --for vllm
    """
    others = (shard, merge, engine) != (None, False, "peft")
    if (output is None) == (withdrawn is None) or (withdrawn is not None and others):
        problem = "name a folder with --output, or, without other options, an export with --withdrawn"
        raise InputError("the command", problem)
    with s3t.Run.open(run, moved=moved) as target:
        if output is None:
            status = target.withdraw(str(withdrawn))
        else:
            given: Any = engine  # checked with the other arguments
            report = target.export(output, shard=shard, merge=merge, engine=given, progress=ProgressBar())
    if output is None:
        yield Output(status)
        typer.echo(f"export {withdrawn} is withdrawn")
        print_unfinished(status, run)
        return
    yield Output(report)
    for one in report.exports:
        known = "" if one.new else " (it was there already)"
        models = (f"shard {each.shard}, slices {numbers(each.prefix)}" for each in (one.stage, *one.merged_with))
        typer.echo(f"{' and '.join(models)}: {one.path}{known}")
    for notice in report.notices:
        typer.echo(f"note: {notice}")
    typer.echo(f"s3t status {run} lists the exports; a deletion that hits one waits until it is withdrawn")
