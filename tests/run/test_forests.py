"""Runs that are repaired as needed: which stages they train, and that these are exact."""

import random
from dataclasses import replace

import pytest

import s3t
from s3t.core import Stage, leaves, without
from s3t.ledger import schema
from s3t.ledger.schema import prefix_text
from s3t.recipe import recipe_from
from testing import tiny
from testing.roles import roles
from tests.run.worlds import answers_of, clone, lose_stages, records_by_slice, said, trained_run

REPAIR = {"policy": "as-needed", "depth": 2}


def recipe_of(model, **repair):
    """A recipe of two shards of three slices, without orders, repaired as needed."""
    recipe = tiny.recipe(model, training={"epochs": 1}, deletion={"repair": REPAIR | repair})
    del recipe["sequences"]
    return recipe


def chains_of(run):
    """The live chains of each shard."""
    alive = run.inventory().alive
    return [leaves(stage.prefix for stage in alive if stage.shard == shard) for shard in range(2)]


def record_in(recipe, table, shard, index, *, last=False):
    return records_by_slice(recipe, table)[shard, index][-1 if last else 0]


def hit(run, shard, index):
    """What a deletion in a slice does to stages, and a repair."""
    lose_stages(run, lambda stage: stage.shard == shard and index in stage.prefix)
    run.repair()


def stop(event):
    if isinstance(event, s3t.StageStart):
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def made(state_of_all, text_model, tmp_path_factory):
    """A trained run, its recipe and its records."""
    recipe, table = recipe_of(text_model), tiny.text_table()
    run = trained_run(tmp_path_factory.mktemp("forest") / "run", recipe, table)
    run.close()
    return run.path, recipe, table


@pytest.fixture
def run(made, tmp_path):
    with s3t.Run.open(tiny.copy_run(made[0], tmp_path / "run")) as run:
        yield run


def test_a_deletion_trains_only_what_the_chains_lack(run, made):
    _, recipe, table = made
    status = run.status(full=True)
    assert (chains_of(run), status.depths, status.missing) == ([((0, 1), (2,))] * 2, (2, 2), 0)
    assert [len(shard["slices"]) for shard in status.to_json()["shards"]] == [3, 3]
    assert status.forecast.depth_falls_below.keys() == {2}
    report = run.delete(records=[record_in(recipe, table, 1, 0)])
    assert report.stages_lost == 2
    assert report.depths_after == (2, 1)  # the spare answers
    # The spare is the main chain now, and slice 0 begins the next spare.
    assert report.repair.stages == (Stage(1, (2, 0)), Stage(1, (1,)))
    assert chains_of(run) == [((0, 1), (2,)), ((2, 0), (1,))]
    assert run.status().depths == (2, 2)
    deeper = run.delete(records=[record_in(recipe, table, 1, 0, last=True)])
    assert deeper.repair.stages == (Stage(1, (1, 0)),)  # of equally deep chains the one of lesser slices
    assert run.audit(replay=2).ok


MORE = {"spares": 2, "spare_depth": 2}
TO_CHAINS, BACK, EAGER = {"policy": REPAIR}, {"policy": "manual"}, {"policy": "eager"}
IN_INTEGRATION = pytest.mark.integration


