"""Paths in a run folder, and the two small files that describe the run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from s3t.disk import reason_of, write_bytes_durably
from s3t.errors import IntegrityError, RecipeError, RunFolderError
from s3t.folder.secret import write_secret
from s3t.partition import Secret
from s3t.recipe import Recipe, RepairPolicy, recipe_from
from s3t.recipe.loading import read_yaml, to_yaml
from s3t.sequences import Order

RUN_FORMAT = 1
"""Format of the folder. Others are not opened."""


@dataclass(frozen=True)
class Layout:
    """Paths in a run folder. docs/guarantees.md says what each can hold of a record."""

    root: Path

    @property
    def description(self) -> Path:
        """Decisions of init, and the orders and policies of repair that came later."""
        return self.root / "run.json"

    @property
    def recipe(self) -> Path:
        """The recipe as given at init, every `auto` that decides bits resolved, without its salt."""
        return self.root / "recipe.yaml"

    @property
    def secret(self) -> Path:
        """The salt; mode 0600, apart from the files that may be shared."""
        return self.root / "secret"

    @property
    def ledger(self) -> Path:
        """The SQLite ledger, if the run has no other."""
        return self.root / "ledger.sqlite"

    @property
    def home(self) -> Path:
        """Note of the run's own folder, which tells it from copies (home.py)."""
        return self.root / "home"

    @property
    def slices(self) -> Path:
        """The records: versions of slices."""
        return self.root / "slices"

    @property
    def public(self) -> Path:
        """The public records that score stages, if the recipe declares some."""
        return self.root / "public.parquet"

    @property
    def artifacts(self) -> Path:
        """The artifact store."""
        return self.root / "artifacts"

    @property
    def tmp(self) -> Path:
        """Files being written."""
        return self.root / "tmp"

    @property
    def lock(self) -> Path:
        """Lock file, locked while a deletion goes on or orders are added."""
        return self.root / "lock"


class Description(BaseModel):
    """Decisions made at init. Only orders and policies of repair may be added later, each behind those before."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    format: int = RUN_FORMAT
    version: str
    """Version of s3t that made the run."""
    run: str
    """Random id of the run; a copy of its folder has the same."""
    ledger: str | None
    """The URL of its ledger's database, without a password; None for SQLite in the run folder."""
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
    recipe_check: str = ""
    """Keyed hash of the recipe (`recipe_check`); set when the files are written, as is `check`."""
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
    """Read run.json."""
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
    version = content.get("format") if isinstance(content, dict) else None
    if version != RUN_FORMAT and isinstance(content, dict) and content.get("check") is not None:
        raise IntegrityError(f"{layout.description}: its format is damaged; {_RESTORE}")
    if version != RUN_FORMAT:
        written = content.get("version", "an unknown version") if isinstance(content, dict) else "an unknown version"
        raise RunFolderError(
            where,
            f"was written by s3t {written} in format {version}; this version reads format {RUN_FORMAT}: "
            "install that version, or make a new run",
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


def check_files(layout: Layout, recipe: dict[str, Any], secret: Secret) -> None:
    """Check that run.json and recipe.yaml hold what was written, except recipe fields that change no result.

    Args:
        recipe: the fields of its recipe.yaml, as read; to parse it takes longer than all else here.
        secret: the run's; nothing is looked at after it was destroyed.
    """
    if secret.salt is None:
        return
    content = json.loads(layout.description.read_bytes())
    check = content.pop("check", None)
    if check != _check_of(content, secret):
        raise IntegrityError(f"{layout.description} changed outside of s3t: its check fails; {_RESTORE}")
    if content.get("recipe_check") != recipe_check(recipe, secret):
        raise IntegrityError(
            f"{layout.recipe} changed since the run was made: its check fails. A run's recipe cannot change, but for "
            f"training.cache_memory and training.cache_disk; {_RESTORE}"
        )


def recipe_check(recipe: dict[str, Any], secret: Secret) -> str:
    """Keyed hash of the recipe fields that cannot change once the run is made."""
    training = {name: value for name, value in recipe["training"].items() if not name.startswith("cache_")}
    return _check_of(recipe | {"training": training}, secret)


def _check_of(content: dict[str, Any], secret: Secret) -> str:
    return secret.token("file", "json", json.dumps(content, sort_keys=True)).hex()


_RESTORE = "restore it from a backup of the run"


def _damaged(layout: Layout, error: Exception) -> IntegrityError:
    return IntegrityError(f"{layout.root}: a describing file is damaged ({error}); {_remedy(error)}")


def _remedy(error: Exception) -> str:
    return "mend its permissions" if isinstance(error, PermissionError) else "restore it from a backup"
