"""The closed-form head: the ridge solution, whatever slices leave; its choices follow from left-out slices."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.linear_model import Ridge
from sklearn.metrics import f1_score

from s3t.prediction import ridge
from s3t.prediction.ridge import (
    FEATURES,
    FIRST,
    GRAM,
    PARTS,
    PENALTIES,
    PRODUCTS,
    SAMPLE,
    TARGETS,
    FeatureRows,
    Projection,
    Scale,
    Sums,
    added,
    numbers,
    part_of,
    parted,
    solved,
    statistics,
)
from s3t.tasks import task_named

BARE = Projection(torch.zeros(0, 0, dtype=torch.float64))
CLASSES = task_named("text-classification").target
NUMBER = task_named("text-regression").target
SEVERAL = task_named("text-multi-label-classification").target


def records(count, *, width=5, classes=3, seed=0):
    """Features whose first numbers tell the class, not always."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(classes, (count,), generator=generator)
    features = torch.randn(count, width, generator=generator) + 1.5 * torch.eye(classes, width)[targets]
    return features, targets


def lines(count, each, *, above=0.0):
    """Slices of numbers that lie on a plane."""
    generator = torch.Generator().manual_seed(0)
    slope = torch.randn(5, generator=generator)
    made = [torch.randn(each, 5, generator=generator) for _ in range(count)]
    return [(features, features @ slope + above) for features in made]


def slices(count, each, **options):
    return [records(each, seed=number, **options) for number in range(count)]


def head_of(made, *, target=CLASSES, outputs=3, projection=BARE):
    left = [statistics(*part, outputs=outputs, projection=projection) for part in made]
    parts = [
        part_of([left[place] for place in places], outputs=outputs, projection=projection)
        for places in parted(range(len(left)))
    ]
    return solved(parts, target=target, projection=projection)


def by_sklearn(features, targets, penalty):
    """The solution of scikit-learn, with a penalty in shares of the features' mean variance."""
    x, y = features.double().numpy(), numbers(targets, 3).numpy()
    scale = np.square(x - x.mean(axis=0)).sum(axis=0).mean()
    found = Ridge(alpha=penalty * scale).fit(x, y)
    return found.coef_.T, found.intercept_


def chosen_by_hand(made):
    """The penalty with the best macro F1 of those that are tried, each part answered by the others' solution, and then
    the temperature."""
    answered = {}
    for penalty in PENALTIES:
        outputs, right = [], []
        for part in range(min(PARTS, len(made))):
            others = [each for index, each in enumerate(made) if index % PARTS != part]
            weights, bias = by_sklearn(torch.cat([x for x, _ in others]), torch.cat([y for _, y in others]), penalty)
            for x, y in [each for index, each in enumerate(made) if index % PARTS == part]:
                outputs.append(x.double().numpy() @ weights + bias)
                right.append(y.numpy())
        answered[penalty] = np.concatenate(outputs), np.concatenate(right)

    def f1(penalty):
        outputs, right = answered[penalty]
        return f1_score(right, outputs.argmax(axis=1), average="macro")

    def loss(logarithm, outputs, right):
        logits = outputs / math.exp(logarithm)
        return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), right]))

    place, before = FIRST, None
    while place != before:
        beside = [each for each in (place, place - 1, place + 1) if 0 <= each < len(PENALTIES)]
        before, place = place, max(beside, key=lambda each: f1(PENALTIES[each]))
    best = PENALTIES[place]
    return best, math.exp(minimize_scalar(loss, bounds=(-6, 2), args=answered[best], method="bounded").x)


def test_one_slice_is_left_out_in_thirds():
    (features, targets) = records(60, width=70)
    thirds = [(features[part::PARTS], targets[part::PARTS]) for part in range(PARTS)]
    penalty, temperature = chosen_by_hand(thirds)
    head = head_of([(features, targets)])
    assert math.isclose(head.scale.temperature, temperature, rel_tol=0.02)
    weights, bias = by_sklearn(features, targets, penalty)
    assert np.allclose(head.weights.numpy(), weights)
    assert np.allclose(head.bias.numpy(), bias)


@pytest.mark.parametrize(("count", "each"), [(2, 40), (3, 3), (12, 40)])
def test_the_head_is_the_solution_for_all_slices_with_what_left_out_ones_chose(count, each):
    made = slices(count, each, width=12 if each == 3 else 5)  # also fewer records than features
    head = head_of(made)
    penalty, temperature = chosen_by_hand(made)
    weights, bias = by_sklearn(torch.cat([x for x, _ in made]), torch.cat([y for _, y in made]), penalty)
    assert head.scale.middle == 0.5
    assert math.isclose(head.scale.temperature, temperature, rel_tol=0.02)
    assert np.allclose(head.weights.numpy(), weights)
    assert np.allclose(head.bias.numpy(), bias)
    probe, _ = records(7, seed=99, width=len(weights))
    outputs = probe.double().numpy() @ weights + bias
    assert np.allclose(head.logits(probe).numpy(), (outputs - 0.5) / head.scale.temperature)


