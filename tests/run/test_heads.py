"""Heads that are solved from what all live slices of a run leave: exact, whatever the model was trained on."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

import s3t
from experiments.frontier.models import trained_heads
from s3t.core import Place, Stage
from s3t.core.stages import readout
from s3t.events import silent
from s3t.prediction import ridge
from s3t.prediction.ensemble import Kept
from s3t.prediction.ridge import PENALTIES, LinearHead
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest_inputs
from s3t.run import workshop as workshop_module
from testing import tiny
from testing.roles import roles
from tests.run import test_ridge
from tests.run.test_ridge import TASKS, table_for
from tests.run.worlds import Worlds, clone, lose_stages, records_by_slice, trained_run

TWO = {"budget": 2, "selector": "cyclic"}
SYSTEMS = {
    "s3t": {"sequences": TWO},
    "merged": {"sequences": TWO, "prediction": {"ensemble": "merged"}},
    "sisa": {"method": "sisa"},
    "full": {"method": "full", "partition": {"shards": 1, "slices": 1, "salt": tiny.SALT}},
}
TABLE = tiny.text_table(40)


def recipe_of(model, *, system="s3t", **changes):
    own = SYSTEMS[system]
    recipe = tiny.recipe(model, **{"training": {"epochs": 1}} | changes) | {"head": "ridge"} | own
    if system not in ("s3t", "merged"):
        del recipe["sequences"]
    return recipe


@pytest.fixture(scope="module")
def made(state_of_all, text_model, tmp_path_factory):
    """The folders of trained runs whose members have heads of their own, or one of their mean; to be copied."""
    folder = tmp_path_factory.mktemp("heads")
    for system in ("s3t", "merged"):
        trained_run(folder / system, recipe_of(text_model, system=system), TABLE).close()
    return folder


@pytest.fixture(params=["s3t", "merged"])
def system(request):
    return request.param


@pytest.fixture
def run(system, made, tmp_path):
    with s3t.Run.open(tiny.copy_run(made / system, tmp_path / "run")) as run:
        yield run


PLACES = records_by_slice(tiny.recipe("any"), TABLE)


def hit(run, place):
    """What a deletion in a slice does to stages, and to what takes a pass alone."""
    lose_stages(run, lambda stage: place in stage.places)
    run.repair(hours=0)


def readouts_in(run):
    return {stage for stage in run.inventory().alive if stage.kind == "readout"}


def whole(run):
    """The readouts of all models that serve, or of their mean; and of the base model."""
    slices = [Place(shard, index) for shard in range(2) for index in range(3)]
    models = [Stage(*member[:2]) for member in run.predict(tiny.text_table()).members]
    groups = [models] if run.recipe.readouts == "mean" else [[model] for model in models]
    return {readout(place, group) for group in [*groups, []] for place in slices}


def two_runs(folder, recipe, table, gone):
    """One that forgets, and one that never knew."""
    left = table[~table.id.isin(gone)]
    return trained_run(folder / "forgot", recipe, table), trained_run(folder / "never-knew", recipe, left)


def exact_after(folder, recipe, table, hits, *, made=None):
    """Whether a run that forgets has the artifacts and, before and after the repair, the answers of one that never
    knew, in which the same slices were hit. Before the last hit a head still has the records of later ones."""
    places = records_by_slice(recipe, table)
    gone = [places[place][number] for number, place in enumerate(hits)]
    if made is None:
        forgot, never_knew = two_runs(folder, recipe, table, gone)
    else:
        forgot, never_knew = (clone(made / name, folder / name) for name in ("forgot", "never-knew"))
    exact = True
    with forgot, never_knew:
        for place, record in zip(hits, gone, strict=True):
            forgot.predict(table)
            forgot.delete(records=[record])
            hit(never_knew, Place(*place))
            mine, theirs = tiny.artifacts(forgot.path), tiny.artifacts(never_knew.path)
            exact = exact and all(mine[name] == theirs[name] for name in mine.keys() & theirs.keys())
            exact = exact and forgot.inventory().alive.keys() == never_knew.inventory().alive.keys()
        exact = exact and forgot.audit(replay=2).ok
        here, there = forgot.predict(table), never_knew.predict(table)
        exact = exact and np.array_equal(here.logits, there.logits, equal_nan=True)
        forgot.repair()
        never_knew.repair()
        exact = exact and tiny.artifacts(forgot.path) == tiny.artifacts(never_knew.path)
        return exact and np.array_equal(forgot.predict(table).logits, never_knew.predict(table).logits, equal_nan=True)


HITS = [(0, 2), (1, 1), (0, 2)]


@pytest.mark.parametrize(
    ("system", "hits"),
    [
        ("s3t", HITS),
        ("full", [(0, 0)]),
        *(pytest.param(system, HITS, marks=pytest.mark.integration) for system in ("merged", "sisa")),
    ],
)
def test_deletions_are_exact_by_every_method(system, hits, text_model, tmp_path):
    assert exact_after(tmp_path, recipe_of(text_model, system=system), TABLE, hits)


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(name, marks=[] if name == "tags" else pytest.mark.integration)
        for name in TASKS
        if "bfloat16" not in name
    ],
)
def test_deletions_are_exact_for_every_task(task, text_model, image_model, tmp_path):
    model = image_model if task == "images" else text_model
    changes = {name: value for name, value in TASKS[task].items() if name != "ridge"}
    assert exact_after(tmp_path, recipe_of(model, partition={"slices": 2}, **changes), table_for(task), [(0, 1)])


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_random_schedules_of_deletions_are_exact(system, text_model, tmp_path):
    """Before the repair, `exact_after` compares: the other run has no readouts of models to fall back to."""
    test_ridge.assert_exact_after_random_schedules(
        tmp_path,
        recipe_of(text_model, system=system),
        tiny.text_table(14),
        name=system,
        count=20,
        exact=Worlds.assert_exact_repaired,
    )


def rows_of(table, run):
    return ingest_inputs(table.drop(columns="label"), run.recipe).features


def test_a_head_is_the_ridge_solution_for_what_the_models_head_reads(text_model, tmp_path):
    with trained_run(tmp_path / "run", recipe_of(text_model, ridge={"layers": 0}), TABLE) as run:
        assert readouts_in(run) == whole(run)
        stage = Stage(*run.predict(TABLE).members[0][:2])
        now, workshop = run.parts.latest.snapshot(), roles(run).loaded.get()
        link = next(iter(workshop._heads._values.values()))
        assert workshop.chain([stage], now)[-1] is link
        (name, linear), caught = workshop.model.base.last_linear, []
        hook = linear.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0].double().numpy()))
        for number in range(len(TABLE)):
            workshop.logits([stage], now, rows_of(TABLE[number : number + 1], run))
        hook.remove()
    x, y = np.concatenate(caught), np.eye(3)[["abc".index(label) for label in TABLE.label]]
    x, weights = x - x.mean(axis=0), link.head[f"{name}.weight"].double().numpy().T
    scale = np.square(x).sum(axis=0).mean()
    # The module's weights are those of the solution over a temperature, t: x'(y - x w t) = penalty * scale * w t.
    left = []
    for penalty in PENALTIES:
        solution = np.linalg.solve(x.T @ x + penalty * scale * np.eye(x.shape[1]), x.T @ (y - y.mean(axis=0)))
        ratio = float((solution * weights).sum() / (weights * weights).sum())
        left.append(np.abs(solution - ratio * weights).max() / np.abs(solution).max())
    assert min(left) < 1e-3


def test_a_shallow_model_has_a_head_of_all_slices(run):
    order = run.inventory().orders[0][0]
    for index in order[1:]:
        done = run.delete(records=PLACES[0, index][:1])
    assert [len(member.prefix) for member in run.predict(TABLE).members] == [1, 3]
    assert readouts_in(run) == whole(run)
    assert {stage.kind for stage in done.repair.stages} == {"readout"}
    assert run.status().missing > 0
    run.repair()
    assert readouts_in(run) == whole(run)
    assert run.train().stages == ()
    said = " ".join(run.evaluate(TABLE).notices)
    assert "models answer with trained heads" in said or "the shards' mean answers, which has no depths" in said


@pytest.mark.parametrize("shards", [1, 2])
def test_a_head_is_chosen_by_records_that_its_model_was_not_trained_on(shards, text_model, made, tmp_path, monkeypatch):
    """Of the other shards; where there is none, probabilities are as sharp as those of the base model's head."""
    path = tmp_path / "run"
    if shards == 1:
        recipe = recipe_of(text_model, partition={"shards": 1})
        trained_run(path, recipe, TABLE).close()
    else:
        tiny.copy_run(made / "s3t", path)
    with s3t.Run.open(path) as run:
        workshop, snapshot = run.parts.loaded.get(), run.parts.latest.snapshot()
        records = {place: state.records for place, state in snapshot.slices.items()}
        groups = {models: readouts for models, readouts in snapshot.readouts.items() if models}
        assert len(groups) == shards
        base = workshop._solved(snapshot.readouts[()], snapshot, silent)
        asked = []

        def noting(parts, **how):
            asked.append(parts)
            return ridge.solved(parts, **how)

        monkeypatch.setattr(workshop_module, "solved", noting)
        for (model,), readouts in groups.items():
            head = workshop._solved(readouts, snapshot, silent)
            others = sum(count for place, count in records.items() if place.shard != model.shard)
            assert sum(len(part.targets) for part in asked[-1]) == (others or sum(records.values()))
            assert (head.scale == base.scale) == (shards == 1)
        assert base.scale.temperature != 0.1  # that of none