@pytest.mark.parametrize(
    ("orders", "steps"),
    [
        pytest.param("grown", [(0, 0), (0, 2), (1, 1), (0, 1), (1, 0)], id="deletions"),
        pytest.param("grown", [(0, 0), MORE, (1, 1)], id="more spares", marks=IN_INTEGRATION),
        pytest.param("fixed", [(0, 0), TO_CHAINS, (1, 1), (1, 2)], id="to chains"),
        pytest.param("fixed", [TO_CHAINS, (0, 0), (1, 1), BACK, (1, 0)], id="and back", marks=IN_INTEGRATION),
        pytest.param("fixed", [TO_CHAINS, (1, 2), EAGER, (1, 1), TO_CHAINS, MORE], id="forth", marks=IN_INTEGRATION),
    ],
)
def test_stages_after_repairs_and_extensions_are_those_of_a_run_that_never_had_the_records(
    orders, steps, made, text_model, tmp_path
):
    path, recipe, table = made
    if orders == "fixed":
        recipe = tiny.recipe(text_model, training={"epochs": 1}, sequences={"budget": 2})
        path = tmp_path / "made"
        trained_run(path, recipe, table).close()
    gone = {place: record_in(recipe, table, *place) for place in steps if isinstance(place, tuple)}
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[~table.id.isin(gone.values())])
    with clone(path, tmp_path / "run") as run, never_knew:
        for step in steps:
            if isinstance(step, dict):
                assert run.extend(**step).stages == never_knew.extend(**step).stages
                continue
            run.delete(records=[gone[step]])
            run.repair()
            hit(never_knew, *step)
            mine, theirs = tiny.artifacts(run.path), tiny.artifacts(never_knew.path)
            assert run.inventory().alive.keys() == never_knew.inventory().alive.keys()
            assert all(mine[name] == theirs[name] for name in mine.keys() & theirs.keys())
        assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)
        assert run.status().missing == 0
        assert run.audit(replay=2).ok
        assert said(answers_of(run, table)) == said(answers_of(never_knew, table))


@pytest.mark.slow
def test_hundreds_of_random_hits_are_exact(text_model, tmp_path):
    recipe, table = recipe_of(text_model, depth=3, spare_depth=2), tiny.text_table(400)
    places, generator = records_by_slice(recipe, table), random.Random(0)
    schedule = [place for place, records in places.items() for _ in records[1:]][:300]
    generator.shuffle(schedule)
    left = {place: list(records) for place, records in places.items()}
    gone = [left[place].pop() for place in schedule]
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[~table.id.isin(gone)])
    with trained_run(tmp_path / "run", recipe, table) as run, never_knew:
        for place, record in zip(schedule, gone, strict=True):
            run.delete(records=[record])
            hit(never_knew, *place)
        assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)
        assert run.audit().ok


def test_which_stages_a_repair_trains_hangs_on_slices_alone(run, made, tmp_path):
    """The same hits in runs whose records have other texts, labels and numbers: the same chains."""
    _, recipe, table = made
    other = table.assign(text=table.text + " and more words", label=list(table.label[::-1]))
    few = other.groupby(other.id.map({r: p for p, rs in records_by_slice(recipe, other).items() for r in rs})).head(2)
    with trained_run(tmp_path / "other", recipe, few) as second:
        for place in [(0, 0), (1, 2), (1, 0)]:
            run.delete(records=[record_in(recipe, table, *place)])
            second.delete(records=[record_in(recipe, few, *place)])
            assert chains_of(run) == chains_of(second)


def test_what_was_stopped_goes_on_to_the_same_chains(made, tmp_path):
    """A repair, and an extension."""
    path, recipe, table = made
    record = record_in(recipe, table, 0, 0)
    with clone(path, tmp_path / "run") as run, clone(path, tmp_path / "whole") as whole:
        with pytest.raises(KeyboardInterrupt):
            run.delete(records=[record], progress=stop)
        assert run.status().depths == (1, 2)  # the spare serves
        run.repair()
        whole.delete(records=[record])
        assert chains_of(run) == chains_of(whole)
        with pytest.raises(KeyboardInterrupt):
            run.extend(spares=2, progress=stop)
        whole.extend(spares=2)
    with s3t.Run.open(tmp_path / "run") as again, s3t.Run.open(tmp_path / "whole") as whole:
        assert (again.recipe.deletion.repair.spares, again.status().missing) == (2, 2)
        assert again.repair().missing == 0
        assert chains_of(again) == chains_of(whole)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.integration)])
def test_a_repair_stops_when_its_hours_are_over_and_goes_on_later(workers, made, tmp_path):
    _, recipe, table = made
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        report = run.repair(hours=1e-9, workers=workers)
        assert (report.stages, report.missing) == ((), 6)
        assert len(run.repair(hours=1, workers=workers).stages) == 6
        assert chains_of(run) == [((0, 1), (2,))] * 2
        with pytest.raises(s3t.InputError, match="at least 0"):
            run.repair(hours=-1)


