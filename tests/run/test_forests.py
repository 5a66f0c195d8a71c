"""Runs that are repaired as needed: which stages they train, and that these are exact."""

import random
from dataclasses import replace

import pytest

import s3t
from s3t.core import Stage, leaves, without
from s3t.ledger import schema
from s3t.ledger.schema import prefix_text
from testing import tiny
from testing.roles import roles
from tests.run.worlds import answers_of, clone, records_by_slice, said, trained_run

REPAIR = {"policy": "as-needed", "depth": 2}
LAYERS = {"adapter": {"layers_per_slice": 1}}


def recipe_of(model, **repair):
    """A recipe of two shards of three slices, without orders, repaired as needed."""
    recipe = tiny.recipe(model, partition={"shards": 2}, deletion={"repair": REPAIR | repair})
    del recipe["sequences"]
    return recipe


def chains_of(run):
    """The live chains of each shard."""
    alive = run.inventory().alive
    return [leaves(stage.prefix for stage in alive if stage.shard == shard) for shard in range(2)]


def record_in(recipe, table, shard, index, *, last=False):
    return records_by_slice(recipe, table)[shard, index][-1 if last else 0]


def hit(run, shard, index):
    """What a deletion in a slice does to stages, without one: of a run in which the record never was."""
    taken = {
        stage: key for stage, key in run.inventory().alive.items() if stage.shard == shard and index in stage.prefix
    }
    with roles(run).ledger.writing() as transaction:
        transaction.forget_stages(taken)
    run.repair()


@pytest.fixture(scope="module")
def made(text_model, tmp_path_factory):
    """A trained run, its recipe and its records."""
    recipe, table = recipe_of(text_model), tiny.text_table()
    run = trained_run(tmp_path_factory.mktemp("forest") / "run", recipe, table)
    run.close()
    return run.path, recipe, table


@pytest.mark.integration
def test_a_run_trains_the_main_chain_and_the_spare_alone(made, tmp_path):
    with clone(made[0], tmp_path / "run") as run:
        assert chains_of(run) == [((0, 1), (2,))] * 2
        status = run.status(full=True)
        assert status.depths == (2, 2)
        assert status.missing == 0
        assert [len(shard["slices"]) for shard in status.to_json()["shards"]] == [3, 3]
        assert status.forecast.depth_falls_below.keys() == {2}


def test_a_deletion_trains_only_what_the_chains_lack(made, tmp_path):
    path, recipe, table = made
    with clone(path, tmp_path / "run") as run:
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


def test_stages_after_repairs_are_those_of_a_run_that_never_had_the_records(made, tmp_path):
    path, recipe, table = made
    hits = [(0, 0), (0, 2), (1, 1), (0, 1), (1, 0)]
    gone = {place: record_in(recipe, table, *place) for place in hits}
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[~table.id.isin(gone.values())])
    with clone(path, tmp_path / "run") as run, never_knew:
        for place in hits:
            run.delete(records=[gone[place]])
            hit(never_knew, *place)
            mine, theirs = tiny.artifacts(run.path), tiny.artifacts(never_knew.path)
            shared = {name for name in mine if name in theirs}
            here, there = run.inventory().alive, never_knew.inventory().alive
            assert here.keys() == there.keys()
            assert all(mine[name] == theirs[name] for name in shared)
        assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)
        assert run.audit().ok
        answers = answers_of(run, table)
        assert said(answers) == said(answers_of(never_knew, table))


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


def test_which_stages_a_repair_trains_hangs_on_slices_alone(made, tmp_path):
    """The same hits in runs whose records have other texts, labels and numbers: the same chains."""
    path, recipe, table = made
    other = table.assign(text=table.text + " and more words", label=list(table.label[::-1]))
    few = other.groupby(other.id.map({r: p for p, rs in records_by_slice(recipe, other).items() for r in rs})).head(2)
    with clone(path, tmp_path / "run") as run, trained_run(tmp_path / "other", recipe, few) as second:
        for place in [(0, 0), (1, 2), (1, 0)]:
            run.delete(records=[record_in(recipe, table, *place)])
            second.delete(records=[record_in(recipe, few, *place)])
            assert chains_of(run) == chains_of(second)