def test_a_head_reads_nothing_of_slices_that_left_no_readout_for_its_model(made, tmp_path):
    """While a model has those of its own slices alone, the base model's of the same ones say how sure it is."""
    path, probe = tiny.copy_run(made / "s3t", tmp_path / "run"), TABLE[:8]
    with s3t.Run.open(path) as run:
        lose_stages(run, lambda each: [model.shard for model in each.models] == [0] and each.places[0].shard == 1)
        before = run.predict(probe)
        run.delete(records=PLACES[1, 1][:1], repair=False)
        after = run.predict(probe)
        with s3t.Run.open(path) as other:
            assert np.array_equal(after.logits, other.predict(probe).logits)
        (mine,) = (place for place, member in enumerate(before.members) if member.shard == 0)
        assert np.array_equal(before.logits[mine], after.logits[mine])


def test_answers_do_not_depend_on_what_was_solved_before(text_model, tmp_path):
    own = {"method": "ridge", "ridge": {"projection": 16}, "deletion": {"repair": "manual"}}
    recipe, table = tiny.recipe(text_model, partition={"shards": 1}) | own, tiny.text_table(180)
    del recipe["adapter"], recipe["sequences"]
    places = records_by_slice(recipe, table)
    with trained_run(tmp_path / "run", recipe, table) as run:
        for index in range(3):
            run.predict(table)
            with s3t.Run.open(run.path) as other:
                assert np.array_equal(run.predict(table).logits, other.predict(table).logits)
            if index < 2:
                run.delete(records=places[0, index][:1], repair=False)