def shard_1_and_a_stage(stage):
    return stage.shard == 1 or stage.prefix == (0, 1)


def test_what_is_worth_most_for_its_cost_is_trained_first(run):
    """Of two hit shards the dead one comes first, then what serves, then spares."""
    lose_stages(run, shard_1_and_a_stage)
    order = run.repair().stages
    assert order[0] == Stage(1, (0,))
    assert order[-1].prefix == (2,)


def test_a_shard_that_loses_all_during_a_repair_is_trained_next(made, tmp_path):
    """Not after what was missing before."""
    _, recipe, table = made
    trained = []
    with s3t.Run.create(tmp_path / "new", recipe=recipe, data=table) as run:

        def hear(event):
            if isinstance(event, s3t.StageEnd):
                trained.append((event.stage.shard, len(event.stage.prefix)))
                if trained == [(0, 1), (1, 1)]:
                    run.delete(records=[record_in(recipe, table, 0, 0)], wait=False)

        run.train(progress=hear)
        assert trained[:3] == [(0, 1), (1, 1), (0, 1)]
        assert run.status().missing == 0


def note_durations(run, seconds):
    """As if stages of each depth had taken so long."""
    with roles(run).ledger.writing() as transaction:
        for stage in run.inventory().alive:
            row = {"shard": stage.shard, "prefix": prefix_text(stage), "seconds": seconds[len(stage.prefix)]}
            transaction.rows.upsert(schema.durations, [row])


@pytest.mark.parametrize("seconds", [{1: 1e6, 2: 1e-6}, {1: 1e-6, 2: 1e6}])
def test_measured_times_change_no_choice(seconds, made, tmp_path):
    """Times follow from the lengths of records, deleted ones among them."""
    with clone(made[0], tmp_path / "timed") as timed:
        note_durations(timed, seconds)
    with clone(made[0], tmp_path / "run") as run, s3t.Run.open(tmp_path / "timed") as timed:
        for each in (run, timed):
            lose_stages(each, shard_1_and_a_stage)
        assert timed.status().missing_hours != run.status().missing_hours
        assert timed.repair().stages == run.repair().stages


def test_the_status_tells_the_hours_of_a_repair_once_stages_have_trained(run, made, tmp_path):
    _, recipe, table = made
    with s3t.Run.create(tmp_path / "new", recipe=recipe, data=table) as new:
        assert new.status().missing_hours is None
        assert new.status().to_json()["missing_hours"] is None
    assert run.status().missing_hours == 0.0
    with roles(run).ledger.reading() as transaction:
        durations = transaction.history.durations()
    assert durations.keys() == run.inventory().alive.keys()
    assert all(0 < seconds < 600 for seconds in durations.values())
    note_durations(run, {1: 1800.0, 2: 7200.0})
    lose_stages(run, lambda stage: stage.shard == 1)
    assert run.status().missing_hours == pytest.approx(2 * 0.5 + 2.0)


def test_what_goes_with_fixed_orders_or_with_chains_alone_is_refused_with_the_reason(run, trained_once, tmp_path):
    with pytest.raises(s3t.InputError, match=r"no fixed orders: give --spares"):
        run.extend(budget=3)
    with (
        s3t.Run.open(tiny.copy_run(trained_once, tmp_path / "fixed")) as fixed,
        pytest.raises(s3t.InputError, match="fixed orders, and no spares: give --budget"),
    ):
        fixed.extend(spares=2)
    with pytest.raises(s3t.RecipeError) as caught:
        recipe_from(recipe_of(tmp_path, depth=9, spares=3) | {"sequences": {"budget": 2}})
    told = "\n".join(caught.value.problems)
    assert "sequences: deletion.repair says which chains" in told
    assert "depth 9: a shard has 3 slices" in told
    assert "3 spares" in told


