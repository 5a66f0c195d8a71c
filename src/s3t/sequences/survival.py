"""Orders that keep the most alive: ours, not the paper's.

What a shard is worth after r deletions is F(depth of its best surviving prefix). This selector maximises its
expectation, averaged over a horizon of deletions, for any budget and any prior. The paper's rotations and BMS judge
each order alone, or how far orders lie apart; neither is what is served.

The tops come first: B <= L orders begin with B different slices, the least likely to be deleted, so that the deletion
rate is the best there is (paper, Lemma 1). Then orders are built one after another by beam search against what the
others leave to be gained, and built again, alone and a few together, while that helps. The search is bounded by a
number of evaluations, never by a clock, and its arithmetic is exact (see `hits`, `search`, `beam`). So a setting gives
the same orders on all machines with the same versions of Python, numpy and scipy.
"""

from __future__ import annotations

import numpy as np

from s3t.errors import SettingError
from s3t.progress import SILENT, Progress, telling
from s3t.sequences.bms import bms
from s3t.sequences.cyclic import cyclic
from s3t.sequences.hits import ENUMERATED_SLICES, Hits, hits_over
from s3t.sequences.search import Search, most_evaluations
from s3t.sequences.selector import Order, Setting
from s3t.sequences.sorted_cyclic import sorted_cyclic
from s3t.wording import counted

MAX_SURVIVAL_SLICES = 512
MAX_SAMPLED_DELETIONS = 256
"""Largest number in the horizon where sets of hit slices are sampled; 65,536 samples of it take 0.1 GB."""
LONG_EVALUATIONS = 10_000
"""Evaluations of a search from which on progress hears of it."""
_FINAL_SAMPLES = 2**16


def survival(setting: Setting, *, progress: Progress = SILENT) -> tuple[Order, ...]:
    """B distinct orders; never worth less, by `expected_worth`, than `cyclic`'s, `sorted_cyclic`'s or `bms`'s.

    Given orders are kept. If the evaluations are spent before every order is built (B times L above 160,000), the rest
    are cyclic.

    Args:
        setting: the setting.
        progress: hears of the search, if that may take longer than about a second.

    Raises:
        SettingError: more than 512 slices, or a horizon too long to sample.

    >>> survival(Setting(slices=4, budget=2))
    ((0, 2, 1, 3), (1, 3, 0, 2))
    """
    problem = survival_problem(setting)
    if problem is not None:
        raise SettingError(problem)
    what = f"choosing {counted(setting.budget, 'order')} of {counted(setting.slices, 'slice')}"
    evaluations = most_evaluations(setting)
    listener = progress if evaluations >= LONG_EVALUATIONS else SILENT
    with telling(listener, what, evaluations):
        searched = Search(setting, steps=listener).run()
    if setting.given:
        return searched
    rivals = [sorted_cyclic(setting), cyclic(setting), *([bms(setting)] if setting.budget <= setting.slices else [])]
    judge = _judging(setting)
    return max([searched, *rivals], key=lambda orders: expected_worth(orders, setting, judge))  # the first of equals


def survival_problem(setting: Setting) -> str | None:
    """The reason why `survival` has no orders for the setting; None if it has."""
    if setting.slices > MAX_SURVIVAL_SLICES:
        return f"survival takes at most {MAX_SURVIVAL_SLICES} slices, not {setting.slices}; take cyclic"
    if setting.slices > ENUMERATED_SLICES and max(setting.horizon) > MAX_SAMPLED_DELETIONS:
        return (
            f"survival looks at most {MAX_SAMPLED_DELETIONS} deletions ahead for more than {ENUMERATED_SLICES} slices, "
            f"not {max(setting.horizon)}; shorten the horizon"
        )
    return None


def expected_worth(orders: tuple[Order, ...], setting: Setting, hits: Hits | None = None) -> float:
    """The objective of `survival`: the mean over the horizon of the expected F(depth of the best surviving prefix).

    Exact for L <= 12 and for horizons of 1 and 2. Else the mean over 65,536 sampled deletion histories, the same for
    all orders (standard error below 0.002 L).
    """
    hits = hits or _judging(setting)
    best = np.zeros(len(hits.counts), dtype=np.int64)
    for order in orders:
        np.maximum(best, hits.depths(order), out=best)
    return float((hits.weights * np.asarray(setting.worth)[best]).cumsum()[-1])  # added up in one order everywhere


def _judging(setting: Setting) -> Hits:
    # Another seed than the search's: orders are not judged on the sample that they were fitted to.
    return hits_over(setting.horizon, setting.probabilities, samples=_FINAL_SAMPLES, seed=1_000_003 + 2 * setting.seed)