@pytest.mark.parametrize(("system", "layers"), [("s3t", 1), pytest.param("merged", 0, marks=pytest.mark.integration)])
def test_where_no_model_lives_the_base_model_answers(system, layers, text_model, tmp_path):
    recipe = recipe_of(text_model, system=system, ridge={"layers": layers})
    with trained_run(tmp_path / "run", recipe, TABLE) as run:
        with pytest.raises(s3t.InputError, match="no slice of shard 0"):
            run.predict(TABLE, prefixes=[(0, ())])
        gone = []
        while run.inventory().members():
            gone.append(PLACES[divmod(len(gone), 3)][0])
            done = run.delete(records=gone[-1:])
        assert (done.answering, run.status().answering, run.inventory().depths()) == (2, (0, 1), (0, 0))
        assert "the base model answers, with a solved head" in run.status().warnings[0]
        answer, left = run.predict(TABLE), readouts_in(run)
        assert [member[:2] for member in answer.members] == [(0, ())]
        assert {stage.reads for stage in left} == {()}
        assert np.array_equal(run.predict(TABLE, prefixes=answer.members).logits, answer.logits)
        measured = run.evaluate(TABLE)
        assert (measured.per_shard, measured.per_depth) == ((), ())
        assert measured.metrics["accuracy"] > 0.5


@pytest.mark.parametrize("system", ["merged"], indirect=True)
def test_a_mean_of_models_has_no_depths(run):
    run.delete(records=PLACES[0, 2][:1])
    assert len(set(run.inventory().depths())) == 2
    measured = run.evaluate(TABLE)
    assert measured.per_depth == ()
    assert "the shards' mean answers, which has no depths" in measured.notices


def test_numbers_are_answered_in_float32_also_where_the_model_computes_in_bfloat16(text_model, tmp_path):
    table = tiny.text_table(60).assign(label=[2000 + number % 5 for number in range(60)])
    recipe = recipe_of(text_model, system="full", training={"epochs": 0, "precision": "bfloat16"}, labels=None)
    recipe |= {"task": "text-regression", "ridge": {"layers": 0}}
    with trained_run(tmp_path / "run", recipe, table) as run:
        assert len(set(run.predict(table).predicted)) > 30  # in bfloat16 there is one number


