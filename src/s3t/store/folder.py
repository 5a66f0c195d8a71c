"""One run on a disk: paths, the two small files that describe it, and its home.

A copy of a run has its id, and with it the run's memory of deletions, or its database. A deletion in a copy would take
the run itself out of service. So before anything is changed the folder is compared with the note `home`, which has the
folder's path. It is the run's home if it has the noted path, or the noted folder's inode, wherever that is mounted or
was moved to on its file system. A backup that is put back in place is no copy; nor is a bind mount, a container's
volume or another host's mount of a network file system. Any other folder was copied, or moved across file systems.
Nobody can tell these apart: the user says which.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from s3t.core import Order, Secret
from s3t.errors import IntegrityError, MovedError, RecipeError, RunFolderError, S3TError, listed
from s3t.files import reason_of
from s3t.recipe import Recipe, RepairPolicy, recipe_from
from s3t.recipe.loading import read_yaml, to_yaml
from s3t.store.disk import write_bytes_durably
from s3t.store.secret import write_secret

RUN_FORMAT = 1
"""Format of the folder. Others are not opened."""
MOVED = "--moved (in Python: Run.open(..., moved=True))"
_RESTORE = "restore it from a backup of the run"


class Layout:
    """Paths in a run folder. docs/guarantees.md says what each can hold of a record."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.description = root / "run.json"  # decisions of init, and orders and policies of repair that came later
        self.recipe = root / "recipe.yaml"  # as given, every `auto` that decides bits resolved, without its salt
        self.secret = root / "secret"  # the salt; mode 0600, apart from the files that may be shared
        self.ledger = root / "ledger.sqlite"  # if the run has no other
        self.home = root / "home"  # note of the run's own folder, which tells it from copies
        self.slices = root / "slices"  # the records: versions of slices
        self.public = root / "public.parquet"  # public records that score stages, if the recipe declares some
        self.artifacts = root / "artifacts"
        self.tmp = root / "tmp"  # files being written
        self.lock = root / "lock"  # locked while a deletion goes on or orders are added


class Description(BaseModel, frozen=True, extra="forbid", hide_input_in_errors=True):
    """Decisions made at init. Only orders and policies of repair may be added later, each behind those before."""

    format: int = RUN_FORMAT
    version: str
    """Version of s3t that made the run."""
    run: str
    """Random id of the run; a copy of its folder has the same."""
    ledger: str | None
    """The URL of its ledger's database, without a password; None for SQLite in the run folder."""
    store: str | None
    """The URL below which slices and artifacts are, without the run's id; None for the run folder."""
    labels: tuple[str, ...]
    """Labels in the head's order; empty for a regression."""
    orders: tuple[tuple[Order, ...], ...]
    """Sequences of each shard, drawn from declared inputs; as many as the present budget."""
    repairs: tuple[RepairPolicy, ...] = ()
    """Policies of repair that came after the recipe's, the last of them in force."""
    base_digest: str
    """Digest of the base model's files."""
    validation: str | None = None
    """The digest of the public records, if there are some."""
    secret_check: str
    """A keyed hash of nothing: another secret gives another, and is refused."""
    recipe_check: dict[str, str] = {}
    """Keyed hashes of the recipe's fields (`recipe_check`); set when the files are written, as is `check`."""
    check: str = ""
    """Keyed hash of all other fields."""
    gaps: tuple[str, ...]
    """Sentences about where exactness does not hold."""
    warnings: tuple[str, ...]
    """Warnings of init about the recipe."""

    def present(self, recipe: Recipe) -> Recipe:
        """The recipe of init, with the budget and the policy of repair that the run has now."""
        sequences = recipe.sequences.model_copy(update={"budget": len(self.orders[0])})
        changed: dict[str, Any] = {"sequences": sequences}
        if self.repairs:
            changed["deletion"] = recipe.deletion.model_copy(update={"repair": self.repairs[-1]})
        return recipe.model_copy(update=changed)


