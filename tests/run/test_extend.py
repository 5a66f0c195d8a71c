"""More orders later: exact, from declared inputs alone, whole or not at all, and safe beside other users of the run."""

import json
import math
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import s3t
from s3t.core import stages_of
from s3t.deletion import acceptance
from s3t.events import silent
from s3t.ledger.locks import hold
from s3t.orders import Setting, cyclic
from s3t.recipe import recipe_from
from s3t.run import orders
from testing import tiny
from testing.roles import roles
from tests.run.meanwhile import Meanwhile
from tests.run.worlds import Worlds, artifacts_after, make_worlds, records_by_slice, trained_run

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["w1 w30", "w2 w3"]


def orders_of(run):
    return run.inventory().orders


def recipe_of(*, slices, **sequences):
    return recipe_from(tiny.recipe("none", partition={"slices": slices}, sequences=sequences))


def completed_in_turn(orders, ranked, budget):
    return (*orders, *(order for order in ranked if order not in orders))[:budget]


def never_knew(tmp_path, model, *gone, budget):
    """A run that never saw some records, trained and then extended."""
    table = tiny.text_table()
    run = trained_run(tmp_path / "never-knew", tiny.recipe(model), table[~table.id.isin(gone)])
    run.extend(budget=budget)
    return run


@settings(max_examples=40)
@given(data=st.data())
def test_orders_are_added_behind_those_that_are_there(data):
    slices = data.draw(st.integers(1, 5))
    budget = data.draw(st.integers(1, math.factorial(slices)))
    present = data.draw(st.integers(1, budget))
    old = data.draw(st.permutations(cyclic(Setting(slices=slices, budget=present))).map(tuple))
    selector, vary = data.draw(st.sampled_from(["survival", "cyclic", "random"])), data.draw(st.booleans())
    recipe = recipe_of(slices=slices, budget=present, selector=selector, vary_by_shard=vary)
    for new in orders.extended((old, old), recipe, budget=budget, progress=silent):
        assert new[:present] == old
        assert len(set(new)) == len(new) == budget
        assert all(sorted(order) == list(range(slices)) for order in new)


def test_added_orders_begin_with_slices_that_none_begins_with_also_where_all_are_too_many_to_count():
    for slices, selectors in ((6, ("survival", "cyclic", "bms")), (40, ("cyclic",))):  # 40! is nobody's budget
        old = cyclic(Setting(slices=slices, budget=2))
        for selector in selectors:
            recipe = recipe_of(slices=slices, budget=2, selector=selector)
            for chosen in orders.extended((old, old), recipe, budget=6, progress=silent):
                assert len({order[0] for order in chosen}) == len(chosen) == 6


def test_an_extended_run_is_the_one_that_would_have_been_made_with_that_budget(trained, text_model, tmp_path):
    """With all L! orders there is no choice: the same stages, under the same names, with the same bytes."""
    old, files = orders_of(trained), tiny.artifacts(trained.path)
    trained.extend(budget=4)  # in two steps
    report = trained.extend(budget=6)
    assert [chosen[:3] for chosen in orders_of(trained)] == list(old)
    assert report.missing == 0
    assert files.items() < tiny.artifacts(trained.path).items()
    big = artifacts_after(tmp_path / "big", tiny.recipe(text_model, sequences={"budget": 6}), tiny.text_table())
    assert tiny.artifacts(trained.path) == big
    assert trained.audit(replay=4).ok


def test_a_budget_that_cannot_be_changes_nothing(trained):
    described, artifacts = tiny.all_files(trained.path)["run.json"], tiny.artifacts(trained.path)
    for budget, problem in (
        (4.5, "valid integer"),
        ("4", "is no number|valid integer"),
        (True, "is no number|valid integer"),
        (-1, "is below"),
        (2, "is below"),
        (7, "not between 1 and 3! = 6"),
    ):
        with pytest.raises(s3t.InputError, match=problem):
            trained.extend(budget=budget)
    assert tiny.all_files(trained.path)["run.json"] == described
    assert tiny.artifacts(trained.path) == artifacts
    assert trained.status().missing == 0


# The counterfactual.


def test_extending_between_deletions_is_exact(trained, text_model, tmp_path):
    trained.delete(records=["r3"])
    trained.extend(budget=5)
    trained.delete(records=["r23"])
    twin = never_knew(tmp_path, text_model, "r3", "r23", budget=5)
    assert orders_of(trained) == orders_of(twin)
    Worlds(trained, twin, tiny.text_table()).assert_exact()


def test_extending_a_run_with_a_dead_shard_is_exact(text_model, tmp_path):
    """Stages that deletions cost train as well: new ones may grow from them."""
    recipe, table = tiny.recipe(text_model), tiny.text_table()
    places = records_by_slice(recipe, table)
    dead = [records[0] for (shard, _), records in places.items() if shard == 0]
    worlds = make_worlds(tmp_path, recipe, table, [dead])
    assert worlds.forgot.status().depths == (0, 3)
    assert worlds.forgot.extend(budget=6).depths == (3, 3)
    worlds.never_knew.extend(budget=6)
    assert worlds.identical()
    worlds.assert_exact()