def test_where_one_deletion_takes_everything_a_pass_brings_the_base_model_back(text_model, tmp_path):
    with trained_run(tmp_path / "run", recipe_of(text_model, system="full"), tiny.text_table()) as run:
        (warning,) = run.delete(records=["r0"], dry_run=True).warnings
        assert warning.endswith("until `s3t repair` has passed through the records")
        done = run.delete(records=["r0"])
        assert {stage.kind for stage in done.repair.stages} == {"readout"}
        assert done.warnings == run.status().outage
        assert done.warnings[0].startswith("no model is alive: the base model answers")
        assert [member[:2] for member in run.predict(tiny.text_table()).members] == [(0, ())]


def test_the_base_models_head_is_that_of_method_ridge(text_model, tmp_path):
    one = {"shards": 1, "slices": 3, "salt": tiny.SALT}
    recipe = recipe_of(text_model, partition=one, ridge={"projection": 64})
    other = {name: value for name, value in recipe.items() if name not in ("head", "sequences")} | {"method": "ridge"}
    places = records_by_slice(recipe, TABLE)
    with trained_run(tmp_path / "run", recipe, TABLE) as run, trained_run(tmp_path / "ridge", other, TABLE) as alone:
        for index in range(3):
            run.delete(records=places[0, index][:1])
            alone.delete(records=places[0, index][:1], repair=False)
        alone.repair()
        assert not run.inventory().members()
        assert np.array_equal(run.predict(TABLE).logits, alone.predict(TABLE).logits)


def test_a_deletion_of_a_slice_that_no_model_has_seen_overtakes_answers(run):
    run.delete(records=PLACES[0, run.inventory().orders[0][0][2]][:1])
    (unseen,) = {0, 1, 2} - set(run.predict(TABLE).members[0].prefix)
    with s3t.Run.open(run.path) as other, run.hold(TABLE) as held:
        roles(other).deleter.patience = 0.0
        other.delete(records=PLACES[0, unseen][1:2])
        assert not held.may_leave()


def tensors_of(kept):
    """Those of a solved head, of a link, or of the links of a mean."""
    if isinstance(kept, LinearHead):
        return [kept.weights, kept.bias]
    return [tensor for link in (kept if isinstance(kept, list) else [kept]) for tensor in [*link.head.values()][-2:]]


@pytest.mark.parametrize("hand", ["its own", "another process's"])
def test_when_a_deletion_is_effective_no_head_of_what_it_took_is_in_memory(hand, system, run):
    run.predict(TABLE)
    kept = list(roles(run).loaded.get()._heads._values.values())
    held = [weakref.ref(tensor) for each in kept for tensor in tensors_of(each)]
    kept.clear()
    if hand == "its own":
        state = run.delete(records=["r3"], repair=False).state
    else:
        with s3t.Run.open(run.path) as other:
            state = other.delete(records=["r3"], repair=False).state
    assert state in ("effective", "erased")
    gc.collect()
    assert [tensor() for tensor in held] == [None] * {"s3t": 4, "merged": 8}[system]


PLANTED = {name: test_ridge.PLANTED[name] for name in ("subtraction", "a deletion takes models alone")} | {
    "a head that is kept": (
        Kept,
        "of",
        lambda of: lambda self, keys, compute: of(self, kept_by(keys, compute), compute),
    )
}


def kept_by(keys, compute):
    """Of a head its first model alone."""
    return keys if "chain" in getattr(compute, "__qualname__", "") else keys[:1]


