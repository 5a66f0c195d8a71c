"""The ensemble's bits are a function of inputs and live stages, and nothing of a deleted record stays resident."""

import gc
import weakref

import numpy as np
import pytest

import s3t
from s3t.core import Place
from s3t.models.adapters import deserialize
from s3t.prediction.ensemble import Ensemble, Resident
from s3t.records.ingest import ingest
from testing import tiny
from testing.roles import roles
from tests.run.worlds import trained_run

WAYS = {
    "text, lora": ("text", {}),
    "text, dora, bfloat16": ("text", {"adapter": {"use_dora": True}, "training": {"precision": "bfloat16"}}),
    "text, ia3": ("text", {"adapter": {"kind": "ia3", "feedforward_modules": ["output.dense"]}}),
    "image, lora, bfloat16": ("image", {"training": {"precision": "bfloat16"}}),
    "image, ia3": ("image", {"adapter": {"kind": "ia3", "feedforward_modules": ["fc2"]}}),
}


def bits(answer):
    return answer.logits.tobytes()


def opened_anew(run, table):
    """What a handle that has only just opened the run answers."""
    with s3t.Run.open(run.path) as fresh:
        answer = fresh.predict(table)
        return bits(answer), answer.members


@pytest.mark.integration
@pytest.mark.parametrize("way", WAYS)
def test_bits_do_not_depend_on_what_was_answered_deleted_or_kept_before(way, text_model, image_model, tmp_path):
    """Of three shards, whose members have several depths once they have lost records."""
    kind, changes = WAYS[way]
    model, table = (text_model, tiny.text_table(40)) if kind == "text" else (image_model, tiny.image_table(40))
    shared = {"partition": {"shards": 3}, "sequences": {"budget": 2}, "prediction": {"batch_size": 8}}
    recipe = tiny.recipe(model, kind=kind, **shared, **changes)
    with trained_run(tmp_path / "run", recipe, table) as run:
        whole = run.predict(table)
        run.evaluate(table)  # more members, of all depths
        run.predict(table[:3])
        assert bits(run.predict(table)) == bits(whole)
        waiting = iter(table.id)
        while 0 not in run.status().depths or len(set(run.status().depths)) == 1:
            run.delete(records=[next(waiting)])
        cut = run.predict(table)
        assert len(cut.members) < 3  # a shard is dead
        assert opened_anew(run, table) == (bits(cut), cut.members)
        run.repair()
        repaired = run.predict(table)
        assert opened_anew(run, table) == (bits(repaired), repaired.members)
        with trained_run(tmp_path / "never-knew", recipe, table[table.id.isin([*waiting])]) as never_knew:
            assert bits(never_knew.predict(table)) == bits(repaired)


@pytest.mark.integration
def test_the_budget_of_residency_changes_no_bit(trained_once, tmp_path):
    answers = set()
    for budget in (0, 8000, "1GiB"):
        path = tiny.copy_run(trained_once, tmp_path / str(budget))
        tiny.change_recipe(path, prediction={"merged_memory": 0, "adapter_memory": budget})
        with s3t.Run.open(path) as run:
            answers |= {bits(run.predict(tiny.text_table())) for _ in range(2)}
            most, resident = run.recipe.prediction.adapter_memory, roles(run).loaded.get().resident
            assert max(resident.used, in_memory(run)) <= most
            assert bool(resident.keys) == (budget != 0)
            answers.add(str(run.evaluate(tiny.text_table()).to_json()))
    assert len(answers) == 2


def test_a_shorter_prefix_answers_without_reading_base_or_artifacts_again(trained, monkeypatch):
    trained.predict(["w1 w30"])
    workshop = roles(trained).loaded.get()
    monkeypatch.setattr("s3t.store.artifacts.Artifacts.get", lambda *_: pytest.fail("an artifact was read again"))
    members = {shard: serving.prefix[:1] for shard, serving in trained.inventory().members().items()}
    shorter = trained.predict(["w1 w30"], prefixes=members)
    assert roles(trained).loaded.get() is workshop
    monkeypatch.undo()
    with s3t.Run.open(trained.path) as fresh:
        assert bits(fresh.predict(["w1 w30"], prefixes=members)) == bits(shorter)