def test_a_repair_that_was_stopped_goes_on_to_the_same_chains(made, tmp_path):
    path, recipe, table = made

    def stop(event):
        if isinstance(event, s3t.StageStart):
            raise KeyboardInterrupt

    with clone(path, tmp_path / "run") as run, clone(path, tmp_path / "whole") as whole:
        record = record_in(recipe, table, 0, 0)
        with pytest.raises(KeyboardInterrupt):
            run.delete(records=[record], progress=stop)
        assert run.status().depths == (1, 2)  # the spare serves
        run.repair()
        whole.delete(records=[record])
        assert chains_of(run) == chains_of(whole)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.integration)])
def test_a_repair_stops_when_its_hours_are_over_and_goes_on_later(workers, made, tmp_path):
    _, recipe, table = made
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        report = run.repair(hours=1e-9, workers=workers)
        assert (report.stages, report.missing) == ((), 6)
        assert len(run.repair(hours=1, workers=workers).stages) == 6
        with pytest.raises(s3t.InputError, match="at least 0"):
            run.repair(hours=-1)


def test_what_is_worth_most_for_its_cost_is_trained_first(made, tmp_path):
    """Of two hit shards the dead one comes first, then what serves, then spares."""
    with clone(made[0], tmp_path / "run") as run:
        with roles(run).ledger.writing() as transaction:
            alive = run.inventory().alive
            transaction.forget_stages({s: k for s, k in alive.items() if s.shard == 1 or s.prefix == (0, 1)})
        order = run.repair().stages
        assert order[0] == Stage(1, (0,))
        assert order[-1].prefix == (2,)


@pytest.mark.integration
def test_worker_processes_train_the_same_chains(made, tmp_path):
    path, recipe, table = made
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train(workers=2)
        assert chains_of(run) == [((0, 1), (2,))] * 2
    assert tiny.artifacts(tmp_path / "run").keys() == tiny.artifacts(path).keys()


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
            alive = each.inventory().alive
            with roles(each).ledger.writing() as transaction:
                transaction.forget_stages({s: k for s, k in alive.items() if s.shard == 1 or s.prefix == (0, 1)})
        assert timed.status().missing_hours != run.status().missing_hours
        assert timed.repair().stages == run.repair().stages


def test_the_status_tells_the_hours_of_a_repair_once_stages_have_trained(made, tmp_path):
    path, recipe, table = made
    with s3t.Run.create(tmp_path / "new", recipe=recipe, data=table) as run:
        assert run.status().missing_hours is None
        run.repair(hours=1e-9)
        assert run.status().to_json()["missing_hours"] is None
    with clone(path, tmp_path / "run") as run:
        assert run.status().missing_hours == 0.0
        with roles(run).ledger.reading() as transaction:
            durations = transaction.history.durations()
        assert durations.keys() == run.inventory().alive.keys()
        assert all(0 < seconds < 600 for seconds in durations.values())
        note_durations(run, {1: 1800.0, 2: 7200.0})
        lost = {stage: key for stage, key in run.inventory().alive.items() if stage.shard == 1}
        with roles(run).ledger.writing() as transaction:
            transaction.forget_stages(lost)
        assert run.status().missing_hours == pytest.approx(2 * 0.5 + 2.0)


def test_what_goes_with_fixed_orders_is_refused_with_the_reason(made, tmp_path, text_model):
    with (
        clone(made[0], tmp_path / "run") as run,
        pytest.raises(s3t.InputError, match=r"no fixed orders: give --spares"),
    ):
        run.extend(budget=3)
    recipe = recipe_of(text_model, depth=9, spares=3)
    recipe["sequences"] = {"budget": 2}
    with pytest.raises(s3t.RecipeError) as caught:
        s3t.Run.create(tmp_path / "no-run", recipe=recipe, data=made[2])
    told = "\n".join(caught.value.problems)
    assert "sequences: deletion.repair says which chains" in told
    assert "depth 9: a shard has 3 slices" in told
    assert "3 spares" in told


@pytest.mark.parametrize("method", ["sisa", "protosisa"])
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


