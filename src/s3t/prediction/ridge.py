"""One linear head for all slices, solved in closed form: ridge regression on features of the frozen base model.

A slice leaves its features, or, where it has more records than a head has features, what the solution needs of them:
their Gram matrix and their products with the targets; and a sample of them. The head is solved from what is alive,
slice after slice in their order, whenever that has changed. So it is the one that was solved had the deleted records
never been there. Nothing is subtracted, and nothing is chosen before: which features the head reads, how strong the
penalty is, and how sharp the probabilities are, follows from records that are left, each answered by a head without
its own part of the slices, by features of a model that was not trained on it.

Features are the base's, and beside them what a drawn projection and a ReLU make of the last layer's (RanPAC; McDonnell
et al. 2023, arXiv 2307.02251). On some data the head is better without these.

Shapes: U answers; D features; K features of the head; C outputs.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, NamedTuple, Self, TypeAlias

import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import one_hot, pad

from s3t.events import Progress, WorkStep, silent
from s3t.models.adapters import StageTensors
from s3t.tasks import Target

FEATURES, TARGETS, GRAM, PRODUCTS = "features", "targets", "gram", "products"
SAMPLE = 512
"""Records of a slice that heads without it answer, at most. A slice that leaves sums leaves their features, too."""
TRIED = 2048
"""Records of a part that are answered so, at most. Once half as many are, no other part is left out: it would cost as
much again, and choose the same."""
PARTS = 3
"""Parts of the slices of which one is left out."""
PENALTIES = tuple(10.0**power for power in range(-4, 3))
"""Penalties that are tried, as shares of the features' mean variance."""
FIRST = 2
"""The penalty from which the search for a better one starts. At it, the features are chosen."""
Solver: TypeAlias = Callable[[float], tuple[Tensor, Tensor]]
BLOCK, CHUNK = 256, 4096
"""Columns of a Gram matrix, and records, that are computed at a time."""


@dataclass(frozen=True)
class Projection:
    """Features as heads read them, in float64."""

    drawn: Tensor
    """A matrix with K - D columns, by which the first features are multiplied, to make K - D more. Its scale makes the
    new ones, together, about as long as the D that are there."""

    @classmethod
    def draw(cls, seed: int, *, width: int, size: int, length: float) -> Self:
        """A projection of the first `width` features, of length 1, to `size` features of about that length."""
        drawn = torch.randn(width, size, generator=torch.Generator().manual_seed(seed)).double()
        # Of a normal number the ReLU has half the square.
        return cls(drawn * (length * math.sqrt(2 / max(1, size))))

    def of(self, features_UD: Tensor) -> Tensor:
        """U x K."""
        features = features_UD.double()
        if not self.drawn.shape[1]:
            return features
        return torch.cat([features, torch.relu(features[:, : len(self.drawn)] @ self.drawn)], dim=1)

    def size(self, width: int) -> int:
        """K, of D features."""
        return width + self.drawn.shape[1]


class Sums(NamedTuple):
    """Sums over records, each with a feature 1 before the others."""

    gram: Tensor
    """(1 + K) x (1 + K), of which blocks above the diagonal are 0: it is symmetric."""
    products: Tensor
    """With the targets, (1 + K) x C."""

    def plus(self, other: Sums) -> Sums:
        return Sums(self.gram + other.gram, self.products + other.products)

    def with_outputs(self, outputs: int) -> Sums:
        """With outputs for labels that came later."""
        more = outputs - self.products.shape[1]
        return self._replace(products=pad(self.products, (0, more))) if more else self

    def solver(self, width: int) -> Solver:
        """A function from a penalty to weights of the first `width` features, width x C, and biases, C. Biases are not
        penalised.
        """
        gram, products = self.gram[: 1 + width, : 1 + width], self.products[: 1 + width]
        lengths = gram.diagonal()[1:].sum()
        spread = lengths - gram[1:, 0].square().sum() / gram[0, 0].clamp(min=1.0)

        def solve(penalty: float) -> tuple[Tensor, Tensor]:
            matrix = gram.clone()
            matrix[0, 0].clamp_(min=1.0)
            matrix.diagonal()[1:].add_(_ridge(penalty, spread, lengths, width))
            solution = _solution(matrix, products)
            return solution[1:], solution[0]

        return solve