def write_layout(layout: Layout, recipe: Recipe, description: Description, secret: Secret) -> None:
    """Write the describing files. The salt goes to its own file and nowhere else."""
    content = recipe.model_dump(mode="json", exclude={"partition": {"salt"}})
    text = to_yaml(content, allow_unicode=True)
    write_bytes_durably(layout.recipe, text.encode(), tmp=layout.tmp)
    write_secret(layout.secret, secret, tmp=layout.tmp)
    checked = description.model_copy(update={"recipe_check": recipe_check(content, secret)})
    write_description(layout, checked, secret)


def write_description(layout: Layout, description: Description, secret: Secret) -> None:
    """Write run.json with its check, or replace it: durably, and whole or not at all."""
    content = description.model_dump(mode="json", exclude={"check"})
    described = description.model_copy(update={"check": _check_of(content, secret)}).model_dump_json(indent=2) + "\n"
    write_bytes_durably(layout.description, described.encode(), tmp=layout.tmp)


def read_description(layout: Layout) -> Description:
    where = str(layout.root)
    try:
        layout.root.lstat()
    except FileNotFoundError:
        pass  # reported below, as a folder without run.json
    except (OSError, ValueError) as error:  # a name that no folder can have
        raise RunFolderError(where, f"is not a run: {reason_of(error)}; check the path") from error
    try:
        content: Any = json.loads(layout.description.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(where, "is not a run (it has no run.json); make one with `s3t init`") from error
    except (OSError, ValueError, RecursionError) as error:
        raise IntegrityError(f"{layout.description} cannot be read ({error}); {_remedy(error)}") from error
    fields = content if isinstance(content, dict) else {}
    if (version := fields.get("format")) != RUN_FORMAT:
        if fields.get("check") is not None:
            raise IntegrityError(f"{layout.description}: its format is damaged; {_RESTORE}")
        raise RunFolderError(
            where,
            f"was written by s3t {fields.get('version', 'an unknown version')} in format {version}; this version "
            f"reads format {RUN_FORMAT}: install that version, or make a new run",
        )
    try:
        return Description.model_validate(content)
    except ValidationError as error:
        raise _damaged(layout, error) from error


def read_layout(layout: Layout) -> tuple[Recipe, dict[str, Any], Description]:
    """Read the describing files, but for the secret: the recipe, the fields that its file holds, and run.json."""
    description = read_description(layout)
    try:
        content = read_yaml(layout.recipe, ours=True)
        if not isinstance(content, dict):
            raise ValueError(f"{layout.recipe.name} holds no fields")
        recipe = recipe_from(content, where=str(layout.recipe))
        _check_orders(description, recipe)
    except (ValueError, RecipeError) as error:
        raise _damaged(layout, error) from error
    return recipe, content, description


def _check_orders(description: Description, recipe: Recipe) -> None:
    shards, slices = recipe.partition.shards, list(range(recipe.partition.slices))
    orders = description.orders
    if len(orders) != shards or len({len(shard) for shard in orders}) != 1 or not all(orders):
        raise ValueError(f"run.json has not the same number of orders for each of {shards} shards")
    if any(sorted(order) != slices for shard in orders for order in shard):
        raise ValueError(f"run.json has an order that is not one of {len(slices)} slices")


_MAY_CHANGE = {"training.cache_memory", "training.cache_disk", "training.checkpoint_minutes"}
"""Fields that change no result."""


def check_files(layout: Layout, recipe: dict[str, Any], secret: Secret) -> None:
    """Check that run.json and recipe.yaml hold what was written, except recipe fields that change no result.

    `recipe` has the fields of recipe.yaml, as read. Nothing is looked at after the secret was destroyed.
    """
    if secret.salt is None:
        return
    content = json.loads(layout.description.read_bytes())
    check = content.pop("check", None)
    if check != _check_of(content, secret):
        raise IntegrityError(f"{layout.description} changed outside of s3t: its check fails; {_RESTORE}")
    wanted, found = content.get("recipe_check", {}), recipe_check(recipe, secret)
    if changed := [name for name in wanted | found if wanted.get(name) != found.get(name)]:
        raise IntegrityError(
            f"{layout.recipe} changed since the run was made, in {listed(changed)}. A run's recipe cannot change, but "
            f"for training.cache_memory, cache_disk and checkpoint_minutes; {_RESTORE}"
        )


def recipe_check(recipe: dict[str, Any], secret: Secret) -> dict[str, str]:
    """Keyed hash of each recipe field that cannot change once the run is made, by its name."""
    fields = {name: value for name, value in recipe.items() if not isinstance(value, dict)}
    for name, section in recipe.items():
        if isinstance(section, dict):
            fields |= {f"{name}.{inner}": value for inner, value in section.items()}
    return {name: _check_of([name, value], secret) for name, value in fields.items() if name not in _MAY_CHANGE}


def _check_of(content: Any, secret: Secret) -> str:
    return secret.token("file", "json", json.dumps(content, sort_keys=True)).hex()


def _damaged(layout: Layout, error: Exception) -> IntegrityError:
    return IntegrityError(f"{layout.root}: a describing file is damaged ({error}); {_remedy(error)}")


def _remedy(error: Exception) -> str:
    return "mend its permissions" if isinstance(error, PermissionError) else "restore it from a backup"


@dataclass(frozen=True, kw_only=True)
class Home:
    """Identity of a folder among its copies."""

    path: str
    """Absolute, without symbolic links."""
    inode: int
    """Inode of the folder. Files may be hard links of another folder's, as some backups make them; folders may not."""
    file_system: int
    """The file system's own number, which outlives a mount; 0 where it has none, as over NFS."""

    @classmethod
    def of(cls, folder: Path, *, named: Path | None = None) -> Home:
        """The identity of an existing folder; `named`: its future path."""
        path = os.path.realpath(folder if named is None else named)
        return cls(path=path, inode=folder.stat().st_ino, file_system=os.statvfs(folder).f_fsid)

    def is_folder_of(self, other: Home) -> bool:
        """True if both are one folder, by whatever path."""
        return (self.inode, self.file_system) == (other.inode, other.file_system)


def lasting_identity(folder: Path) -> str:
    """Inode and file system of an existing folder, to compare; unlike a device's number they outlive a mount."""
    home = Home.of(folder)
    return f"{home.inode} {home.file_system}"


def write_home(layout: Layout, home: Home) -> None:
    """Note a run's home. The caller holds the run's lock, or no other process knows the folder."""
    write_bytes_durably(layout.home, (json.dumps(asdict(home)) + "\n").encode(), tmp=layout.tmp)


def read_home(layout: Layout) -> Home | None:
    """The noted home; None if there is no note."""
    try:
        content = json.loads(layout.home.read_bytes())
        return Home(path=str(content["path"]), inode=content["inode"], file_system=content["file_system"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{layout.home} is damaged ({error})") from error


def moved_error(layout: Layout, *, run: str) -> MovedError | None:
    """The error if the folder is not the run's home; None if it is, or if no home is noted."""
    try:
        noted = read_home(layout)
    except IntegrityError as error:
        return MovedError(f"{error}: if {layout.root} is the run and no copy of it, say so with {MOVED}")
    here = Home.of(layout.root)
    if noted is None or noted.path == here.path:
        return None
    also_there = _is_there(noted, run=run, here=here)
    if noted.is_folder_of(here) and not also_there:
        return None
    adopt = f"to make it a run of its own, run `s3t clone --adopt {layout.root}`"
    if also_there:
        copied = MovedError(f"{layout.root} is a copy of the run in {noted.path}: change that one, or, {adopt}")
        copied.certainly_a_copy = True
        return copied
    return MovedError(
        f"{layout.root} is a copy of the run that was in {noted.path}, or that run was moved here: if it was moved, "
        f"say so with {MOVED}; if it is a copy, {adopt}"
    )


def _is_there(noted: Home, *, run: str, here: Home) -> bool:
    """True if another folder of the run is at the noted path."""
    folder = Path(noted.path)
    try:
        return not Home.of(folder).is_folder_of(here) and read_description(Layout(folder)).run == run
    except (OSError, S3TError):
        return False
