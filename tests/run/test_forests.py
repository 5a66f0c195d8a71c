"""Runs that are repaired as needed: which stages they train, and that these are exact."""

import random
from dataclasses import replace

import pytest

import s3t
from s3t.forests import leaves, without
from s3t.stages import Stage
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
    alive = run.status().inventory.alive
    return [leaves(stage.prefix for stage in alive if stage.shard == shard) for shard in range(2)]


def record_in(recipe, table, shard, index, *, last=False):
    return records_by_slice(recipe, table)[shard, index][-1 if last else 0]


def hit(run, shard, index):
    """What a deletion in a slice does to stages, without one: of a run in which the record never was."""
    taken = {
        stage: key
        for stage, key in run.status().inventory.alive.items()
        if stage.shard == shard and index in stage.prefix
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


def test_a_run_trains_the_main_chain_and_the_spare_alone(made, tmp_path):
    with clone(made[0], tmp_path / "run") as run:
        assert chains_of(run) == [((0, 1), (2,))] * 2
        status = run.status()
        assert status.depths == (2, 2)
        assert status.missing == 0
        assert [len(shard["slices"]) for shard in status.to_json()["shards"]] == [3, 3]
        assert status.forecast.depth_falls_below.keys() == {2}


def test_a_deletion_trains_only_what_the_chains_lack(made, tmp_path):
    path, recipe, table = made
    with clone(path, tmp_path / "run") as run:
        report = run.delete(records=[record_in(recipe, table, 1, 0)])
        assert report.stages_lost == 2
        assert report.status.depths == (2, 1)  # the spare answers
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
            here, there = run.status().inventory.alive, never_knew.status().inventory.alive
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

    class Stop(s3t.Progress):
        def note(self, what):
            raise KeyboardInterrupt

    with clone(path, tmp_path / "run") as run, clone(path, tmp_path / "whole") as whole:
        record = record_in(recipe, table, 0, 0)
        with pytest.raises(KeyboardInterrupt):
            run.delete(records=[record], progress=Stop())
        assert run.status().depths == (1, 2)  # the spare serves
        run.repair()
        whole.delete(records=[record])
        assert chains_of(run) == chains_of(whole)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_repair_stops_when_its_hours_are_over_and_goes_on_later(workers, made, tmp_path):
    _, recipe, table = made
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        report = run.repair(hours=1e-9, workers=workers)
        assert (report.stages, report.status.missing) == ((), 6)
        assert len(run.repair(hours=1, workers=workers).stages) == 6
        with pytest.raises(s3t.InputError, match="above 0"):
            run.repair(hours=0)


def test_what_is_worth_most_for_its_cost_is_trained_first(made, tmp_path):
    """Of two hit shards the dead one comes first, then what serves, then spares."""
    with clone(made[0], tmp_path / "run") as run:
        with roles(run).ledger.writing() as transaction:
            alive = run.status().inventory.alive
            transaction.forget_stages({s: k for s, k in alive.items() if s.shard == 1 or s.prefix == (0, 1)})
        order = run.repair().stages
        assert order[0] == Stage(1, (0,))
        assert order[-1].prefix == (2,)


def test_worker_processes_train_the_same_chains(made, tmp_path):
    path, recipe, table = made
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train(workers=2)
        assert chains_of(run) == [((0, 1), (2,))] * 2
    assert tiny.artifacts(tmp_path / "run").keys() == tiny.artifacts(path).keys()


def test_what_goes_with_fixed_orders_is_refused_with_the_reason(made, tmp_path, text_model):
    with clone(made[0], tmp_path / "run") as run, pytest.raises(s3t.InputError, match="grows its chains as needed"):
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


def test_chains_are_made_anew_when_stages_are_taken(made, tmp_path):
    """An inventory of other live stages has other chains; nothing is remembered of the old ones."""
    with clone(made[0], tmp_path / "run") as run:
        inventory = run.status().inventory
    left = {stage: key for stage, key in inventory.alive.items() if stage.shard == 1 or 0 not in stage.prefix}
    after = replace(inventory, alive=left)
    assert after.orders[0] == ((2, 0), (1,))
    assert after.depths() == (1, 2)
    assert without(((0, 1), (2,)), 0) == ((2,),)