class FeatureRows(NamedTuple):
    """Records, fewer than features: the solution is then found by their products with each other."""

    features: Tensor
    """U x K."""
    targets: Tensor
    """Labels, U; or numbers, U x C."""
    outputs: int
    """C."""

    def with_outputs(self, outputs: int) -> FeatureRows:
        return self._replace(outputs=outputs)

    def sums(self) -> Sums:
        features, size = self.features, self.features.shape[1]
        gram = features.new_zeros(1 + size, 1 + size)
        gram[0, 0], gram[1:, 0] = len(features), features.sum(dim=0)
        for start in range(0, size, BLOCK):
            block = features[:, start:].t() @ features[:, start : start + BLOCK]
            gram[1 + start :, 1 + start : 1 + start + BLOCK] = block
        if self.targets.dtype.is_floating_point:
            targets = numbers(self.targets, self.outputs)
            return Sums(gram, torch.cat([targets.sum(dim=0)[None], features.t() @ targets]))
        products = features.new_zeros(self.outputs, 1 + size)
        products[:, 0] = torch.bincount(self.targets, minlength=self.outputs)
        # A matrix product would cost, with many labels, as much as the Gram matrix.
        products[:, 1:].index_add_(0, self.targets, features)
        return Sums(gram, products.t().contiguous())

    def solver(self, width: int) -> Solver:
        """The same as of their sums, but for rounding."""
        count = max(1, len(self.features))
        features = self.features[:, :width]
        targets = numbers(self.targets, self.outputs)
        mean_K, mean_C = features.sum(dim=0) / count, targets.sum(dim=0) / count
        centred = features - mean_K
        kernel, lengths = centred @ centred.t(), features.square().sum()

        def solve(penalty: float) -> tuple[Tensor, Tensor]:
            matrix = kernel.clone()
            matrix.diagonal().add_(_ridge(penalty, kernel.trace(), lengths, width))
            weights = centred.t() @ _solution(matrix, targets - mean_C)
            return weights, mean_C - mean_K @ weights

        return solve


def _ridge(penalty: float, spread: Tensor, lengths: Tensor, width: int) -> Tensor:
    """The number that a penalty adds to the diagonal of a matrix. `spread` is the sum of squares of features from their
    mean, `lengths` from 0. Where features hardly vary, the matrix is rounding error, and the number is above that.
    """
    return torch.maximum(penalty * spread, 1e-10 * lengths).clamp(min=1e-300) / width


def _solution(matrix: Tensor, right: Tensor) -> Tensor:
    """The x with matrix x = right, for a positive definite matrix. Only its diagonal and what is below it is read."""
    lower = torch.linalg.cholesky(matrix)
    half = torch.linalg.solve_triangular(lower, right, upper=False)  # twice this is quicker than torch.cholesky_solve
    solution: Tensor = torch.linalg.solve_triangular(lower.t(), half, upper=True)
    return solution


def is_few(records: int, features: int) -> bool:
    """True if a head is solved from records, since their sums would be larger and take longer."""
    return records < features


def added(first: Sums | FeatureRows, second: Sums | FeatureRows) -> Sums | FeatureRows:
    """Records of both."""
    if isinstance(first, FeatureRows) and isinstance(second, FeatureRows):
        features, targets = (torch.cat(pair) for pair in zip(first[:2], second[:2], strict=True))
        rows = FeatureRows(features, targets, first.outputs)
        return rows if is_few(len(rows.features), rows.features.shape[1]) else rows.sums()
    one, other = (each.sums() if isinstance(each, FeatureRows) else each for each in (first, second))
    return one.plus(other)


def statistics(features_UD: Tensor, targets_U: Tensor, *, outputs: int, projection: Projection) -> StageTensors:
    """The artifact of a slice: the features of its records; or, if they are many, their sums and a sample of them."""
    if is_few(len(features_UD), projection.size(features_UD.shape[1])):
        return StageTensors(block={FEATURES: features_UD, TARGETS: targets_U}, head={})
    chunks = zip(torch.split(features_UD, CHUNK), torch.split(targets_U, CHUNK), strict=True)
    whole = reduce(Sums.plus, (FeatureRows(projection.of(some), targets, outputs).sums() for some, targets in chunks))
    rows = _sample(len(features_UD), SAMPLE)
    block = {FEATURES: features_UD[rows], TARGETS: targets_U[rows], GRAM: whole.gram, PRODUCTS: whole.products}
    return StageTensors(block=block, head={})