def test_a_slice_leaves_its_features_or_its_sums_whichever_is_smaller_and_the_head_is_the_same(monkeypatch):
    made = slices(4, 800)
    left = statistics(*made[0], outputs=3, projection=BARE)
    shapes = {name: tuple(value.shape) for name, value in left.block.items()}
    assert shapes == {FEATURES: (SAMPLE, 5), TARGETS: (SAMPLE,), GRAM: (6, 6), PRODUCTS: (6, 3)}
    from_sums = head_of(made)
    few = statistics(*records(4), outputs=3, projection=BARE)
    assert set(few.block) == {FEATURES, TARGETS}
    assert len(few.block[FEATURES]) == 4
    whole = lambda x, y, **_: type(few)(block={FEATURES: x, TARGETS: y}, head={})  # noqa: E731
    monkeypatch.setitem(globals(), "statistics", whole)
    from_features = head_of(made)
    assert from_features.scale == from_sums.scale
    assert torch.allclose(from_features.weights, from_sums.weights)


def test_sums_do_not_hang_on_how_many_records_are_added_at_a_time(monkeypatch):
    whole = statistics(*records(300), outputs=3, projection=BARE)
    monkeypatch.setattr(ridge, "CHUNK", 70)
    monkeypatch.setattr(ridge, "BLOCK", 2)
    by_chunks = statistics(*records(300), outputs=3, projection=BARE)
    assert torch.allclose(whole.block[GRAM].tril(), by_chunks.block[GRAM].tril())
    assert torch.allclose(whole.block[PRODUCTS], by_chunks.block[PRODUCTS])


def test_a_sample_comes_from_all_over_a_slice_not_from_its_shortest_records():
    features = torch.arange(4000.0)[:, None].expand(4000, 5)
    left = statistics(features, torch.zeros(4000, dtype=torch.int64), outputs=3, projection=BARE)
    taken = left.block[FEATURES][:, 0]
    assert taken[0] == 0
    assert taken[-1] == 3999
    assert float(taken.diff().max()) <= math.ceil(4000 / SAMPLE)


@pytest.mark.parametrize(("tried", "answered"), [(10, 10), (300, 160), (400, 320), (4000, 480)])
def test_parts_are_left_out_until_enough_records_are_answered_and_all_are_solved_for(tried, answered, monkeypatch):
    counts, given, scaled, chosen = [], [], ridge._scaled, ridge._chosen
    monkeypatch.setattr(ridge, "_scaled", lambda outputs, *rest: counts.append(len(outputs)) or scaled(outputs, *rest))
    monkeypatch.setattr(ridge, "_chosen", lambda parts, *rest: given.extend(parts) or chosen(parts, *rest))
    monkeypatch.setattr(ridge, "TRIED", tried)
    head_of(slices(12, 40))
    assert counts == [answered]
    assert max(len(part.features) for part in given) <= tried
    assert sum(int(part.records.gram[0, 0]) for part in given) == 12 * 40


def test_numbers_are_solved_for_as_they_are():
    *made, (probe, expected) = lines(5, 50, above=7.0)
    head = head_of(made, target=NUMBER, outputs=1)
    assert head.scale == Scale()
    assert torch.allclose(head.logits(probe)[:, 0], expected.double(), atol=1e-3)


def test_several_labels_and_thresholds_have_targets_of_their_own_and_a_middle_that_is_sought():
    indicators = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert torch.equal(numbers(indicators, 3), indicators.double())
    assert torch.equal(numbers(torch.tensor([2, 0]), 3), torch.eye(3, dtype=torch.float64)[[2, 0]])
    made = [(x, torch.nn.functional.one_hot(y, 6).float()) for x, y in slices(4, 90, width=8, classes=6)]
    head = head_of(made, target=SEVERAL, outputs=6)
    assert head.scale.middle != 0.5
    features, targets = records(500, width=8, classes=6, seed=77)
    wanted = torch.nn.functional.one_hot(targets, 6).float()
    told = torch.sigmoid(head.logits(features))
    assert abs(float(told.mean() - wanted.mean())) < 0.03  # calibrated in the mean


