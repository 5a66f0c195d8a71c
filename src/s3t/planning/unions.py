"""Inclusion-exclusion over sets of slices, in terms of their distinct unions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s3t.sequences import Order

Masks = NDArray[np.uint64]
"""N x W words: bit i of the L bits says whether slice i is in the set."""


@dataclass(frozen=True, kw_only=True)
class SignedUnions:
    """P[some set is spared] = the sum of coefficient * P[the union is spared].

    Attributes:
        masses: N, the probability that a deletion falls on the union.
        coefficients: N whole numbers.
    """

    masses: NDArray[np.float64]
    coefficients: NDArray[np.float64]

    @property
    def rounding(self) -> float:
        """How much the sum of the terms can lose to rounding."""
        return float(np.abs(self.coefficients).sum()) * 4 * float(np.finfo(np.float64).eps)

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


def signed_unions(
    sets: NDArray[np.bool_], probabilities: NDArray[np.float64], *, terms: int, keep_full: bool = False
) -> SignedUnions | None:
    """Inclusion-exclusion with equal unions taken together, which leaves far fewer than 2^B of them.

    Args:
        sets: B x L, which slices are in each set; none empty.
        probabilities: of L slices.
        terms: how many unions at most.
        keep_full: whether the union of all slices is told, which no deletion spares.

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
        kept = (coefficients != 0) & (keep_full | (unions != full).any(axis=1))
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