def tensors_of(run, keys):
    """Weak references to whatever is resident of artifacts."""
    entries = roles(run).loaded.get().resident._values
    return [weakref.ref(tensor) for key in keys for tensor in entries[key,][1].tensors()]


def in_memory(run):
    """Bytes of all that is kept of stages from one answer to the next."""
    workshop = roles(run).loaded.get()
    links = [link for _, link in workshop.resident._values.values()]
    stacks = [stack for _, stack in workshop.ensemble.stacks._held]
    return sum(tensor.nbytes for held in (*links, *stacks) for tensor in held.tensors())


def alive(run):
    return set(roles(run).ledger.snapshot().stages.values())


@pytest.mark.parametrize("hand", ["its own", "another process's"])
def test_when_a_deletion_is_effective_nothing_of_what_it_took_is_resident(hand, trained):
    trained.evaluate(tiny.text_table())
    before = roles(trained).loaded.get().resident.keys
    held = {key: tensors_of(trained, [key]) for key in before}
    if hand == "its own":
        state = trained.delete(records=["r3"]).state
    else:
        with s3t.Run.open(trained.path) as other:
            state = other.delete(records=["r3"]).state
    assert state in ("effective", "erased")
    gone = before - alive(trained)
    assert gone
    assert roles(trained).loaded.get().resident.keys == before - gone
    gc.collect()
    assert all(tensor() is None for key in gone for tensor in held[key])
    assert all(tensor() is not None for key in before - gone for tensor in held[key])


def test_scores_in_manifests_do_not_hang_on_merged_weights(trained, monkeypatch):
    """A manifest is a function of what trained its stage; how members answer is a setting of prediction."""
    workshop, snapshot = roles(trained).loaded.get(), roles(trained).ledger.snapshot()
    stage = min(snapshot.stages)
    links = workshop.chain([stage], snapshot)
    assert all(link.merged is not None for link in links)
    scored = []
    monkeypatch.setattr(Ensemble, "logits", lambda _self, members, rows: scored.extend(members) or np.zeros((1, 1, 3)))
    monkeypatch.setattr("s3t.run.workshop.Answers.score", lambda *_: 0.0)
    rows = ingest(tiny.text_table(), trained.recipe).rows
    workshop._score(rows, [(1, deserialize(workshop._artifacts(stage, snapshot)[-1].content))])
    assert [link.merged for (link,) in scored] == [None]


def test_members_side_by_side_leave_memory_with_any_of_their_stages(trained):
    trained.predict(["w1"])
    kept = roles(trained).loaded.get().ensemble.stacks._held
    ((_, stack),) = kept
    trained.predict(["w2 w3"])
    assert kept[0][1] is stack
    tensors = [weakref.ref(tensor) for tensor in stack.tensors()]
    del stack
    assert trained.delete(records=["r3"]).state in ("effective", "erased")
    gc.collect()
    assert tensors
    assert not kept
    assert all(tensor() is None for tensor in tensors)


def test_a_resident_link_that_survives_a_deletion_is_caught(trained, monkeypatch):
    """The leak is planted: the test above would fail."""
    trained.evaluate(tiny.text_table())
    monkeypatch.setattr(Resident, "keep", lambda self, keys: None)
    trained.delete(records=["r3"])
    assert roles(trained).loaded.get().resident.keys - alive(trained)


def test_a_deletion_during_an_answer_leaves_nothing_resident(trained, monkeypatch):
    """The links are put into memory after the session was told to let go of them."""
    table = tiny.text_table()
    first = Place(0, trained.inventory().members()[0].prefix[0])
    record = next(found.name for found in trained.locate(records=list(table.id)) if first in found.places)
    chain, overtaken = Resident.chain, []

    def overtaken_first(self, keys, *, read, prepare):
        artifacts = read()
        if not overtaken:
            overtaken.extend(keys)
            with s3t.Run.open(trained.path) as other:
                roles(other).deleter.patience = 0.0
                other.delete(records=[record])
        return chain(self, keys, read=lambda: artifacts, prepare=prepare)

    monkeypatch.setattr(Resident, "chain", overtaken_first)
    assert trained.predict(table).generation == 1
    roles(trained).presence.look()
    assert roles(trained).loaded.get().resident.keys <= alive(trained)
    assert not set(overtaken) & alive(trained)
