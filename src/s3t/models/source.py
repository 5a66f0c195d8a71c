"""Location of a base model, and the digest of those of its files that matter. No torch."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from s3t.errors import IntegrityError, RecipeError
from s3t.extras import extra_with, how_to_install
from s3t.files import is_folder
from s3t.wording import reason

PACKAGE_PREFIX = "package:"

# Weights (safetensors alone, never pickle), configurations, tokenizer files. Read-me files and other formats of the
# same weights change nothing and are left out. The folders hold a tokenizer's chat templates besides its default one,
# and sentence-transformers' pooling.
FILE_PATTERNS = (
    *("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "additional_chat_templates/*.jinja"),
    *("*.codes", "*.spm", "*.tokenizer", "*_Pooling/config.json"),
)

LOCAL: Mapping[str, bool] = {"local_files_only": True, "trust_remote_code": False}
"""Arguments of every `from_pretrained`: nothing is downloaded, and no code of a model's folder runs. Without the second
transformers asks on the standard input whether it may."""


def unfit(*problems: str) -> RecipeError:
    """The error for a base model, or a recipe of it, that s3t cannot train."""
    return RecipeError("the recipe", problems)


def files_that_matter(folder: Path) -> list[Path]:
    """Files of a base model that its digest covers, by path."""
    return sorted({path for pattern in FILE_PATTERNS for path in folder.glob(pattern) if path.is_file()})


def model_folder(base_model: str, *, revision: str | None = None) -> Path:
    """The folder of a base model: `package:NAME/PATH`, a folder, or a hub name (downloaded to the hub's cache)."""
    if base_model.startswith(PACKAGE_PREFIX):
        folder = _package_folder(base_model)
    elif is_folder(Path(base_model)):
        folder = Path(base_model)
    else:
        folder = _hub_folder(base_model, revision)
    weights = sorted(folder.glob("*.safetensors"))
    problems = [*_foreign(folder), *(problem for path in weights if (problem := _damage(path)) is not None)]
    if not (folder / "config.json").is_file():
        problems.append(f"{folder} has no config.json; name a transformers model")
    elif not weights:
        problems.append(f"{folder} has no .safetensors; pickled weights are not read, convert them first")
    if problems:
        raise unfit(*[f"base_model: {problem}" for problem in problems])
    return folder


def load_config(folder: Path) -> Any:
    """A base model's configuration, as transformers reads it."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, **LOCAL)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise unfit(f"base_model: {folder}/config.json cannot be used: {reason(error)}") from error


def layer_count(folder: Path) -> int:
    count = getattr(load_config(folder), "num_hidden_layers", None)
    if not isinstance(count, int):
        raise unfit(f"base_model: {folder}/config.json does not give its number of layers")
    return count


def _damage(weights: Path) -> str | None:
    try:
        with safe_open(weights, framework="numpy"):  # reads the header, and sees that the file is as long as it says
            return None
    except (OSError, SafetensorError) as error:
        return f"{weights} is not a readable safetensors file, perhaps truncated ({error}); get it again"


def _foreign(folder: Path) -> Iterator[str]:
    """Yields what of a folder would run code of its own, or take weights that the digest does not cover."""
    for path in sorted(folder.glob("*config*.json")):
        for field in dict.fromkeys(_code_fields(_json(path))):
            yield (
                f"the model brings code of its own ({field} in {path}), and s3t runs none; name a model of an "
                f"architecture that transformers has, or remove {field} there if it has this one"
            )
    adapters = sorted(path.name for path in folder.glob("adapter_*") if path.suffix in (".json", ".safetensors"))
    if adapters:
        yield (
            f"{folder} holds an adapter ({', '.join(adapters)}), which transformers would put on the model unseen; "
            "merge it into the model (PEFT's merge_and_unload) and name the merged one, or remove these files"
        )
    index = folder / "model.safetensors.index.json"
    shards = _json(index).get("weight_map", {}) if index.is_file() else {}
    missing = sorted({str(name) for name in shards.values()} - {path.name for path in folder.glob("*.safetensors")})
    if missing:
        yield f"{index} names {', '.join(missing[:3])}, which {folder} does not hold; get the whole model again"


def _json(path: Path) -> dict[str, Any]:
    """Content of a JSON file; empty where it is no mapping: whoever loads the model says so."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _code_fields(content: object) -> Iterator[str]:
    """Names of fields, at any depth, that say where code is."""
    if isinstance(content, list):
        for value in content:
            yield from _code_fields(value)
    if isinstance(content, dict):
        for name, value in content.items():
            kernel = name.endswith("_implementation") and "/" in str(value)  # of the hub: compiled code
            if value and (name in ("auto_map", "custom_pipelines") or kernel):
                yield name
            yield from _code_fields(value)


def model_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of the files that matter, hexadecimal."""
    contents = []
    for path in files_that_matter(folder):
        with path.open("rb") as file:
            contents.append([path.relative_to(folder).as_posix(), hashlib.file_digest(file, "sha256").hexdigest()])
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


def check_unchanged(folder: Path, digest: str) -> None:
    """Compare a base model with the one that a run was made with."""
    if model_digest(folder) != digest:
        raise IntegrityError(
            f"the base model in {folder} has changed since the run was made; put the old one back, or make a new run"
        )


def _package_folder(base_model: str) -> Path:
    package, _, inner = base_model.removeprefix(PACKAGE_PREFIX).partition("/")
    # find_spec locates a top-level package without running any of its code.
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        extra = extra_with(package)
        remedy = "install the one that carries it" if extra is None else f"install it with: {how_to_install(extra)}"
        raise unfit(f"base_model: the package {package!r} is not installed; {remedy}")
    folder = Path(spec.submodule_search_locations[0]) / inner
    if not is_folder(folder):
        raise unfit(f"base_model: the package {package!r} has no folder {inner!r}")
    return folder


def _hub_folder(name: str, revision: str | None) -> Path:
    import huggingface_hub  # here: its import is slow, and local models do not need it

    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=list(FILE_PATTERNS)))
    except Exception as error:
        # The hub's client raises its HTTP library's own errors when it is offline and nothing is cached.
        clients = ("httpx", "httpcore", "httpx2", "huggingface_hub", "requests")
        if not isinstance(error, OSError | ValueError) and type(error).__module__.partition(".")[0] not in clients:
            raise
        raise unfit(
            f"base_model: {name!r} is not a local folder, and the hub gave no such model ({reason(error)}); correct "
            "the name, or check the connection"
        ) from error
