"""How deep a shard still is after r deletions, exactly: inclusion-exclusion over the distinct unions of prefixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s3t.core import Order
from s3t.orders import Setting
from s3t.planning.simulation import retention

Floats = NDArray[np.float64]
Masks = NDArray[np.uint64]
"""N x W words: bit i of the L bits says whether slice i is in the set."""

MAX_TERMS = 2**20
"""Unions in an exact sum, at most; also 2^B of them."""
_MAX_ERROR = 1e-8


@dataclass(frozen=True, kw_only=True, eq=False)
class Retained:
    """P[depth >= k after r deletions in the shard].

    Attributes:
        probabilities: R x (L + 1), for k from 0 to L.
        exact: whether the probabilities are computed, not simulated.
    """

    probabilities: Floats
    exact: bool

    @property
    def expected_depth(self) -> Floats:
        """R numbers, 0..L: the sum of the probabilities over k >= 1."""
        return np.asarray(self.probabilities[:, 1:].sum(axis=1))


def retained(
    orders: Sequence[Order],
    deletions: Sequence[int],
    *,
    prior: Sequence[float] | None = None,
    terms: int = MAX_TERMS,
    trials: int = 100_000,
    seed: int = 0,
) -> Retained:
    """How likely a shard with these orders is still k slices deep after r deletions in it.

    Exact where that takes at most `terms` terms (and never more than 2^min(B, 20)) and loses no more than 1e-8 to
    rounding; else simulated.

    >>> from s3t.orders import Setting, cyclic
    >>> retained(cyclic(Setting(slices=4, budget=4)), [1, 2]).expected_depth.round(6).tolist()
    [3.0, 2.0]

    Args:
        orders: B distinct orders of L slices.
        deletions: r's, each at least 0; deletions fall independently of each other (data far larger than r).
        prior: L probabilities of the slices; None: uniform.
        terms: terms of an exact sum, at most.
        trials: simulated histories otherwise.
        seed: of the simulation.
    """
    setting = Setting(
        slices=len(orders[0]),
        budget=len(set(orders)),
        prior=None if prior is None else tuple(prior),
        given=tuple(dict.fromkeys(orders)),
    )
    exact = _exact(setting.given, tuple(deletions), np.asarray(setting.probabilities), min(terms, MAX_TERMS))
    if exact is not None:
        return Retained(probabilities=exact, exact=True)
    simulated = retention(setting.given, deletions, prior=setting.prior, trials=trials, seed=seed)
    return Retained(probabilities=simulated, exact=False)


def papers_retention(slices: int, budget: int, depth: int, deletions: int) -> float:
    """Lemma 2's P[depth >= k] for B random orders: 1 - (1 - (1 - k/L)^r)^B', B' = min(B, L!/(L-k)!).

    B = 1 is SISA's. It takes orders as if they were hit independently of each other, which they are not.

    >>> round(papers_retention(slices=4, budget=4, depth=1, deletions=2), 4)
    0.9634
    """
    spared = (1 - depth / slices) ** deletions
    return 1 - (1 - spared) ** min(budget, math.perm(slices, depth))


def _exact(orders: tuple[Order, ...], deletions: tuple[int, ...], probabilities: Floats, terms: int) -> Floats | None:
    slices = len(probabilities)
    tops = len({order[0] for order in orders})
    if 2**tops - 2 > terms:  # n tops have 2^n - 1 unions, of which that of all slices takes no term
        return None
    found = np.ones((len(deletions), slices + 1))
    for depth in range(slices, 0, -1):  # from the deepest: the largest sums come last, where a give-up has cost least
        unions = signed_unions(prefix_sets(orders, depth, slices), probabilities, terms=terms)
        if unions is None or not _filled(found, depth, deletions, unions):
            return None
    return np.minimum.accumulate(found, axis=1)  # rounding may leave a later one larger by 1e-16


def _filled(found: Floats, depth: int, deletions: tuple[int, ...], unions: SignedUnions) -> bool:
    for row, count in enumerate(deletions):
        if count == 0:
            continue
        found[row, depth], error = unions.spared(count)
        if error > _MAX_ERROR:
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class SignedUnions:
    """P[some set is spared] = the sum of coefficient * P[the union is spared].

    Attributes:
        masses: N, the probability that a deletion falls on the union.
        coefficients: N whole numbers.
    """

    masses: NDArray[np.float64]
    coefficients: NDArray[np.float64]

    def spared(self, deletions: int) -> tuple[float, float]:
        """The probability that some set is spared by so many deletions, and a bound on its rounding error."""
        terms = self.coefficients * np.maximum(1 - self.masses, 0.0) ** deletions
        error = float(np.abs(terms).sum()) * 2 * (deletions + 1) * np.finfo(np.float64).eps
        return float(np.clip(terms.sum(), 0.0, 1.0)), error


def prefix_sets(orders: Sequence[Order], depth: int, slices: int) -> NDArray[np.bool_]:
    """Which slices are among the first `depth` of each order, B x L."""
    member = np.zeros((len(orders), slices), dtype=bool)
    first = np.asarray([order[:depth] for order in orders], dtype=np.int64)
    np.put_along_axis(member, first, True, axis=1)
    return member


def signed_unions(sets: NDArray[np.bool_], probabilities: NDArray[np.float64], *, terms: int) -> SignedUnions | None:
    """Inclusion-exclusion with equal unions taken together, which leaves far fewer than 2^B of them.

    Args:
        sets: B x L, which slices are in each set; none empty.
        probabilities: of L slices.
        terms: how many unions at most.

    Returns:
        The terms, or None if there are more.
    """
    masks = np.unique(_packed(sets), axis=0)
    unions, coefficients = np.zeros((1, masks.shape[1]), dtype=np.uint64), np.array([-1.0])
    full = _packed(np.ones((1, sets.shape[1]), dtype=bool))[0]
    for mask in masks:
        unions, coefficients = _merged(
            np.concatenate([unions, unions | mask]), np.concatenate([coefficients, -coefficients])
        )
        kept = (coefficients != 0) & (unions != full).any(axis=1)  # no deletion spares the union of all slices
        unions, coefficients = unions[kept], coefficients[kept]
        if len(unions) > terms + 1:
            return None
    told = (unions != 0).any(axis=1)
    return SignedUnions(masses=_masses(unions[told], probabilities), coefficients=coefficients[told])


def _merged(masks: Masks, coefficients: NDArray[np.float64]) -> tuple[Masks, NDArray[np.float64]]:
    """Each mask once, with the sum of its coefficients."""
    if masks.shape[1] == 1:  # many times as fast as rows
        found, group = np.unique(masks[:, 0], return_inverse=True)
        found = found[:, None]
    else:
        found, group = np.unique(masks, axis=0, return_inverse=True)
    sums = np.zeros(len(found))
    np.add.at(sums, group.reshape(-1), coefficients)
    return found, sums


def _packed(sets: NDArray[np.bool_]) -> Masks:
    padded = np.pad(sets, ((0, 0), (0, -sets.shape[1] % 64)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def _masses(masks: Masks, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the probabilities of each set's slices: a look-up for every eight of them."""
    octets = masks.view(np.uint8).reshape(len(masks), 8 * masks.shape[1])
    padded = np.pad(probabilities, (0, octets.shape[1] * 8 - len(probabilities)))
    member = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    sums = np.zeros(len(masks))
    for place in range(octets.shape[1]):
        sums += (member @ padded[8 * place : 8 * place + 8])[octets[:, place]]
    return sums