@pytest.mark.parametrize("method", ["sisa", pytest.param("protosisa", marks=IN_INTEGRATION)])
def test_sisa_with_the_same_freedom_is_exact(method, text_model, tmp_path):
    recipe, table = recipe_of(text_model) | {"method": method}, tiny.text_table()
    recipe["adapter"] = {"rank": 2, "layers": 2}
    record = record_in(recipe, table, 0, 0)
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[table.id != record])
    with trained_run(tmp_path / "run", recipe, table) as run, never_knew:
        run.delete(records=[record])
        hit(never_knew, 0, 0)
        assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)


def test_chains_follow_a_declared_prior_and_are_exact(text_model, tmp_path):
    recipe, table = recipe_of(text_model) | {"sequences": {"prior": [0.6, 0.3, 0.1]}}, tiny.text_table()
    gone = {place: record_in(recipe, table, *place) for place in [(0, 2), (0, 0), (1, 1)]}
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[~table.id.isin(gone.values())])
    with trained_run(tmp_path / "run", recipe, table) as run, never_knew:
        assert chains_of(run) == [((2, 1), (1,))] * 2
        assert replace(run.inventory(), alive={}).orders == (((2, 1), (1,)),) * 2
        for place, chains in zip(gone, [((1, 2), (2,)), ((1, 2), (2,)), ((2, 1), (1,))], strict=True):
            run.delete(records=[gone[place]])
            hit(never_knew, *place)
            assert chains_of(run)[place[0]] == chains
        assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)


def test_chains_are_made_anew_when_stages_are_taken(run):
    """An inventory of other live stages has other chains; nothing is remembered of the old ones."""
    inventory = run.inventory()
    assert inventory.orders[0] == ((0, 1), (2,))
    left = {stage: key for stage, key in inventory.alive.items() if stage.shard == 1 or 0 not in stage.prefix}
    after = replace(inventory, alive=left)
    assert after.orders[0] == ((2, 0), (1,))
    assert after.depths() == (1, 2)
    assert without(((0, 1), (2,)), 0) == ((2,),)


# More spares.


def test_a_run_gets_more_spares_and_trains_those_alone(run):
    with s3t.Run.open(run.path) as other:
        files = tiny.artifacts(run.path)
        forecast = run.extension(spares=2)
        assert (forecast.stages, forecast.lost_stages) == (2, 0)
        assert forecast.hours > 0
        assert run.recipe.deletion.repair.spares == 1
        report = run.extend(spares=2)
        assert set(report.stages) == {Stage(0, (1,)), Stage(1, (1,))}
        assert chains_of(run) == [((0, 1), (1,), (2,))] * 2
        assert run.status().missing == other.status().missing == 0
        assert run.recipe.deletion.repair.spares == other.recipe.deletion.repair.spares == 2
        assert files.items() < tiny.artifacts(run.path).items()
        report = other.extend(spare_depth=2)
        assert report.missing == 0
        assert {len(chain) for chains in chains_of(run) for chain in chains} == {2}
        assert run.extend(spares=2).stages == ()  # an extension that was cut short is asked for again
    with s3t.Run.open(run.path) as reopened:
        assert (reopened.recipe.deletion.repair.spares, reopened.recipe.deletion.repair.spare_depth) == (2, 2)
        assert reopened.audit(replay=2).ok


def test_the_gain_of_more_spares_is_the_depth_after_the_next_hit(run):
    """Main chain 0 1, spare 2: a hit of 0 or 1 leaves 1 slice, of 2 both. A spare of 2 0 leaves 2 if 1 is hit."""
    more = run.extension(spare_depth=2)
    assert (*more.gain.before, *more.gain.after) == (pytest.approx(4 / 3), pytest.approx(5 / 3))
    assert run.extension(spares=2).to_json()["gain"]["expected_depth_after"] == [pytest.approx(4 / 3)]


