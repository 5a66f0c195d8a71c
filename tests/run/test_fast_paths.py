"""What makes training fast changes nothing that it should not: no bit with the budget, hardly a number otherwise."""

import gc
import weakref
from pathlib import Path

import pytest

import s3t
from s3t.core import Place
from s3t.models.blocks import Model
from s3t.training import stage
from s3t.training.examples import TrunkCache
from testing import tiny
from testing.plain import as_peft_computes
from testing.roles import roles
from tests.run.worlds import SMALL, artifacts_after, make_worlds, trained_run

TABLES = {"text": tiny.text_table, "image": tiny.image_table}


@pytest.fixture
def models(text_model, image_model):
    return {"text": text_model, "image": image_model}


def trained(folder, model, kind, size=None, **training):
    recipe = tiny.recipe(model, kind=kind, training=training, **(size or {}))
    return artifacts_after(folder, recipe, TABLES[kind]())


@pytest.mark.integration
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_no_budget_changes_a_bit(models, tmp_path, kind, precision):
    """All in memory; all on the disk; hardly room for one stage, so that states come and go."""
    budgets = {"memory": (1 << 30, 0), "disk": (0, 1 << 30), "scarce": (6000, 12_000)}
    results = {
        name: trained(tmp_path / name, models[kind], kind, precision=precision, cache_memory=memory, cache_disk=disk)
        for name, (memory, disk) in budgets.items()
    }
    assert results["memory"] == results["disk"] == results["scarce"]
    plain = trained(tmp_path / "plain", models[kind], kind, precision=precision, **tiny.PLAIN)
    assert plain.keys().isdisjoint(results["memory"])  # other bits have other keys


@pytest.mark.integration
def test_a_budget_without_room_for_a_stage_says_what_to_do_and_a_larger_one_goes_on(text_model, tmp_path):
    recipe = tiny.recipe(text_model, training={"cache_memory": 1000, "cache_disk": 1000}, **SMALL)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        with pytest.raises(s3t.StorageError, match=r"trunk cache has no room.*recipe\.yaml"):
            run.train()
        written = (run.path / "recipe.yaml").read_text()
    (tmp_path / "run" / "recipe.yaml").write_text(written.replace("cache_disk: 1000", "cache_disk: 1MiB"))
    with s3t.Run.open(tmp_path / "run") as run:
        run.train()
        assert run.audit(replay=2).ok
    assert tiny.artifacts(run.path) == trained(tmp_path / "roomy", text_model, "text", size=SMALL)


@pytest.mark.parametrize("budget", [{"cache_memory": "1MiB", "cache_disk": 0}, {"cache_memory": 0}], ids=str)
def test_states_die_with_their_slice(text_model, tmp_path, budget):
    """In memory, and in files without a name: only the process itself could still read them."""
    recipe = tiny.recipe(text_model, training=budget, partition={"shards": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        material = roles(run).loaded.get().material
        place = Place(*run.delete(records=["r3"], dry_run=True).slices[0])
        held = [weakref.ref(states) for (at, _), states in states_of(material) if at == place]
        mapped = open_files(tmp_path)
        assert len(held) == 3  # at the border of every block
        assert bool(mapped) == (budget["cache_memory"] == 0)
        run.delete(records=["r3"])
        gc.collect()
        assert place not in material.held
        assert [states() for states in held] == [None] * len(held)
        assert len(open_files(tmp_path)) == (len(mapped) - len(held) if mapped else 0)


@pytest.mark.integration
@pytest.mark.parametrize("leak", [False, True])
def test_states_that_outlive_their_slice_would_be_caught(text_model, tmp_path, monkeypatch, leak):
    """The leak: what is cached is found by its slice's place alone, and nobody lets go of it."""
    if leak:
        find = TrunkCache.find
        for name in ("forget", "keep"):
            monkeypatch.setattr(TrunkCache, name, lambda self, stale: None)
        monkeypatch.setattr(
            TrunkCache,
            "find",
            lambda self, place, border, digest: find(
                self, place, border, next((held.digest for name, held in self._held.items() if name[0] == place), "")
            ),
        )
    table = tiny.text_table(12)
    table["text"] = [" ".join(tiny.WORDS[number : number + 5]) for number in range(12)]  # all of one length
    recipe = tiny.recipe(text_model, partition={"shards": 1}, sequences={"budget": 1}, training={"epochs": 1})
    worlds = make_worlds(tmp_path, recipe, table, [["r3"]])
    worlds.forgot.repair()
    assert worlds.identical() is not leak
    worlds.close()


def states_of(material):
    return material._trunk._held.items()


def open_files(folder):
    """Files without a name below a folder that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if str(folder) in line and line.endswith("(deleted)")}


def add_as_peft_computes(mount, block, *, add=Model.add_block):
    add(mount, block)
    as_peft_computes(mount.base.model)


def gradients(folder, model, kind, *, plain=False):
    """Of the stages of one chain, each of one step, which moves next to nothing; and how they were trained."""
    found, once = [], {"epochs": 1, "batch_size": 24, "learning_rate": 1e-7}
    recipe = tiny.recipe(
        model,
        kind=kind,
        partition={"shards": 1},
        sequences={"budget": 1},
        training=once | (tiny.PLAIN if plain else {}),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage.nn.utils, "clip_grad_norm_", lambda own, _: found.append([p.grad.clone() for p in own]))
        if plain:
            patch.setattr(Model, "add_block", add_as_peft_computes)
        with trained_run(folder, recipe, TABLES[kind]()) as run:
            return found, run.recipe.training


@pytest.mark.parametrize("kind", TABLES)
def test_gradients_are_those_of_the_whole_pass(models, kind, tmp_path):
    fast, training = gradients(tmp_path / "fast", models[kind], kind)
    assert training.trunk_cache
    assert ("packing" in training.shortcuts) == (kind == "text")
    plain, _ = gradients(tmp_path / "plain", models[kind], kind, plain=True)
    assert len(plain) == 3
    for one, other in zip(plain, fast, strict=True):
        assert any(gradient.abs().max() > 0 for gradient in one)
        assert all((a - b).norm() <= 1e-5 * max(a.norm(), 1e-3) for a, b in zip(one, other, strict=True))