def test_orders_that_shun_slices_which_lost_records_are_caught(text_model, tmp_path, monkeypatch):
    """The leak is planted: what was deleted would show in the orders, and in the stages, for good."""
    requests = [["r3"], ["r23"]]
    honest = make_worlds(tmp_path / "honest", tiny.recipe(text_model), tiny.text_table(), requests)
    for run in (honest.forgot, honest.never_knew):
        run.extend(budget=4)
    honest.assert_exact()
    worlds = make_worlds(tmp_path / "leaking", tiny.recipe(text_model), tiny.text_table(), requests)

    def shunning(old, recipe, *, budget, progress):
        alive = roles(run).ledger.snapshot().stages
        hit = [-sum(index in stage.prefix for stage in alive) for index in range(3)]
        ranked = sorted(cyclic(Setting(slices=3, budget=6)), key=lambda order: [hit[index] for index in order])
        return tuple(completed_in_turn(chosen, ranked, budget) for chosen in old)

    monkeypatch.setattr(orders, "extended", shunning)
    for run in (worlds.forgot, worlds.never_knew):
        run.extend(budget=4)
    worlds.forgot.repair()
    assert not worlds.identical()


# Others that have the run open.


def test_a_handle_with_the_old_orders_erases_what_it_does_not_know_of(trained, text_model, tmp_path, monkeypatch):
    """It never looks at run.json again; the ledger's stages decide what a deletion takes."""
    with s3t.Run.open(trained.path) as other:
        old = roles(trained).orders.described()
        other.extend(budget=6)
        monkeypatch.setattr(roles(trained).orders, "described", lambda: old)
        report = trained.delete(records=["r3"])
        place = report.slices[0]
        left = other.inventory().alive
        assert not any(place.shard == stage.shard and place.slice in stage.prefix for stage in left)
        twin = never_knew(tmp_path, text_model, "r3", budget=6)
        surviving = tiny.artifacts(trained.path)
        assert surviving.items() < tiny.artifacts(twin.path).items()
        assert len(surviving) == 2 * len(left)
        for run in (trained, other):
            assert run.audit().ok
            answer = run.predict(TEXTS)
            assert (answer.logits == twin.predict(TEXTS, prefixes=answer.members).logits).all()
        other.repair()
        assert tiny.artifacts(trained.path) == tiny.artifacts(twin.path)


def test_erasing_only_what_the_old_orders_name_is_caught(trained, monkeypatch):
    """The leak is planted: stages of the added orders would go on with the record."""
    old = set(stages_of(orders_of(trained)))
    plan = acceptance.plan_deletion

    def of_known_orders(inventory, losses):
        return tuple(stage for stage in plan(inventory, losses) if stage in old)

    trained.extend(budget=6)
    assert trained.audit().ok
    monkeypatch.setattr(acceptance, "plan_deletion", of_known_orders)
    trained.delete(records=["r3"])
    assert not trained.audit().ok


def test_every_open_handle_notices_added_orders_and_the_recipes_file_is_the_one_of_init(trained):
    written = (trained.path / "recipe.yaml").read_bytes()
    with s3t.Run.open(trained.path) as other:
        other.extend(budget=6)
        assert trained.status().to_json() == other.status().to_json()
        assert trained.recipe.budget == other.recipe.budget == 6
        assert {len(chosen) for chosen in orders_of(trained)} == {6}
        report = trained.delete(records=["r3"])
        assert report.depths_after == other.status().depths
        assert trained.predict(TEXTS).members == other.predict(TEXTS).members
        with pytest.raises(s3t.InputError, match="4 is below the present budget of 6"):
            trained.extend(budget=4)
        trained.repair()
        assert other.status().missing == 0
    with s3t.Run.open(trained.path) as reopened:
        assert reopened.recipe == trained.recipe
    assert (trained.path / "recipe.yaml").read_bytes() == written


def test_a_training_that_goes_on_meanwhile_trains_the_added_orders_too(text_model, tmp_path):
    run = s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table())

    def add_orders():
        with s3t.Run.open(run.path) as other:
            roles(other).orders.extend(other.recipe, orders.Addition(budget=6), lock=roles(other).lock)

    assert run.train(progress=Meanwhile(add_orders)).missing == 0
    assert {len(chosen) for chosen in orders_of(run)} == {6}
    assert run.audit(replay=2).ok


