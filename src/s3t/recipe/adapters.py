"""The adapters that are exact, and the reasons to refuse others.

An adapter is allowed under two conditions. Its initial tensors depend on a seed and public base weights alone, and its
training leaves every base tensor unchanged. The list is of what is allowed; a new PEFT option is refused until somebody
has read what it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CHANGES_BASE = "it rewrites the base weights, so switching the block off would not give back the pre-trained layer"
_FITTED = (
    "it is fitted on the training data before the first step, so records would leak across slices and "
    "could not be taken out"
)

REFUSED_INITS: Final[Mapping[str, str]] = {
    "pissa": _CHANGES_BASE,
    "olora": _CHANGES_BASE,
    "loftq": _CHANGES_BASE,
    "eva": _FITTED,
    "corda": _FITTED,
    "lora_ga": _FITTED,
}


def init_problem(value: bool | str) -> str | None:
    """The reason to refuse `init_lora_weights: value`; None where it is allowed (`true` or `gaussian`)."""
    if value is True or value == "gaussian":
        return None
    name = str(value).lower()
    reason = next(
        (why for refused, why in REFUSED_INITS.items() if name == refused or name.startswith(f"{refused}_")),
        "it is not on the list of inits known to be exact",
    )
    return f"init_lora_weights {value!r} is refused: {reason}; use true or gaussian"


def bias_problem(value: str) -> str | None:
    """The reason to refuse `bias: value`; None where it is allowed (`none`)."""
    if value == "none":
        return None
    return (
        f"bias {value!r} is refused: it trains the base model's own biases, which all blocks share and which "
        "would stay changed when a block is switched off; use none"
    )


def modules_to_save_problem(value: list[str] | None) -> str | None:
    """The reason to refuse `modules_to_save: value`; None where it is empty."""
    if not value:
        return None
    return (
        f"modules_to_save {value!r} is refused: it trains whole base modules across stages; the task head is "
        "trained and stored per stage already, so leave it out"
    )