def test_chains_are_made_anew_when_stages_are_taken(made, tmp_path):
    """An inventory of other live stages has other chains; nothing is remembered of the old ones."""
    with clone(made[0], tmp_path / "run") as run:
        inventory = run.inventory()
    assert inventory.orders[0] == ((0, 1), (2,))
    left = {stage: key for stage, key in inventory.alive.items() if stage.shard == 1 or 0 not in stage.prefix}
    after = replace(inventory, alive=left)
    assert after.orders[0] == ((2, 0), (1,))
    assert after.depths() == (1, 2)
    assert without(((0, 1), (2,)), 0) == ((2,),)


# More spares.


def test_a_run_gets_more_spares_and_trains_those_alone(made, tmp_path):
    with clone(made[0], tmp_path / "run") as run, s3t.Run.open(tmp_path / "run") as other:
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
    with s3t.Run.open(tmp_path / "run") as reopened:
        assert (reopened.recipe.deletion.repair.spares, reopened.recipe.deletion.repair.spare_depth) == (2, 2)
        assert reopened.audit(replay=2).ok


def test_the_gain_of_more_spares_is_the_depth_after_the_next_hit(made, tmp_path):
    """Main chain 0 1, spare 2: a hit of 0 or 1 leaves 1 slice, of 2 both. A spare of 2 0 leaves 2 if 1 is hit."""
    with clone(made[0], tmp_path / "run") as run:
        more = run.extension(spare_depth=2)
        assert (*more.gain.before, *more.gain.after) == (pytest.approx(4 / 3), pytest.approx(5 / 3))
        assert run.extension(spares=2).to_json()["gain"]["expected_depth_after"] == [pytest.approx(4 / 3)]


def test_an_extension_that_was_stopped_goes_on_with_the_next_repair(made, tmp_path):
    def stop(event):
        if isinstance(event, s3t.StageStart):
            raise KeyboardInterrupt

    with clone(made[0], tmp_path / "run") as run, pytest.raises(KeyboardInterrupt):
        run.extend(spares=2, progress=stop)
    with s3t.Run.open(tmp_path / "run") as run:
        assert (run.recipe.deletion.repair.spares, run.status().missing) == (2, 2)
        assert run.repair().missing == 0


STEPS = {
    "before": ["extend", (0, 0), (1, 1)],
    "between": [(0, 0), "extend", (1, 1)],
    "after": [(0, 0), (1, 1), "extend"],
}


@pytest.mark.parametrize("when", STEPS)
def test_more_spares_before_between_or_after_deletions_are_exact(when, made, tmp_path):
    path, recipe, table = made
    gone = {place: record_in(recipe, table, *place) for place in STEPS[when] if place != "extend"}
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[~table.id.isin(gone.values())])
    with clone(path, tmp_path / "run") as run, never_knew:
        for step in STEPS[when]:
            if step == "extend":
                assert run.extend(spares=2, spare_depth=2).stages == never_knew.extend(spares=2, spare_depth=2).stages
            else:
                run.delete(records=[gone[step]])
                hit(never_knew, *step)
        assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)
        assert run.audit().ok


@pytest.mark.parametrize(
    ("asked", "problems"),
    [
        ({"spares": 0}, ["spares 0 is below the present 1"]),
        ({"spares": 3, "spare_depth": 4}, ["3 spares beside the main chain", "spare_depth 4: give 1 to 2"]),
        (
            {"spares": 1.5, "spare_depth": True},
            ["spares: Input should be a valid", "spare_depth: Input should be a valid"],
        ),
        ({"spares": 2, "budget": 3}, ["a budget and spares or their depth asked for: give one of"]),
        ({"spares": 2, "policy": "eager"}, ["spares or their depth and a policy asked for"]),
        ({}, ["nothing asked for: give one of a budget, spares or their depth, a policy"]),
        ({"policy": "often"}, ["deletion.repair"]),
        ({"policy": {"policy": "as-needed", "depth": 9, "spares": 3}}, ["depth 9: a shard has 3 slices", "3 spares"]),
    ],
)
def test_spares_that_cannot_be_are_refused_all_at_once_and_change_nothing(asked, problems, made, tmp_path):
    with clone(made[0], tmp_path / "run") as run:
        before = tiny.all_files(run.path)["run.json"]
        for method in (run.extend, run.extension):
            with pytest.raises(s3t.InputError) as caught:
                method(**asked)
            assert len(caught.value.problems) == len(problems)
            assert all(part in told for part, told in zip(problems, caught.value.problems, strict=True))
        assert tiny.all_files(run.path)["run.json"] == before