def _sample(count: int, most: int) -> Tensor:
    """Rows of a sample, from all over a slice: features lie by the length of their records."""
    return torch.linspace(0, count - 1, min(most, count)).round().long()


def numbers(targets_U: Tensor, outputs: int) -> Tensor:
    """Targets for which outputs are solved, U x C in float64: 1 for the right label, or what they are."""
    if not targets_U.dtype.is_floating_point:
        return one_hot(targets_U, outputs).double()
    return targets_U.double().reshape(len(targets_U), outputs)


class Scale(NamedTuple):
    """From outputs, which lie near 0 to 1, to logits."""

    middle: float = 0.0
    temperature: float = 1.0

    def logits(self, outputs: Tensor) -> Tensor:
        return (outputs - self.middle) / self.temperature


@dataclass(frozen=True)
class LinearHead:
    projection: Projection
    weights: Tensor
    """K x C."""
    bias: Tensor
    scale: Scale

    def logits(self, features_UD: Tensor) -> Tensor:
        """U x C."""
        return self.scale.logits(self.projection.of(features_UD) @ self.weights + self.bias)

    def linear(self) -> dict[str, Tensor]:
        """Weight and bias of a linear module that gives these logits of features without a projection, in float32."""
        weight = self.weights.t() / self.scale.temperature
        return {"weight": weight.float().contiguous(), "bias": self.scale.logits(self.bias).float()}


class Part(NamedTuple):
    """Slices that are left out together: their records, and a sample of at most TRIED."""

    records: Sums | FeatureRows
    rows: FeatureRows | None
    """The same records, if the part has one slice with fewer records than features."""
    features: Tensor
    """Features of the sample, before the projection."""
    targets: Tensor
    slices: Tensor
    """For each record of the sample the number of its slice within the part."""

    def with_outputs(self, outputs: int) -> Part:
        """The part, with outputs for labels that came later."""
        rows = None if self.rows is None else self.rows.with_outputs(outputs)
        return self._replace(records=self.records.with_outputs(outputs), rows=rows)

    def sampled_from(self, slices: Sequence[bool]) -> Part:
        """The part, its sample from some of the slices alone."""
        chosen = torch.tensor(slices)[self.slices]
        return self._replace(features=self.features[chosen], targets=self.targets[chosen], slices=self.slices[chosen])

    def thirds(self) -> list[Part]:
        """Three parts of the records, where `rows` has them; else the part itself."""
        rows, width = self.rows, self.features.shape[1]
        if rows is None or not len(self.targets):
            return [self]

        def third(part: int) -> Part:
            some = rows._replace(features=rows.features[part::PARTS], targets=rows.targets[part::PARTS])
            slices = torch.zeros(len(some.targets), dtype=torch.long)
            return Part(some, some, some.features[:, :width], some.targets, slices)

        return [third(part) for part in range(min(PARTS, len(rows.targets)))]


def parted(numbers: Sequence[int]) -> list[list[int]]:
    """Places of slices in parts, by their numbers, so that most parts stay when a slice leaves or comes back; by their
    places, if all were in one part.

    >>> parted([0, 1, 2, 4, 5]), parted([0, 3, 9, 12])
    ([[0], [1, 3], [2, 4]], [[0, 3], [1], [2]])
    """
    places = range(len(numbers))
    made = [[place for place in places if numbers[place] % PARTS == part] for part in range(PARTS)]
    if sum(map(bool, made)) == 1:
        made = [list(places[part::PARTS]) for part in range(PARTS)]
    return [part for part in made if part]


def part_of(
    slices: Iterable[StageTensors], *, outputs: int, projection: Projection, progress: Progress = silent
) -> Part:
    """A part, from what its slices left, one of them in memory at a time. `progress` hears of each, with 0 records, so
    that it can be stopped.
    """
    samples: list[tuple[Tensor, Tensor, Tensor]] = []

    def records() -> Iterator[Sums | FeatureRows]:
        for place, left in enumerate(slices):
            progress(WorkStep(count=0))
            features, targets = left.block[FEATURES], left.block[TARGETS]
            rows = _sample(len(features), SAMPLE)
            samples.append((features[rows], targets[rows], torch.full((len(rows),), place)))
            if GRAM in left.block:
                yield Sums(left.block[GRAM], left.block[PRODUCTS]).with_outputs(outputs)
            else:
                yield FeatureRows(projection.of(features), targets, outputs)

    whole = reduce(added, records())
    few = whole if isinstance(whole, FeatureRows) and len(samples) == 1 else None
    if isinstance(whole, FeatureRows) and not is_few((PARTS - 1) * len(whole.features), whole.features.shape[1]):
        whole = whole.sums()  # once, and not with each part beside it
    features, targets, of = (torch.cat(each) for each in zip(*samples, strict=True))
    rows = _sample(len(features), TRIED)
    return Part(whole, few, features[rows], targets[rows], of[rows])