UNMAKEABLE = [
    ({"spares": 0}, ["spares 0 is below the present 1"]),
    ({"spares": 3, "spare_depth": 4}, ["3 spares beside the main chain", "spare_depth 4: give 1 to 2"]),
    ({"spares": 1.5, "spare_depth": True}, ["spares: Input should be a valid", "spare_depth: Input should be a valid"]),
    ({"spares": 2, "budget": 3}, ["a budget and spares or their depth asked for: give one of"]),
    ({"spares": 2, "policy": "eager"}, ["spares or their depth and a policy asked for"]),
    ({}, ["nothing asked for: give one of a budget, spares or their depth, a policy"]),
    ({"policy": "often"}, ["deletion.repair"]),
    ({"policy": {"policy": "as-needed", "depth": 9, "spares": 3}}, ["depth 9: a shard has 3 slices", "3 spares"]),
]


def test_spares_that_cannot_be_are_refused_all_at_once_and_change_nothing(run):
    before = tiny.all_files(run.path)["run.json"]
    for asked, problems in UNMAKEABLE:
        for method in (run.extend, run.extension):
            with pytest.raises(s3t.InputError) as caught:
                method(**asked)
            assert len(caught.value.problems) == len(problems)
            assert all(part in told for part, told in zip(problems, caught.value.problems, strict=True))
    assert tiny.all_files(run.path)["run.json"] == before


def test_a_policy_that_went_back_is_no_longer_this_runs(run):
    old = (run.path / "run.json").read_bytes()
    run.extend(spares=2)
    with s3t.Run.open(run.path) as other:
        (run.path / "run.json").write_bytes(old)
        with pytest.raises(s3t.IntegrityError, match="has changed since the run was opened"):
            other.status()


# Another policy.


def test_live_stages_of_fixed_orders_are_chains_and_the_orders_come_back(trained):
    orders = trained.inventory().orders
    assert trained.extend(policy=REPAIR | {"depth": 3}).stages == ()
    assert [chains[0] for chains in trained.inventory().orders] == [(0, 1, 2)] * 2
    report = trained.delete(records=["r3"])
    assert report.repair is not None  # the policy repairs at once; the recipe's is manual
    assert report.missing == len(report.repair.stages) > 0
    kept = {stage.prefix for stage in trained.inventory().alive if stage.shard == report.slices[0].shard}
    wanted = {order[:depth] for order in orders[0] for depth in (1, 2, 3)}
    forecast = trained.extension(policy="manual")
    back = trained.extend(policy="manual")
    assert len(back.stages) == forecast.stages == len(wanted - kept) > 0
    assert trained.inventory().orders == orders
    assert trained.audit(replay=1).ok
    with s3t.Run.open(trained.path) as reopened:
        assert reopened.recipe.deletion.repair == "manual"
        assert reopened.recipe.budget == 3


def test_chains_become_fixed_orders_of_which_more_can_be_added(run):
    with s3t.Run.open(run.path) as other:
        assert run.extend(policy={"below-depth": 2}).stages == (Stage(0, (0, 1, 2)), Stage(1, (0, 1, 2)))
        with pytest.raises(s3t.InputError, match="fixed orders, and no spares"):
            other.extend(spares=2)
        assert other.extend(budget=3).missing == 0
        assert {len(orders) for orders in run.inventory().orders} == {3}
        assert run.audit(replay=1).ok


def test_chains_are_refused_where_all_orders_answer(text_model, tmp_path):
    recipe = tiny.recipe(text_model, prediction={"ensemble": "sequences"})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        with pytest.raises(s3t.RecipeError, match=r"chains grown as needed do not answer side by side"):
            run.extend(policy=REPAIR)
        assert run.recipe.deletion.repair == "manual"


def test_a_disk_that_refuses_leaves_the_old_policy(run):
    tmp = run.path / "tmp"
    tmp.rmdir()
    tmp.write_text("no folder, so no temporary file can be written")
    with pytest.raises(s3t.StorageError, match="extending the run failed") as caught:
        run.extend(spares=2)
    assert caught.value.aftermath.changed is False
    tmp.unlink()
    assert run.recipe.deletion.repair.spares == 1
    assert run.extend(spares=2).missing == 0
