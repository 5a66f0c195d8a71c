"""Where things lie in a run folder, and the two small files that describe it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from s3t.disk import storage_errors, write_bytes_durably
from s3t.errors import IntegrityError, RunFolderError
from s3t.ledger import Ledger
from s3t.ledger.locks import FileRunLock, needed
from s3t.partition import Secret
from s3t.recipe import Recipe, recipe_from
from s3t.run.secret import write_secret
from s3t.sequences import Order
from s3t.stages.key import AS_ONCE

RUN_FORMAT = 4
"""Of the folder. 1 had neither a run id nor a choice of ledger; it is brought up to date, to 2. Recipes of older ones
lack fields of `stages.key.AS_ONCE`: 1 and 2 all of them, 3 `fused_lora`. Newer formats are not opened."""


@dataclass(frozen=True)
class Layout:
    """Paths in a run folder. deletion/places.py lists what each can hold of a record."""

    root: Path

    @property
    def description(self) -> Path:
        """What init decided, and the orders that came later."""
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
    def erasures(self) -> Path:
        """How often slices were rewritten in this folder: fewer times than in the ledger if it is an old one."""
        return self.root / "erasures"

    @property
    def slices(self) -> Path:
        """The records, a file a slice."""
        return self.root / "slices"

    @property
    def public(self) -> Path:
        """The public records that stages are tried on, if the recipe declares some."""
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
        """Held while a deletion goes on, or orders are added."""
        return self.root / "lock"


class Description(BaseModel):
    """What was decided when the run was made. Nothing of it changes, but that orders may be added."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = RUN_FORMAT
    version: str
    """Of s3t."""
    run: str
    """A random name of this run: a copy of its folder has the same."""
    ledger: str | None
    """The URL of its ledger's database, without a password; None for SQLite in the run folder."""
    labels: tuple[str, ...]
    """In the head's order; empty for a regression."""
    orders: tuple[tuple[Order, ...], ...]
    """For each shard its sequences, drawn from declared inputs; as many as the budget is now."""
    base_digest: str
    """Of the base model's files."""
    validation: str | None = None
    """The digest of the public records, if there are some."""
    secret_check: str
    """A keyed hash of nothing: another secret gives another, and is refused."""
    gaps: tuple[str, ...]
    """Where exactness does not hold, in words."""
    warnings: tuple[str, ...]
    """What init found odd but not wrong."""


def write_layout(layout: Layout, recipe: Recipe, description: Description, secret: Secret) -> None:
    """Write the describing files. The salt goes to its own file and nowhere else."""
    content = recipe.model_dump(mode="json", exclude={"partition": {"salt"}})
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_bytes_durably(layout.recipe, text.encode(), tmp=layout.tmp)
    write_secret(layout.secret, secret, tmp=layout.tmp)
    write_description(layout, description)


def write_description(layout: Layout, description: Description) -> None:
    """Write run.json, or replace it: durably, and whole or not at all."""
    described = description.model_dump_json(indent=2) + "\n"
    write_bytes_durably(layout.description, described.encode(), tmp=layout.tmp)


def read_description(layout: Layout) -> Description:
    """Read run.json.

    Raises:
        RunFolderError: the folder is no run, or one of another format.
        IntegrityError: the file is damaged.
    """
    where = str(layout.root)
    try:
        content: Any = json.loads(layout.description.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(where, ["is not a run (it has no run.json); make one with `s3t init`"]) from error
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{layout.description} cannot be read ({error}); restore it from a backup") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found == 1:
        content |= {"format": 2, "run": _name_in_format_1(layout, content), "ledger": None}
    elif found not in (2, 3, RUN_FORMAT):
        written = content.get("version", "an unknown version") if isinstance(content, dict) else "an unknown version"
        raise RunFolderError(
            where,
            [
                f"was written by s3t {written} in format {found}; this version reads formats 1 to {RUN_FORMAT}: "
                "install that version, or make a new run"
            ],
        )
    try:
        return Description.model_validate(content)
    except ValidationError as error:
        raise _damaged(layout, error) from error


def _name_in_format_1(layout: Layout, content: dict[str, Any]) -> str:
    """What every copy of a run has in common, and no other run of the same salt has."""
    made = f"{content.get('secret_check')} {Ledger.made_at(layout.ledger)!r}"
    return sha256(made.encode()).hexdigest()[:16]


def read_layout(layout: Layout) -> tuple[Recipe, Description]:
    """Read the describing files, but for the secret. A folder of format 1 is brought up to date first.

    Raises:
        RunFolderError: the folder is no run, or one of a newer format.
        IntegrityError: a describing file is damaged.
    """
    description = read_description(layout)
    if json.loads(layout.description.read_bytes())["format"] == 1:
        # Older versions then refuse it, as they must. Under the lock (in this format always a file), for who has that
        # sweeps temporary files.
        with needed(FileRunLock(layout.lock)), storage_errors("bringing the run up to date"):
            write_description(layout, description)
    try:
        content = yaml.safe_load(layout.recipe.read_text(encoding="utf-8"))
        if isinstance(content, dict) and isinstance(content["training"], dict):
            content["training"] = AS_ONCE | content["training"]
        recipe = recipe_from(content, where=str(layout.recipe))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _damaged(layout, error) from error
    return recipe, description


def read_erasures(layout: Layout) -> int:
    """How often slices were rewritten in this folder.

    Raises:
        IntegrityError: the file is damaged.
    """
    try:
        return int(layout.erasures.read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise _damaged(layout, error) from error


def write_erasures(layout: Layout, count: int) -> None:
    """Note how often slices were rewritten."""
    write_bytes_durably(layout.erasures, f"{count}\n".encode(), tmp=layout.tmp)


def _damaged(layout: Layout, error: Exception) -> IntegrityError:
    return IntegrityError(f"{layout.root}: a describing file is damaged ({error}); restore it from a backup")