@pytest.fixture(scope="module")
def summed(state_of_all, text_model, tmp_path_factory):
    """A recipe, and the folder of two runs, to be cloned, whose slices leave sums."""
    folder, recipe = tmp_path_factory.mktemp("sums"), recipe_of(text_model, ridge={"layers": 0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge, "is_few", lambda *_: False)
        for run in two_runs(folder, recipe, TABLE, [PLACES[place][number] for number, place in enumerate(HITS)]):
            run.close()
    return recipe, folder


@pytest.mark.integration
@pytest.mark.parametrize("leak", [None, *PLANTED])
def test_planted_leaks_are_caught(leak, summed, tmp_path, monkeypatch):
    monkeypatch.setattr(ridge, "is_few", lambda *_: False)
    if leak is not None:
        where, name, plant = PLANTED[leak]
        monkeypatch.setattr(where, name, plant(getattr(where, name)))
    recipe, made = summed
    assert exact_after(tmp_path, recipe, TABLE, HITS, made=made) is (leak is None)


def test_a_head_is_of_each_slices_newest_readout_and_what_waits_to_be_learned_decides_nothing(run):
    now, emptied = run.parts.latest.snapshot(), {(0, 0), (0, 1), (0, 2), (1, 0)}
    slices = {
        place: replace(state, records=0) if place[:2] in emptied else state for place, state in now.slices.items()
    }
    waiting = {place._replace(segment=1): replace(state, records=1) for place, state in slices.items()}
    live = {
        stage: of
        for stage, of in now.live.artifacts.items()
        if stage.kind != "readout" or (stage.shard, *stage.prefix) not in emptied
    }
    newer = {stage._replace(seen=1): of for stage, of in live.items() if stage.kind == "readout" and 2 in stage.prefix}
    then = replace(now, slices=slices | waiting, live=replace(now.live, artifacts=newer | live))
    assert then.readouts.keys() == now.readouts.keys()
    for readouts in then.readouts.values():
        assert [(stage.shard, stage.prefix, stage.seen) for stage in readouts] == [(1, (1,), 0), (1, (2,), 1)]


def test_of_less_than_half_of_the_slices_no_head_is_solved(system, run):
    def forget(count):
        alive = run.inventory().alive
        (models, *_) = {stage.models: None for stage in alive if stage.models}
        gone = [stage for stage in alive if stage.models == models][:count]
        lose_stages(run, gone.__contains__)
        return models in run.parts.latest.snapshot().readouts, run.predict(TABLE)

    has_head, half = forget(3)
    has_none, fewer = forget(1)
    assert (has_head, has_none) == (True, False)
    models = [Stage(*member[:2]) for member in fewer.members]
    trained = trained_heads(run)(run.parts.latest.snapshot(), models, rows_of(TABLE, run))
    for place in range(2) if system == "merged" else [0]:
        np.testing.assert_allclose(fewer.logits[place], trained[place], rtol=1e-4)
        assert not np.array_equal(half.logits[place], fewer.logits[place])
    if system == "merged":
        assert np.array_equal(half.logits[0], half.logits[1])
        assert not np.array_equal(fewer.logits[0], fewer.logits[1])
    told = []
    run.repair(hours=0, progress=told.append)
    begun = {event.stage: event.records for event in told if isinstance(event, s3t.StageStart)}
    assert begun == {stage: run.inventory().records[stage.places[0]] for stage in begun}
    assert len(begun) == 4


@pytest.mark.parametrize(
    ("system", "changes", "said"),
    [
        ("s3t", {"method": "ridge", "sequences": {}}, "method ridge has no other"),
        ("s3t", {"prediction": {"ensemble": "sequences"}}, "one live chain a shard"),
        ("s3t", {"ridge": {"layers": 0, "projection": 8}}, "without a projection"),
        ("merged", {"head": "trained"}, "needs a head of its own"),
        ("merged", {"partition": {"shards": 1, "slices": 3}}, "there is one shard"),
        ("merged", {"partition": {"shards": 100, "slices": 3}}, "at most 256 slices"),
        ("merged", {"adapter": {"use_dora": True}}, "mean of DoRA adapters"),
    ],
)
def test_what_has_no_such_head_is_refused(system, changes, said, tmp_path):
    with pytest.raises(s3t.RecipeError, match=said):
        recipe_from(recipe_of(tmp_path, system=system) | changes)


@pytest.mark.parametrize("system", ["s3t"], indirect=True)
def test_what_cannot_be_exported_with_its_head_is_refused(run, text_model, tmp_path):
    with pytest.raises(s3t.InputError, match="reads states of layers"):
        run.export(tmp_path / "out")
    merged = recipe_of(text_model, system="merged", ridge={"layers": 0})
    with s3t.Run.create(tmp_path / "merged", recipe=merged, data=TABLE) as merged_run:
        with pytest.raises(s3t.InputError, match="leave the shard out"):
            merged_run.export(tmp_path / "out", shard=0)
        merged_run.train()
        lose_stages(merged_run, lambda stage: bool(stage.models))
        with pytest.raises(s3t.InputError, match="heads are not solved yet"):
            merged_run.export(tmp_path / "out")
