"""Method ridge: nothing is trained; a head over what is alive, exact for every task, and nothing stays of what left."""

import gc
import random
import shutil
import weakref

import numpy as np
import pyarrow as pa
import pytest
import torch

import s3t
from s3t.deletion import acceptance
from s3t.ledger import DepthChange
from s3t.models.adapters import deserialize
from s3t.prediction import ridge
from s3t.prediction.ridge import GRAM, PARTS, PENALTIES, PRODUCTS
from s3t.recipe import recipe_from
from s3t.run.workshop import Workshop
from testing import tiny
from testing.roles import roles
from tests.run.worlds import Worlds, clone, make_worlds, records_by_slice, trained_run

TASKS = {
    "classes": {},
    "numbers": {"task": "text-regression", "labels": None},
    "labels in order": {"task": "text-ordinal-classification"},
    "several labels": {"task": "text-multi-label-classification"},
    "tags": {"task": "token-classification", "labels": tiny.TAGS},
    "images": {"kind": "image"},
    "classes, in bfloat16, from the last layer alone": {
        "training": {"precision": "bfloat16"},
        "ridge": {"layers": 1, "projection": 0},
    },
}
SLICES = 4
SCHEDULES = 36
"""Of each task and each form of what slices leave: 504 in all."""


def recipe_with(model, **changes):
    changes = {"partition": {"shards": 1, "slices": SLICES}, "ridge": {"projection": 16}} | changes
    recipe = tiny.recipe(model, **changes) | {"method": "ridge"}
    del recipe["sequences"]
    return recipe


def table_for(task):
    table = tiny.image_table() if task == "images" else tiny.text_table()
    if task == "numbers":
        return table.assign(label=[position / 7 for position in range(len(table))])
    if task == "several labels":
        return tiny.with_several_labels(table)
    return tiny.tagged_table() if task == "tags" else table


@pytest.fixture(params=[False, True], ids=["features", "sums"])
def stored(request, monkeypatch):
    """What slices leave: features, as they are so small, or sums and a sample."""
    if request.param:
        monkeypatch.setattr(ridge, "is_few", lambda *_: False)
        monkeypatch.setattr(ridge, "SAMPLE", 3)
    return request.param


@pytest.mark.parametrize(
    ("task", "stored"),
    [
        ("classes", False),
        ("tags", True),
        *(pytest.param(task, True, marks=pytest.mark.integration) for task in TASKS if task != "tags"),
    ],
    indirect=["stored"],
)
def test_a_deletion_is_exact_for_every_task(task, stored, text_model, image_model, tmp_path):
    recipe = recipe_with(image_model if task == "images" else text_model, **TASKS[task])
    worlds = make_worlds(tmp_path, recipe, table_for(task), [["r1"], ["r5", "r9"]])
    assert 0 < worlds.forgot.status().depths[0] < SLICES
    (one, *_) = worlds.forgot.path.rglob("*.safetensors")
    assert (GRAM in deserialize(one.read_bytes()).block) is stored
    worlds.assert_exact()
    assert worlds.forgot.status().depths == (SLICES,)
    assert worlds.forgot.audit(replay=2).ok
    worlds.close()


def assert_exact_after_random_schedules(folder, recipe, table, *, name, count, exact=Worlds.assert_exact):
    """Requests, some of them with repairs or answers between."""
    trained_run(folder / "trained", recipe, table).close()
    for seed in range(count):
        rng = random.Random(f"{name}, {seed}")
        requests = [rng.sample(list(table.id), rng.randint(1, 3)) for _ in range(rng.randint(1, 4))]
        gone = {record for request in requests for record in request}
        forgot = clone(folder / "trained", folder / f"forgot-{seed}")
        for request in requests:
            forgot.delete(records=request)
            if rng.random() < 0.4:
                forgot.repair()
            if rng.random() < 0.4 and forgot.status().answering:
                forgot.predict(table)
        never_knew = trained_run(folder / f"never-knew-{seed}", recipe, table[~table.id.isin(gone)])
        worlds = Worlds(forgot, never_knew, probe=table)
        exact(worlds)
        worlds.close()
        for run in (forgot, never_knew):
            shutil.rmtree(run.path)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_random_schedules_of_deletions_are_exact(task, stored, text_model, image_model, tmp_path):
    recipe = recipe_with(image_model if task == "images" else text_model, **TASKS[task])
    assert_exact_after_random_schedules(
        tmp_path, recipe, table_for(task).tail(14), name=f"{task}, {stored}", count=SCHEDULES
    )