def test_a_deletion_while_the_added_orders_train_is_exact(trained, text_model, tmp_path):
    with s3t.Run.open(trained.path) as other:
        status = other.status()  # with the old orders
        assert status.missing == 0
        report = trained.extend(budget=6, progress=Meanwhile(lambda: other.delete(records=["r3"])))
    assert report.generation == 1
    assert report.missing == 0
    twin = never_knew(tmp_path, text_model, "r3", budget=6)
    assert tiny.artifacts(trained.path) == tiny.artifacts(twin.path)


def test_orders_are_added_under_the_lock_of_deletions(trained):
    before = tiny.all_files(trained.path)["run.json"]
    with s3t.Run.open(trained.path) as other:
        adding = threading.Thread(target=lambda: other.extend(budget=4))
        with hold(roles(trained).lock):
            adding.start()
            adding.join(timeout=0.3)
            assert adding.is_alive()
            assert tiny.all_files(trained.path)["run.json"] == before
        adding.join()
    assert trained.recipe.budget == 4


# Crashes, full disks, and a run.json that is not what it should be.

KILL = """
import os, pathlib, signal, sys
import s3t
from s3t.run import training

def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

run = s3t.Run.open(sys.argv[2])
if sys.argv[1] == "before the new file is in place":
    pathlib.Path.replace = kill
if sys.argv[1] == "before the training":
    training.train_missing = kill
run.extend(budget=6)
"""


@pytest.mark.parametrize("point", ["before the new file is in place", "before the training"])
def test_killed_at_any_point_a_run_has_the_old_orders_or_the_new_ones(point, trained):
    old, files = orders_of(trained), tiny.artifacts(trained.path)
    done = subprocess.run([sys.executable, "-c", KILL, point, str(trained.path)], capture_output=True, cwd=ROOT)
    assert done.returncode == -9, done.stderr
    with s3t.Run.open(trained.path) as reopened:
        assert list((trained.path / "tmp").iterdir()) == []
        assert tiny.artifacts(trained.path) == files
        if point == "before the new file is in place":
            assert orders_of(reopened) == old
            reopened.extend(budget=6)
        else:
            assert reopened.status().missing == 12
            assert len(reopened.extend(budget=6).stages) == 12  # the same command goes on
        assert reopened.recipe.budget == 6
        assert reopened.audit(replay=1).ok
        assert reopened.status().to_json() == trained.status().to_json()


WRONG = {
    "another label set": (lambda content: content | {"labels": ["a", "b"]}, "not by orders that were added"),
    "orders in other places": (
        lambda content: content | {"orders": [chosen[::-1] for chosen in content["orders"]]},
        "not by orders",
    ),
    "a shard less": (lambda content: content | {"orders": content["orders"][:1]}, "not by orders that were added"),
    "no orders": (lambda content: content | {"orders": "none"}, "a describing file is damaged"),
    "no JSON": (lambda _: None, "cannot be read"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_run_json_that_is_not_this_runs_stops_every_use_and_putting_it_back_ends_that(wrong, trained):
    change, message = WRONG[wrong]
    path = trained.path / "run.json"
    whole = path.read_text()
    changed = change(json.loads(whole))
    path.write_text("{" if changed is None else json.dumps(changed))
    for use in (
        trained.status,
        lambda: trained.predict(TEXTS),
        lambda: trained.delete(records=["r3"]),
        lambda: trained.extend(budget=4),
    ):
        with pytest.raises(s3t.IntegrityError, match=message):
            use()
    path.write_text(whole)
    assert trained.status().generation == 0
    assert trained.delete(records=["r3"]).deleted == 1


def test_deletions_do_not_wait_while_orders_are_chosen(trained, monkeypatch):
    chosen = orders.orders_of_shards
    reports = []

    def delete():
        with s3t.Run.open(trained.path) as other:
            reports.append(other.delete(records=["r3"]))

    def slowly(*about, **how):
        deleting = threading.Thread(target=delete, daemon=True)
        deleting.start()
        deleting.join(timeout=30)
        assert not deleting.is_alive(), "the deletion waits"
        return chosen(*about, **how)

    monkeypatch.setattr(orders, "orders_of_shards", slowly)
    trained.extend(budget=4)
    assert [report.deleted for report in reports] == [1]
    assert {len(of_shard) for of_shard in orders_of(trained)} == {4}
    assert trained.audit(replay=2).ok


def test_of_two_that_extend_at_once_none_loses_what_the_other_added(trained, monkeypatch):
    chosen = orders.orders_of_shards
    calls = []

    def overtaken(*about, **how):
        calls.append(1)
        if len(calls) == 1:
            with s3t.Run.open(trained.path) as other:
                roles(other).orders.extend(other.recipe, orders.Addition(budget=4), lock=roles(other).lock)
        return chosen(*about, **how)

    monkeypatch.setattr(orders, "orders_of_shards", overtaken)
    trained.extend(budget=5)
    assert {len(of_shard) for of_shard in orders_of(trained)} == {5}
    assert len(calls) == 3