def test_spares_of_a_run_with_fixed_orders_are_refused(trained):
    with pytest.raises(s3t.InputError, match="fixed orders, and no spares: give --budget"):
        trained.extend(spares=2)


def test_a_policy_that_went_back_is_no_longer_this_runs(made, tmp_path):
    with clone(made[0], tmp_path / "run") as run:
        old = (run.path / "run.json").read_bytes()
        run.extend(spares=2)
        with s3t.Run.open(run.path) as other:
            (run.path / "run.json").write_bytes(old)
            with pytest.raises(s3t.IntegrityError, match="has changed since the run was opened"):
                other.status()


# Another policy.


def switched(run, steps, gone=None):
    """A run after extensions and hits; with the records that hits take, these are deleted."""
    for step in steps:
        if isinstance(step, dict):
            run.extend(**step)
        elif gone is None:
            hit(run, *step)
        else:
            run.delete(records=[gone[step]])
            run.repair()


SWITCHES = {
    "to chains": [(0, 0), {"policy": REPAIR}, (1, 1), (1, 2)],
    "to chains and back": [{"policy": REPAIR}, (0, 0), (1, 1), {"policy": "manual"}, (1, 0)],
    "back and forth": [{"policy": REPAIR}, (1, 2), {"policy": "eager"}, (1, 1), {"policy": REPAIR}, {"spares": 2}],
}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(steps, id=name, marks=[pytest.mark.integration] * (name != "to chains"))
        for name, steps in SWITCHES.items()
    ],
)
def test_a_run_with_fixed_orders_that_is_switched_is_exact(steps, text_model, tmp_path):
    recipe, table = tiny.recipe(text_model, partition={"shards": 2}), tiny.text_table()
    gone = {place: record_in(recipe, table, *place) for place in steps if not isinstance(place, dict)}
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[~table.id.isin(gone.values())])
    with trained_run(tmp_path / "run", recipe, table) as run, never_knew:
        switched(run, steps, gone)
        switched(never_knew, steps)
        assert tiny.artifacts(run.path) == tiny.artifacts(never_knew.path)
        assert run.status().missing == 0
        assert run.audit(replay=2).ok


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


def test_chains_become_fixed_orders_of_which_more_can_be_added(made, tmp_path):
    with clone(made[0], tmp_path / "run") as run, s3t.Run.open(tmp_path / "run") as other:
        assert run.extend(policy={"below-depth": 2}).stages == (Stage(0, (0, 1, 2)), Stage(1, (0, 1, 2)))
        with pytest.raises(s3t.InputError, match="fixed orders, and no spares"):
            other.extend(spares=2)
        assert other.extend(budget=3).missing == 0
        assert {len(orders) for orders in run.inventory().orders} == {3}
        assert run.audit(replay=1).ok


def test_chains_are_refused_where_all_orders_answer(text_model, tmp_path):
    recipe = tiny.recipe(text_model, prediction={"ensemble": "sequences"})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        with pytest.raises(
            s3t.RecipeError, match=r"the policy.*\n?.*chains grown as needed do not answer side by side"
        ):
            run.extend(policy=REPAIR)
        assert run.recipe.deletion.repair == "manual"


def test_a_disk_that_refuses_leaves_the_old_policy(made, tmp_path):
    with clone(made[0], tmp_path / "run") as run:
        tmp = run.path / "tmp"
        tmp.rmdir()
        tmp.write_text("no folder, so no temporary file can be written")
        with pytest.raises(s3t.StorageError, match="extending the run failed") as caught:
            run.extend(spares=2)
        assert caught.value.aftermath.changed is False
        tmp.unlink()
        assert run.recipe.deletion.repair.spares == 1
        assert run.extend(spares=2).missing == 0