def solved(
    parts: Sequence[Part],
    *,
    calibration: Sequence[Part] = (),
    target: Target,
    projection: Projection,
    progress: Progress = silent,
) -> LinearHead:
    """The head of the slices of some parts; `calibration`, if any, chooses its temperature. `progress` hears of each
    step, as of a part's."""
    given = parts[0].features.shape[1]
    width, penalty, scale = _chosen(parts, given, target, projection, progress)
    if calibration:
        _, _, scale = _chosen(calibration, given, target, projection, progress)
    weights, bias = reduce(added, [part.records for part in parts]).solver(width)(penalty)
    used = projection if width > given else Projection(projection.drawn[:, :0])
    return LinearHead(used, weights, bias, scale)


def _chosen(
    parts: Sequence[Part], given: int, target: Target, projection: Projection, progress: Progress
) -> tuple[int, float, Scale]:
    """Number of features, penalty and scale that answer samples best that are not of the parts which they follow from:
    the features at one penalty, and then this, as long as one beside it is better.
    """
    parts = parts[0].thirds() if len(parts) == 1 else parts
    widths = sorted({given, projection.size(given)})
    tried = [part for part in parts if len(part.targets)]
    if len(parts) < 2 or not tried:
        return widths[0], 1.0, Scale(0.5, 0.1) if target.has_labels else Scale()
    answered = list(itertools.accumulate(len(part.targets) for part in tried))
    left_out = tried[: 1 + bisect_left(answered, min(TRIED // 2, answered[-1]))]
    others = [reduce(added, [other.records for other in parts if other is not part]) for part in left_out]
    samples = [projection.of(part.features) for part in left_out]
    targets = torch.cat([part.targets for part in left_out])
    outputs: dict[tuple[int, int], Tensor] = {}

    @cache
    def solvers(width: int) -> list[Solver]:
        return [records.solver(width) for records in others]

    @cache
    def loss(width: int, place: int) -> float:
        if not 0 <= place < len(PENALTIES):
            return math.inf
        found = []
        for sample, solve in zip(samples, solvers(width), strict=True):
            progress(WorkStep(count=0))
            weights, bias = solve(PENALTIES[place])
            found.append(sample[:, :width] @ weights + bias)
        outputs[width, place] = answers = torch.cat(found)
        if not targets.dtype.is_floating_point:
            return -_macro_f1(answers.argmax(dim=1), targets)
        return float(target.loss(_scaled(answers, targets, target).logits(answers), targets))

    width, best = min(widths, key=lambda width: loss(width, FIRST)), FIRST
    while (better := min((best, best - 1, best + 1), key=lambda place: loss(width, place))) != best:
        best = better
    return width, PENALTIES[best], _scaled(outputs[width, best], targets, target)


def _scaled(outputs_UC: Tensor, targets_U: Tensor, target: Target) -> Scale:
    """The scale with the least loss. The middle is sought, too, unless outputs compete: then it does not count."""

    def scale(found: Any) -> Scale:
        return Scale(float(found[1]) if len(found) > 1 else 0.5, math.exp(found[0]))

    def loss(found: Any) -> float:
        return float(target.loss(scale(found).logits(outputs_UC), targets_U))

    if not target.has_labels:
        return Scale()
    start = [math.log(0.1), *([0.5] if targets_U.dtype.is_floating_point else [])]
    return scale(minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-2, "maxiter": 100}).x)


def _macro_f1(given_U: Tensor, right_U: Tensor) -> float:
    """The mean over the labels that either side has: the most frequent one shall not decide alone."""
    labels = int(max(given_U.max(), right_U.max())) + 1
    hit, said, there = (
        torch.bincount(each, minlength=labels).double() for each in (right_U[given_U == right_U], given_U, right_U)
    )
    known = said + there > 0
    return float((2 * hit / (said + there).clamp(min=1))[known].mean())
