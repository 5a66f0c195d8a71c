"""Selector of all orders (paper, Section 3.2)."""

from __future__ import annotations

import itertools
import math

from s3t.errors import SettingError
from s3t.sequences.selector import Order, Setting

MAX_FULL_SLICES = 8
"""8! = 40,320 orders."""


def full(setting: Setting) -> tuple[Order, ...]:
    """All L! orders; the budget must be L!, and L at most 8.

    Raises:
        SettingError: another budget, or more slices.

    >>> len(full(Setting(slices=4, budget=24)))
    24
    """
    problem = full_problem(setting)
    if problem is not None:
        raise SettingError(problem)
    return tuple(itertools.permutations(range(setting.slices)))


def full_problem(setting: Setting) -> str | None:
    """The reason why the setting is not one of all orders; None if it is."""
    slices = setting.slices
    if slices > MAX_FULL_SLICES:
        return f"full takes at most {MAX_FULL_SLICES} slices, not {slices}; take survival and a smaller budget"
    total = math.factorial(slices)
    if setting.budget != total:
        return f"full takes all {total} orders of {slices} slices, not {setting.budget}; set the budget to {total}"
    return None