def features_of(run, texts):
    """By transformers alone: token means of all three layers, each of length 1, joined."""
    model, encoder = roles(run).loaded.get().model, roles(run).loaded.get().encoder
    found = []
    for text in texts:
        batch = encoder.collate(encoder.encode(pa.table({"text": [text]})))
        with torch.no_grad():
            layers = model.base.model.backbone(**batch, output_hidden_states=True).hidden_states[:0:-1]
        found.append(torch.cat([torch.nn.functional.normalize(states[0].mean(dim=0), dim=0) for states in layers]))
    return torch.stack(found).double().numpy()


def test_the_head_is_the_ridge_solution_for_the_features_of_live_slices(text_model, tmp_path):
    table = tiny.text_table(60)
    recipe = recipe_with(text_model, ridge={"projection": 0}, text={"pooling": "mean"})
    with trained_run(tmp_path / "run", recipe, table) as run:
        (gone, *_) = records_by_slice(recipe, table)[0, 2]
        run.delete(records=[gone])
        answer = run.predict(table)
        assert [(member.prefix, member.kind) for member in answer.members] == [((0, 1, 3), "statistics")]
        (head,) = roles(run).loaded.get()._heads._values.values()
        alive = [record for (_, index), ids in records_by_slice(recipe, table).items() if index != 2 for record in ids]
        rows = table[table.id.isin(alive)]
        x, y = features_of(run, rows.text), np.eye(3)[["abc".index(label) for label in rows.label]]
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        weights = head.weights.numpy()
        scale = np.square(x).sum(axis=0).mean()
        left = [np.abs(x.T @ (y - x @ weights) - penalty * scale * weights).max() for penalty in PENALTIES]
        assert min(left) < 1e-4  # float32 features
        probabilities = np.exp(answer.logits[0])
        assert np.allclose(answer.probabilities, probabilities / probabilities.sum(axis=1, keepdims=True))


def test_a_deletion_takes_one_slice_and_the_answer_goes_on_with_the_others(text_model, tmp_path):
    table = tiny.text_table()
    recipe = recipe_with(text_model)
    del recipe["deletion"]
    with trained_run(tmp_path / "run", recipe, table) as run:
        assert {stage.kind for stage in run.inventory().alive} == {"statistics"}
        report = run.delete(records=[records_by_slice(recipe, table)[0, 1][0]], dry_run=True)
        assert (report.stages_lost, report.depths_before, report.depths_after) == (1, (4,), (3,))
        assert (report.warnings, report.repair_due) == ((), True)
        report = run.delete(records=[records_by_slice(recipe, table)[0, 1][0]], repair=True)
        assert [stage.prefix for stage in report.repair.stages] == [(1,)]
        status = run.status(full=True)
        assert (status.depths, status.wanted_depth, status.missing) == ((4,), 4, 0)
        ahead = status.forecast
        assert (ahead.living_shards, ahead.depth_falls_below[4]) == (1, 1)
        assert ahead.all_shards_die > 4
        assert ahead.depth_falls_below.keys() == {2, 3, 4}
        with roles(run).ledger.reading() as transaction:
            changes = [(each.depth_before, each.depth) for each in transaction.rows.all(DepthChange)]
        assert changes == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 3), (3, 4)]
        (shard,) = status.shards
        assert (shard.serving.order, shard.serving.name, shard.prototypes) == ((0, 1, 2, 3), "head", None)


@pytest.mark.parametrize(("method", "kind"), [("ridge", "statistics"), ("protosisa", "prototypes")])
def test_a_repair_of_no_hours_makes_what_takes_a_pass_and_trains_nothing(method, kind, text_model, tmp_path):
    table, recipe = tiny.text_table(), recipe_with(text_model)
    if method == "protosisa":
        recipe = {name: value for name, value in tiny.recipe(text_model).items() if name != "sequences"}
        recipe["method"] = method
    with trained_run(tmp_path / "run", recipe, table) as run:
        run.delete(records=[records_by_slice(recipe, table)[0, 1][0]], repair=False)
        made = run.repair(hours=0).stages
        assert [(stage.kind, stage.prefix) for stage in made] == [(kind, (1,))]
        assert (run.status().missing == 0) == (method == "ridge")


def test_slices_that_are_named_answer_alone(text_model, tmp_path):
    table = tiny.text_table()
    with trained_run(tmp_path / "run", recipe_with(text_model), table) as run:
        some, all_of_them = run.predict(table, prefixes={0: (0, 2)}), run.predict(table)
        assert [member.prefix for member in some.members] == [(0, 2)]
        assert not np.array_equal(some.logits, all_of_them.logits)
        assert run.predict(table, prefixes={0: (2, 0, 2)}).members == some.members
        with pytest.raises(s3t.InputError, match="no slice of shard 0"):
            run.predict(table, prefixes={0: ()})
        run.delete(records=[records_by_slice(recipe_with(text_model), table)[0, 2][0]])
        with pytest.raises(s3t.InputError, match="is not alive"):
            run.predict(table, prefixes={0: (0, 2)})


