"""What serves after requests is what counting gives; answers are a run's; frontiers are no lower than policies."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.kept_by_forests.experiment import FIXED, FOREST, Config, at, frontier, points, stage_seconds, summary
from experiments.repair_policies.finding import finding
from experiments.replay import Ensemble
from experiments.requests import changes_of_chains, changes_of_orders, repeated_requests_of, replay, shard_of
from experiments.runner import FOLDER, results, run
from experiments.runs import expected_of, recipe_of, untrained
from experiments.served import every_order, every_order_of_sisa
from experiments.settings import load
from experiments.tasks import task
from s3t.core import AsNeeded, StageCosts, lacking, leaves, prefixes_of
from s3t.orders import Setting, cyclic, survival
from s3t.planning.bounds import cost_of_a_hit
from s3t.results.answers import Member

SHARDS, SLICES = 2, 3

requests_in_two_shards = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=25)


@pytest.mark.integration
@settings(max_examples=60)
@given(
    selector=st.sampled_from([cyclic, survival]),
    budget=st.integers(1, 6),
    requests=requests_in_two_shards,
    policy=st.sampled_from(["manual", "on-exhaustion", "below-depth 1", "below-depth 2", "eager"]),
)
def test_fixed_orders_serve_with_what_is_untouched_and_repairs_train_what_was_hit(selector, budget, requests, policy):
    """And the sums over all requests are those of each."""
    orders = selector(Setting(slices=SLICES, budget=budget))
    stages = {order[: depth + 1] for order in orders for depth in range(SLICES)}
    dirty, died, exhausted, waited, downtime = [set(), set()], 0, 0, 0.0, 0.0

    def depth(shard):
        return max((len(stage) for stage in stages if not dirty[shard] & set(stage)), default=0)

    changes = list(changes_of_orders(orders, requests, shards=SHARDS, policy=policy))
    for (shard, index), change in zip(requests, changes, strict=True):
        before = depth(shard)
        dirty[shard].add(index)
        for number, prefix in enumerate(change.hit):
            assert len(prefix) == depth(number)
            assert not prefix or (prefix in stages and not dirty[number] & set(prefix))
        below = {"manual": 0, "eager": 9, "on-exhaustion": 0}.get(policy)
        below = int(policy[-1]) if below is None else below
        repaired, silent = [shard] * (depth(shard) < below), [number for number in (0, 1) if depth(number) == 0]
        if policy == "on-exhaustion" and len(silent) == SHARDS:
            repaired = [0, 1]
        died += before > 0 and depth(shard) == 0
        exhausted += before > 0 and len(silent) == SHARDS
        places = range(1, len({*repaired} & {*silent}) + 1)
        waited += sum(places)  # one first stage after the other
        downtime += len(silent) == SHARDS and len(places) > 0
        lost = Counter(len(stage) for number in repaired for stage in stages if dirty[number] & set(stage))
        assert change.trained == tuple(lost[depth] for depth in range(1, SLICES + 1))
        for number in repaired:
            dirty[number].clear()
        assert [len(prefix) for prefix in change.repaired] == [depth(0), depth(1)]
    seconds = {1: 1.0, 2: 10.0, 3: 100.0}
    found = replay(shard_of(orders, seconds.__getitem__), requests, shards=SHARDS, policy=policy)
    assert found.compute == sum(np.dot(change.trained, [*seconds.values()]) for change in changes)
    assert (found.shard_outages, found.system_outages) == (died, exhausted)
    assert (found.downtime, found.shard_downtime) == (downtime, waited)
    assert found.dead_shard_share == np.mean([prefix == () for change in changes for prefix in change.hit])
    assert found.mean_depth == np.mean([len(prefix) for change in changes for prefix in change.repaired])


@settings(max_examples=60)
@given(
    policy=st.sampled_from([(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1), (3, 2)]), requests=requests_in_two_shards
)
def test_forests_serve_with_their_longest_live_chain_and_train_what_they_lack(policy, requests):
    policy = AsNeeded(depth=policy[0], spares=policy[1])
    alive = [set(prefixes_of(policy.planned((), slices=SLICES))) for _ in range(SHARDS)]
    for (shard, index), change in zip(
        requests, changes_of_chains(policy, requests, slices=SLICES, shards=SHARDS), strict=True
    ):
        alive[shard] = {prefix for prefix in alive[shard] if index not in prefix}
        longest = max(map(len, alive[shard]), default=0)
        assert len(change.hit[shard]) == longest
        assert change.hit[shard] in alive[shard] | {()}
        assert change.hit[1 - shard] == policy.planned(leaves(alive[1 - shard]), slices=SLICES)[0]
        there = leaves(alive[shard])
        missing = lacking(there, policy.planned(there, slices=SLICES))
        assert change.trained == tuple(sum(len(each) == depth for each in missing) for depth in range(1, SLICES + 1))
        alive[shard] |= set(missing)
        assert change.repaired[shard] in alive[shard]
        assert [len(prefix) for prefix in change.repaired] == [policy.depth] * SHARDS


@given(requests=requests_in_two_shards)
def test_a_forest_of_one_chain_of_all_slices_is_one_order_that_is_repaired_eagerly(requests):
    one_chain = changes_of_chains(AsNeeded(depth=SLICES, spares=0), requests, slices=SLICES, shards=SHARDS)
    one_order = changes_of_orders([tuple(range(SLICES))], requests, shards=SHARDS, policy="eager")
    assert list(one_chain) == list(one_order)


@pytest.mark.parametrize("policy", [AsNeeded(depth=3), AsNeeded(depth=2, spares=0)])
def test_repairs_of_forests_cost_what_is_expected_of_a_hit(policy):
    costs = StageCosts((1.0, 2.5, 7.0))
    requests = repeated_requests_of(np.full((SHARDS, SLICES), 7), 20_000, np.random.default_rng(0))
    stages = np.sum(
        [each.trained for each in changes_of_chains(policy, requests, slices=SLICES, shards=SHARDS)], axis=0
    )
    assert stages @ costs.by_depth / len(requests) == pytest.approx(cost_of_a_hit(policy, costs), rel=0.02)


def test_requests_fall_on_slices_by_their_size_however_often():
    sizes = np.array([[2, 6], [0, 12]])
    found = Counter(repeated_requests_of(sizes, 20_000, np.random.default_rng(0)))
    assert {place: round(count / 2_000) for place, count in found.items()} == {(0, 0): 1, (0, 1): 3, (1, 1): 6}


def test_a_dead_shard_does_not_vote_and_a_dead_system_is_never_right():
    right, wrong = np.array([[2.0, 0.0]]), np.array([[0.0, 1.0]])
    judge = Ensemble({(0, (0,)): right, (1, (0,)): wrong, (1, (1,)): 3 * wrong}, np.array([0]))
    states = [((0,), (0,)), ((0,), (1,)), ((), (0,)), ((0,), ()), ((), ())]
    assert [judge.accuracy(serving) for serving in states] == [1.0, 0.0, 0.0, 1.0, 0.0]


placed = st.tuples(st.integers(0, 50).map(float), st.integers(0, 100).map(lambda percent: percent / 100))


@given(systems=st.lists(placed, min_size=1, max_size=12))
def test_a_frontier_is_concave_and_no_lower_than_any_policy(systems):
    edge = frontier(systems)
    assert set(edge) <= set(systems)
    assert all(at(edge, hours) >= accuracy - 1e-12 for hours, accuracy in systems)
    slopes = [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(edge)]
    assert all(slope > 0 for slope in slopes)
    assert slopes == sorted(slopes, reverse=True)


def test_hours_are_stages_by_their_seconds_and_points_are_counted_at_the_forest_s_hours():
    config = load(Config, FOLDER / "kept_by_forests" / "config.yaml", smoke=True)
    renamed = {"sisa": {FOREST: "SISA, as needed", FIXED: "SISA, one order"}}
    rows = []
    for point, ours in zip(points(config), (0.7, 0.7, 0.9, 0.9), strict=True):
        systems = [
            {"system": renamed.get(point["method"], {}).get(system, system), "policy": policy, "stages": stages}
            | {"before_next": before, "after_hit": after, "dead_share": 0.0}
            for system, policy, stages, before, after in (
                (FOREST, "depth 2, 0 spares", [2.0, 1.0], ours, 0.3),
                (FIXED, "manual", [0.0, 0.0], 0.2, 0.2),
                (FIXED, "eager", [4.0, 2.0], 0.8, 0.6),
            )
        ]
        rows.append({**point, "systems": systems, "accuracy_of_a_shard": [0.5, 0.6], "seconds": [360.0, 720.0]})
    rows[0]["seconds"] = [1080.0, 720.0]  # the median of two seeds is 720
    found = summary(config, rows)
    assert stage_seconds(rows) == {"s3t": [720.0, 720.0], "sisa": [360.0, 720.0]}
    assert found["systems"][FOREST]["depth 2, 0 spares"]["hours"] == pytest.approx(0.6)
    assert found["systems"]["SISA, one order"]["eager"]["hours"] == pytest.approx(0.8)
    fixed = found["points_above"][FIXED]
    assert fixed["before_next"]["depth 2, 0 spares"]["mean"] == pytest.approx(30.0)  # 80 % of 50 %, halfway
    assert fixed["after_hit"]["all"]["mean"] == pytest.approx(-10.0)
    low, high = fixed["before_next"]["all"]["interval"]
    assert low < 20.0 < 40.0 < high
    one_order = found["points_above"]["SISA, one order"]["before_next"]["all"]
    assert one_order["mean"] == pytest.approx(80 - 100 * (0.2 + 0.6 * 0.75))


TRAINING = {"epochs": 2, "batch_size": 16, "learning_rate": 2e-3, "seed": 0}


class Two:
    shards, slices = 2, 2

    def recipe(self, found, **options):
        return recipe_of(found, TRAINING, shards=2, slices=2, **options)


@pytest.mark.integration
@pytest.mark.parametrize(("method", "every"), [(None, every_order), ("sisa", every_order_of_sisa)])
def test_all_prefixes_answer_as_those_of_a_run_that_has_some(method, every, tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path / "kept"))
    found = task("banking77", made_up=True)
    answers = every(Two(), found, salt="another")
    assert answers.sizes.sum() == len(found.train)
    prefixes = {(0,), (1,), (0, 1), (1, 0)}
    assert set(answers.logits) == {(shard, prefix) for shard in (0, 1) for prefix in prefixes}
    assert answers.orders == (((0, 1), (1, 0)),) * 2
    assert {depth: len(times) for depth, times in answers.seconds.items()} == {1: 4, 2: 4}
    assert all(second > 0 for times in answers.seconds.values() for second in times)
    recipe = grown(Two().recipe(found, method=method, salt="another"), AsNeeded(depth=2))
    with untrained(recipe, found) as made:
        made.train()
        assert len(made.inventory().alive) == 6
        for shard, prefix in [(0, (0, 1)), (1, (0, 1)), (0, (1,)), (1, (1,))]:
            own = made.predict(found.test, prefixes=[Member(shard, prefix, "", "model")]).logits
            assert np.array_equal(own[0], answers.logits[shard, prefix])
        whole = Ensemble(answers.logits, expected_of(found)).accuracy(((0, 1), (0, 1)))
        assert made.evaluate(found.test, per_depth=False).accuracy == whole


@pytest.mark.integration
@pytest.mark.parametrize("policy", [AsNeeded(depth=2), AsNeeded(depth=1)])
def test_requests_that_are_replayed_find_and_train_what_a_run_does(policy):
    found = task("banking77", made_up=True)
    recipe = grown(recipe_of(found, TRAINING | {"epochs": 1}, shards=SHARDS, slices=SLICES), policy)
    requests = [(0, 0), (1, 1), (0, 2), (0, 0), (1, 0), (1, 0)]
    with untrained(recipe, found) as made:
        made.train()
        records = {}
        for record in made.locate(records=list(found.train.id)):
            records.setdefault(record.places[0][:2], []).append(record.name)
        changes = changes_of_chains(policy, requests, slices=SLICES, shards=SHARDS)
        for place, change in zip(requests, changes, strict=True):
            due = made.delete(records=[records[place].pop()], repair=False).repair_due
            assert serving_of(made.inventory()) == change.hit
            stages = made.repair().stages if due else ()  # none if no chain has the slice
            depths = Counter(len(stage.prefix) for stage in stages)
            assert change.trained == tuple(depths[depth] for depth in range(1, SLICES + 1))
            assert serving_of(made.inventory()) == change.repaired


def grown(recipe, policy):
    """The recipe with repair as needed."""
    left = {name: own for name, own in recipe.items() if name != "sequences"}
    return left | {"deletion": {"repair": {"policy": "as-needed", **vars(policy)}}}


def serving_of(inventory):
    serving = [inventory.serving(shard) for shard in range(SHARDS)]
    return tuple(() if each is None else each.prefix for each in serving)


@pytest.mark.integration
def test_forests_are_counted_as_orders_and_a_lesser_one_costs_less(tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path / "kept"))
    for name in ("repair_policies", "kept_accuracy"):
        (tmp_path / name).mkdir()
        run(name, into=tmp_path / name, smoke=True)
    found = results("repair_policies", tmp_path / "repair_policies")
    systems = found["summary"]["systems"]
    assert systems["forests"].keys() == {"depth 2, 0 spares", "depth 2, 1 spare"}
    assert systems["forests"]["depth 2, 0 spares"] == systems["s3t, B=1"]["eager"]
    assert "forests" not in finding(found).verdict
    kept = results("kept_accuracy", tmp_path / "kept_accuracy")["summary"]["banking77"]["forests"]
    assert kept["depth 2, 1 spare of 2"] == kept["B=2, survival"]
    assert kept["depth 2, 1 spare"]["trainings"] < kept["B=2, survival"]["trainings"] == 2.0