SAME = torch.rand(1, 5, generator=torch.Generator().manual_seed(0))
FEW = {
    "one slice": [records(30)],
    "one record": [records(1)],
    "nothing": [records(0)],
    "an empty slice": [records(0), records(30)],
    "lone records": [records(1), records(1, seed=1)],
    "alike": [(SAME.expand(3, 5), torch.arange(3))] * 4,
    "many alike": [(SAME.expand(300, 5), torch.arange(300) % 3)] * 4,
}


@pytest.mark.parametrize("made", FEW.values(), ids=FEW)
def test_few_records_and_features_that_hardly_vary_have_a_head(made):
    head = head_of(made)
    assert bool(head.weights.isfinite().all())
    assert bool(head.logits(torch.cat([SAME, records(3)[0]])).isfinite().all())


def test_parts_stay_as_they_are_but_for_a_slice_that_leaves_and_slices_of_one_part_are_parted():
    def parts(numbers):
        return {tuple(numbers[place] for place in places) for places in parted(numbers)}

    whole, less = parts(range(12)), parts([0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11])
    assert len(whole & less) == PARTS - 1
    assert parts([2, 5, 8, 11]) == {(2, 11), (5,), (8,)}
    assert parts([4]) == {(4,)}
    assert len(parts([0, 4])) == 2


def test_solving_can_be_stopped_at_every_step():
    heard = []
    left = [statistics(*part, outputs=3, projection=BARE) for part in slices(6, 40)]
    parts = [part_of(left[part::PARTS], outputs=3, projection=BARE, progress=heard.append) for part in range(PARTS)]
    assert len(heard) == 6
    solved(parts, target=CLASSES, projection=BARE, progress=heard.append)
    tried, rest = divmod(len(heard) - 6, PARTS)
    assert rest == 0
    assert 3 <= tried <= len(PENALTIES)

    def stop(_):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        part_of(left, outputs=3, projection=BARE, progress=stop)
    with pytest.raises(InterruptedError):
        solved(parts, target=CLASSES, projection=BARE, progress=stop)


def test_a_projection_is_drawn_from_its_seed_and_lets_a_head_tell_what_no_line_does():
    one, same, other = (Projection.draw(seed, width=2, size=64, length=1.0) for seed in (1, 1, 2))
    assert torch.equal(one.drawn, same.drawn)
    assert not torch.equal(one.drawn, other.drawn)
    assert Projection.draw(1, width=2, size=0, length=1.0).drawn.numel() == 0
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(4):
        features = torch.randn(200, 2, generator=generator)
        made.append((features, (features.prod(dim=1) > 0).long()))
    probe, right = made.pop()

    def accuracy(projection):
        head = head_of(made, outputs=2, projection=projection)
        return float((head.logits(probe).argmax(dim=1) == right).double().mean())

    assert accuracy(one) > 0.9 > 0.7 > accuracy(BARE)


def test_a_head_leaves_the_projection_out_where_that_answers_better():
    projection = Projection.draw(0, width=5, size=32, length=1.0)
    head = head_of(lines(6, 12), target=NUMBER, outputs=1, projection=projection)
    assert head.projection.drawn.numel() == 0
    assert len(head.weights) == 5


def test_projected_features_are_in_the_mean_as_long_as_the_others():
    features = torch.nn.functional.normalize(torch.randn(400, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    projected = Projection.draw(3, width=8, size=4096, length=2.0).of(features)
    assert torch.equal(projected[:, :16], features.double())
    lengths = projected[:, 16:].norm(dim=1) / features[:, :8].double().norm(dim=1)
    assert abs(float(lengths.mean()) - 2.0) < 0.05


def test_records_of_parts_are_those_of_all_in_either_form():
    (x, y), (more, others) = records(20), records(30, seed=1)
    whole = FeatureRows(torch.cat([x, more]).double(), torch.cat([y, others]), 3).sums()
    first, second = FeatureRows(x.double(), y, 3), FeatureRows(more.double(), others, 3)
    by_numbers = FeatureRows(x.double(), numbers(y, 3), 3).sums()
    assert all(torch.allclose(ours, same) for ours, same in zip(first.sums(), by_numbers, strict=True))
    for one, other in ((first, second), (first.sums(), second), (first, second.sums())):
        together = added(one, other)
        assert isinstance(together, Sums)
        assert torch.allclose(whole.gram, together.gram)
        assert torch.allclose(whole.products, together.products)
    few = added(FeatureRows(x[:2].double(), y[:2], 3), FeatureRows(x[2:4].double(), y[2:4], 3))
    assert isinstance(few, FeatureRows)
    by_rows, by_sums = few.solver(5), few.sums().solver(5)
    pairs = [(by_rows(penalty), by_sums(penalty)) for penalty in PENALTIES]
    assert all(torch.allclose(ours, same) for pair in pairs for ours, same in zip(*pair, strict=True))