@pytest.mark.parametrize("hand", ["its own", "another process's"])
def test_when_a_deletion_is_effective_no_head_of_what_it_took_is_in_memory(hand, text_model, tmp_path):
    table = tiny.text_table()
    with trained_run(tmp_path / "run", recipe_with(text_model), table) as run:
        run.predict(table)
        held = weakref.ref(*roles(run).loaded.get()._heads._values.values())
        parts = {keys: weakref.ref(part.targets) for keys, part in roles(run).loaded.get()._parts._values.items()}
        if hand == "its own":
            state = run.delete(records=["r3"]).state
        else:
            with s3t.Run.open(run.path) as other:
                state = other.delete(records=["r3"]).state
        assert state in ("effective", "erased")
        gc.collect()
        assert held() is None
        alive = set(run.inventory().alive.values())
        assert [part() is None for part in parts.values()] == [not alive.issuperset(keys) for keys in parts]
        assert len(roles(run).loaded.get()._parts._values) == PARTS - 1


def kept_by(key):
    """What is made once stays: a head of some slices; penalty and temperature, chosen with all records."""

    def plant(made):
        kept = {}
        return lambda *given: kept.setdefault(key(*given), made(*given))

    return plant


def less_what_left(made):
    """Sums in single precision that are subtracted from, in the place of new ones."""
    first = {}

    def subtracted(self, stage, *given):
        new = made(self, stage, *given)
        old = first.setdefault((id(self), stage), new)
        for name in (GRAM, PRODUCTS) if old is not new else ():
            new.block[name] = (old.block[name].float() - (old.block[name] - new.block[name]).float()).double()
        return new

    return subtracted


PLANTED = {
    "a head that is kept": (Workshop, "_head", kept_by(lambda workshop, stage, *_: (id(workshop), stage.shard))),
    "choices that are kept": (ridge, "_chosen", kept_by(lambda *_: None)),
    "subtraction": (Workshop, "_of_slice", less_what_left),
    "a deletion takes models alone": (
        acceptance,
        "plan_deletion",
        lambda plan: lambda *args: tuple(stage for stage in plan(*args) if stage.kind == "model"),
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("leak", [None, *PLANTED])
def test_planted_leaks_are_caught(leak, text_model, tmp_path, monkeypatch):
    table, gone = tiny.text_table(), ["r1", "r4", "r9"]
    with monkeypatch.context() as patch:
        patch.setattr(ridge, "is_few", lambda *_: False)
        never_knew = trained_run(tmp_path / "never-knew", recipe_with(text_model), table[~table.id.isin(gone)])
        if leak is not None:
            where, name, plant = PLANTED[leak]
            patch.setattr(where, name, plant(getattr(where, name)))
        forgot = trained_run(tmp_path / "forgot", recipe_with(text_model), table)
        forgot.predict(table)
        forgot.delete(records=gone)
        here = forgot.predict(table)
        forgot.repair()
    there = never_knew.predict(table, prefixes=here.members)
    exact = np.array_equal(here.logits, there.logits) and tiny.artifacts(forgot.path) == tiny.artifacts(never_knew.path)
    assert exact is (leak is None)
    forgot.close()
    never_knew.close()


def test_what_a_ridge_head_cannot_be_is_refused(text_model):
    for changes, said in (
        ({"partition": {"shards": 2}}, "leave partition.shards out"),
        ({"deletion": {"repair": {"policy": "as-needed", "depth": 2}}}, "has no chains"),
        ({"sequences": {"budget": 2}}, "has one order"),
        ({"prediction": {"prototypes_alone": True}}, "belongs to protosisa"),
        ({"method": {"name": "ridge", "replay": 0.5}}, "belong to s3t"),
        ({"method": {"name": "ridge", "trainable": "all"}}, "ridge trains nothing"),
    ):
        with pytest.raises(s3t.RecipeError, match=said):
            recipe_from(recipe_with(text_model) | changes)


def test_defaults_are_one_shard_of_many_slices_and_repair_at_once(text_model):
    content = recipe_with(text_model)
    del content["partition"], content["deletion"]
    recipe = recipe_from(content)
    assert (recipe.partition.shards, recipe.partition.slices, recipe.deletion.repair) == (1, 12, "eager")
    assert recipe_from(content | {"deletion": {"repair": "manual"}}).deletion.repair == "manual"


def test_it_is_not_exported(text_model, tmp_path):
    run = trained_run(tmp_path / "run", recipe_with(text_model), tiny.text_table())
    with run, pytest.raises(s3t.InputError, match="no other program computes"):
        run.export(tmp_path / "out")
