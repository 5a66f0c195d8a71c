"""Storage of a run's secret: a file of its own, readable by its owner alone, or the environment.

It lies apart from what may be shared. Destroyed, it leaves tokens, digests and keys that nobody can test a guess
against.
"""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from s3t.core import Secret
from s3t.errors import InputError, IntegrityError, RecipeError
from s3t.recipe import Recipe
from s3t.store.disk import overwrite_durably, remove_durably, storage_errors, write_bytes_durably

VARIABLE = "S3T_SECRET"
FILE_VARIABLE = "S3T_SECRET_FILE"
"""Environment variable with the path of a file that holds it, as containers mount secrets."""


def secret_of_environment() -> Secret | None:
    """The secret that the environment holds, or the file that it names."""
    salt, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if not salt and path:
        with storage_errors(f"reading {FILE_VARIABLE}"):
            salt = Path(path).read_text().strip()
    return Secret(salt=salt) if salt else None


def secret_of_new_run(recipe: Recipe, *, recipe_name: str, public_data: bool) -> Secret:
    """The secret of a run that is being made: the recipe's salt, else the environment's, else one that is drawn. With
    public data a weak salt does no harm.
    """
    salt = recipe.partition.salt
    secret = (secret_of_environment() or Secret.draw()) if salt is None else Secret(salt=salt.get_secret_value())
    weakness = secret.weakness()
    if weakness is None or public_data:
        return secret
    harm = "anyone who has run.json can find it by trying all, and then test names against hashes of deleted ones"
    make = 'python -c "import secrets; print(secrets.token_hex(32))"'
    if salt is None:
        raise InputError(VARIABLE, f"{weakness}: {harm}; set it to what this prints: {make}")
    raise RecipeError(
        recipe_name,
        f"partition.salt: {weakness}: {harm}; leave it out, and init draws one, or take what {make} prints",
    )


def weak_secret_warning(secret: Secret) -> str | None:
    """Warnings in the status of a run whose salt is weak."""
    weakness = secret.weakness()
    return weakness and (
        f"the run's secret {weakness}: anyone who has run.json can find it by trying all, also after "
        "`s3t destroy-key`; make a new run whose salt is drawn by `s3t init`"
    )


def write_secret(path: Path, secret: Secret, *, tmp: Path) -> None:
    """Write the secret to a file of mode 0600, unless the environment holds it."""
    if secret != secret_of_environment():
        write_bytes_durably(path, secret.reveal().encode(), tmp=tmp)


def read_secret(path: Path, *, check: str) -> Secret:
    """The secret of this check value, from the environment or its file; one without a salt if there is neither."""
    given = secret_of_environment()
    if given is not None and hmac.compare_digest(check, given.check()):
        return given
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
    except FileNotFoundError:
        return Secret.destroyed()
    except OSError as error:
        raise IntegrityError(
            f"{path}: the run's secret cannot be read ({error.strerror}); mend its permissions"
        ) from error
    if not content.strip(b"\0"):  # it was being destroyed when a crash came
        return Secret.destroyed()
    if mode & 0o077:
        raise IntegrityError(f"{path}: others may read the run's secret; run `chmod 600 {path}`")
    secret = Secret(salt=content.decode(errors="replace"))  # bytes that are no text are not the secret either
    if not hmac.compare_digest(check, secret.check()):
        raise IntegrityError(f"{path} is not the secret that the run was made with; put the old one back")
    return secret


def destroy_secret(path: Path) -> None:
    """Overwrite the file and remove it; nothing if it is gone."""
    with storage_errors("destroying the run's secret"):
        if path.exists():
            overwrite_durably(path)
            remove_durably([path])
