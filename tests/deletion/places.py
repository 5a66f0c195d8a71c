"""Every place that can hold a record's bytes or influence, in one list, in the order in which erasure walks it.

A test watches a whole run and fails on a file that no entry names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class StoragePlace:
    """A kind of file, or another place where bytes lie."""

    name: str
    folder: Literal["run", "state", "elsewhere"]
    """The run folder, the state folder (`witness.py`), or neither."""
    pattern: str
    """Shell pattern of paths relative to that folder; "" elsewhere."""
    where: str
    """Description for readers."""
    holds: str
    """Parts of a record that can be in it."""
    erased: str | None
    """The way in which they leave it when the record is deleted; None if there is nothing to erase."""


def _elsewhere(name: str, where: str, *, holds: str, erased: str) -> StoragePlace:
    return StoragePlace(name=name, folder="elsewhere", pattern="", where=where, holds=holds, erased=erased)


def _in_run(name: str, pattern: str, *, holds: str, erased: str | None) -> StoragePlace:
    return StoragePlace(name=name, folder="run", pattern=pattern, where=pattern, holds=holds, erased=erased)


PLACES = (
    _elsewhere(
        "memory",
        "memory of processes that have the run open",
        holds="encoded records, the trunk's states of them; blocks, heads and merged weights that have answered",
        erased="dropped before the deletion counts as erased; computations with them stop",
    ),
    _elsewhere(
        "trunk cache",
        "unnamed files of training processes, on the run folder's disk",
        holds="the trunk's states of records, where memory has no room",
        erased="freed when the process lets go of the slice, or ends",
    ),
    _in_run(
        "artifacts",
        "artifacts/shard-*/*.safetensors",
        holds="blocks and heads trained on it; class means of its slice; with ridge its features and label, and sums "
        "with them",
        erased="every artifact above the slice is removed, at once",
    ),
    _in_run(
        "manifests",
        "artifacts/shard-*/*.json",
        holds="keyed digests of its slice; the artifact's score on public records",
        erased="removed with its artifact",
    ),
    _elsewhere(
        "exports",
        "folders of s3t export, with its name or as .s3t-export-MACHINE-PROCESS-NUMBER; servers that loaded it; copies",
        holds="blocks and heads trained on it, perhaps in the weights of a whole model",
        erased="its files are removed at once where s3t wrote them; the deletion waits until the export is withdrawn",
    ),
    StoragePlace(
        name="memory of exports",
        folder="state",
        pattern="*.exports",
        where="S3T_STATE, beside it",
        holds="keyed digests of its slice, keys of stages trained on it, hashes of exported files",
        erased=None,
    ),
    _in_run(
        "temporary files",
        "tmp/*",
        holds="a slice or an artifact while it is written",
        erased="renamed or removed at once; a killed process's, by the next deletion or opening",
    ),
    _elsewhere(
        "unfinished runs",
        "beside the run, or where a clone was to be, as .RUN.init-MACHINE-PROCESS-NUMBER",
        holds="all records, if init or clone was killed",
        erased="removed by the next init of that name, opening or deletion (another machine's, after a day)",
    ),
    _elsewhere(
        "records of init",
        "unnamed files of init, add and sync, on the run folder's disk",
        holds="all records, and keyed hashes of their ids and subjects",
        erased="freed when they end, or are killed; a deletion waits for that before it counts as erased",
    ),
    _in_run(
        "slices",
        "slices/shard-*/slice-*.parquet",
        holds="the record itself",
        erased="the slice gets a version without it, at once or within deletion.erase_within; the old one is removed",
    ),
    _in_run(
        "public records",
        "public.parquet",
        holds="nothing",
        erased=None,
    ),
    _in_run(
        "ledger",
        "ledger.sqlite*",
        holds="the keyed hash of its id and subject, its slice's keyed digest, and how long stages on it trained",
        erased="its rows go, also from log and free pages; a deleted record's token stays",
    ),
    StoragePlace(
        name="witness",
        folder="state",
        pattern="*.deletions",
        where="S3T_STATE, by default ~/.local/state/s3t",
        holds="the keyed hash of its id",
        erased=None,
    ),
    _in_run("description", "run.json", holds="nothing, but the label set of labels: infer", erased=None),
    _in_run("recipe", "recipe.yaml", holds="nothing", erased=None),
    _in_run("secret", "secret", holds="nothing", erased=None),
    _in_run("home", "home", holds="nothing", erased=None),
    _in_run("lock", "lock", holds="nothing", erased=None),
)
