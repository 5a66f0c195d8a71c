"""Answers beside an engine are the run's, by adapters that are loaded before the old ones leave."""

import shutil
import time
from pathlib import Path

import pytest

import s3t
from s3t_server.gateway.keeper import Keeper
from testing import tiny
from testing.engine import BASE
from testing.roles import roles
from testing.served import serving, together
from tests.gateway import (
    PEFT_WARNS,
    TEXTS,
    asking,
    assert_as_run,
    delete,
    predicted,
    ready,
    refused,
    state_of,
    until,
    until_erased,
)
from tests.run.worlds import SMALL

pytestmark = PEFT_WARNS


def test_answers_are_the_run_s_own_in_the_shapes_of_other_servers_too(client, path, engine):
    found = predicted(client)
    assert_as_run(found, path)
    assert len(engine.adapters) == len(found["members"]) == 2
    assert {name for name, _ in engine.answered} >= {*engine.adapters}
    wanted = [list(row["probabilities"].values()) for row in found["predictions"]]
    classified = client.post("/classify", json={"input": TEXTS}).json()
    assert [row["probs"] for row in classified["data"]] == wanted
    scored = client.post("/predict", json={"inputs": [[text] for text in TEXTS]}).json()
    assert [sorted(each["score"] for each in row) for row in scored] == [sorted(row) for row in wanted]
    assert predicted(client, [])["predictions"] == []


def test_pairs_of_texts(engine_model, server, tmp_path, folder):
    path, recipe = tmp_path / "pairs", tiny.recipe(engine_model, columns={"text_pair": "other"}, **SMALL)
    with s3t.Run.create(path, recipe=recipe, data=tiny.text_table().assign(other="w30 w31")) as run:
        run.train()
    pairs = [["w1 w2", "w30"], ["w22", "w3 w4"]]
    with serving(path, engine=server.url, engine_adapters=folder, open_scopes=("predict",), repair=False) as client:
        until(lambda: ready(client))
        assert_as_run(predicted(client, pairs), path, pairs)


def test_the_new_adapter_is_loaded_before_the_old_one_leaves_and_the_old_one_is_probed_then(
    client, path, engine, folder
):
    before = {*engine.adapters}
    del engine.seen[:]
    assert delete(client, "r0")["state"] in ("effective", "erased")
    (old,) = before - {*engine.adapters}
    until_erased(client)
    (new,) = {*engine.adapters} - before
    first = {step: engine.seen.index(step) for step in {*engine.seen}}
    assert first["load", new] < first["unload", old] < first["classify", old] < first["classify", "base"]
    assert_as_run(predicted(client), path)
    assert sorted(each.name for each in folder.glob("*/*")) == sorted(name[17:] for name in engine.adapters)


def before(engine, step, act):
    """Act, with the name of an adapter, before each such step of the engine."""
    usual = getattr(engine, step)
    setattr(engine, step, lambda name, *rest: (act(name), usual(name, *rest))[1])


def state_soon(run):
    """How far the newest deletion is, once the gateway's session has told the ledger of what it uses no more."""
    time.sleep(0.3)
    return run.log()[-1].state


def test_a_deletion_is_effective_after_the_engine_has_let_go_and_an_export_is_withdrawn_last(
    client, path, engine, monkeypatch
):
    adapters, seen = {*engine.adapters}, []
    withdraw, withdrawn = Keeper._withdraw, []
    monkeypatch.setattr(Keeper, "_withdraw", lambda self, each: withdrawn.append(len(seen)) or withdraw(self, each))
    with s3t.Run.open(path) as run:
        for step in ("unload", "classify"):
            before(engine, step, lambda name, step=step: seen.append((step, name, state_soon(run))))
        delete(client, "r0")
        until_erased(client)
    (old,) = adapters - {*engine.adapters}
    own = [each for each in seen if each[1] in (old, BASE)]
    assert own == [("unload", old, "accepted"), ("classify", old, "accepted"), ("classify", BASE, "accepted")]
    assert min(withdrawn) > seen.index(own[-1])


def test_a_deletion_that_comes_while_the_gateway_ends_waits_for_every_adapter(path, beside, engine):
    states = []
    with s3t.Run.open(path) as other, beside() as client:
        roles(other).deleter.patience = 0.0
        until(lambda: ready(client))
        before(engine, "unload", lambda _name: states.append(state_soon(other)))
        before(engine, "unload", lambda _name: states or other.delete(records=["r0", "r1", "r2", "r3"]))
    assert states == ["accepted"] * 2


def test_nothing_of_an_old_adapter_answers_after_the_deletion_is_effective(client, path, engine):
    """Also where another process deletes."""
    with asking(client, threads=2) as failed, s3t.Run.open(path) as other:
        for delete_one in (lambda: delete(client, "r0")["state"], lambda: other.delete(records=["r1"]).state):
            before = {*engine.adapters}
            assert delete_one() in ("effective", "erased")
            count = len(engine.answered)
            old = before - {*engine.adapters}
            assert old
            predicted(client)
            assert old.isdisjoint(name for name, _ in engine.answered[count:])
    assert failed == []
    assert predicted(client)["generation"] == 2


def test_an_answer_that_a_deletion_overtakes_is_made_again(client, path, engine):
    engine.bugs.seconds = 0.5
    count = len(engine.seen)
    with together(lambda: predicted(client)) as found:
        until(lambda: any(step == "classify" for step, _ in engine.seen[count:]))
        delete(client, "r0")
    engine.bugs.seconds = 0.0
    assert_as_run(found[0], path)
    assert found[0]["generation"] == 1


def is_deep(client, engine):
    members = predicted(client)["members"]
    return [len(each["prefix"]) for each in members] == [3, 3] and len(engine.adapters) == 2


def test_files_are_removed_before_the_engine_is_asked_whether_it_answers(client, path, engine):
    """An engine that looks adapters up in their folder when it is asked for them would load it again. Nor does a
    request fail while a deeper chain takes the place of another."""
    delete(client, "r0", "r1", "r2", "r3")
    until_erased(client)
    there = []
    before(engine, "unload", lambda name: there.append(Path(engine.listed[name]).exists()))
    with asking(client) as failed, s3t.Run.open(path) as run:
        run.repair()
        until(lambda: is_deep(client, engine))
        until(lambda: len(run.status().exports) == 2)
    assert failed == []
    assert {*there} == {False}
    assert_as_run(predicted(client), path)


def test_a_run_without_a_live_shard_is_refused_and_its_adapters_are_gone(client, engine):
    delete(client, *tiny.text_table().id)
    until_erased(client)
    assert engine.adapters == {}
    answer = refused(client)
    assert (answer.status_code, answer.json()["title"]) == (503, "no shard can answer")


def test_a_copy_that_was_left_keeps_a_deletion_from_being_erased_and_not_from_being_effective(
    client, engine, folder, caplog
):
    for each in folder.glob("*/*/adapter_model.safetensors"):
        shutil.copy(each, folder / f"s3t-copy-{each.parent.name}")
        shutil.copy(each, each.parent.parent / f"copy-{each.parent.name}")
    delete(client, "r0")
    until(lambda: state_of(client) == "effective")
    until(lambda: "is still there" in caplog.text)
    assert ready(client)
    predicted(client)
    for each in folder.glob("*/copy-*"):
        each.unlink()
    delete(client, "r1")  # it is looked again at the next change
    until_erased(client)


@pytest.mark.integration
def test_what_an_engine_does_not_unload_at_the_end_keeps_a_deletion_from_being_erased_until_the_next_gateway(
    path, beside, engine, folder
):
    """Nobody is answered by it meanwhile: callers ask the gateway alone."""
    with beside() as client:
        until(lambda: ready(client))
        files = sorted(folder.glob("*/*"))
    assert engine.adapters == engine.listed == {}
    with beside() as client:
        until(lambda: ready(client))
        assert sorted(folder.glob("*/*")) == files  # they are loaded again
        engine.bugs.refuses_to_unload = True
    left = {*engine.adapters}
    assert len(left) == 2
    with s3t.Run.open(path) as run:
        report = run.delete(records=["r0"])
        assert (report.state, len(report.to_withdraw)) == ("effective", 1)
        run.erase()
        assert run.log()[-1].state == "effective"
    engine.bugs.refuses_to_unload = False
    count = len(engine.answered)
    with beside() as client:
        until(lambda: ready(client))
        assert len(left - {*engine.adapters}) == 1
        until_erased(client)
        predicted(client)
        assert {name for name, _ in engine.answered[count:]} <= {*engine.adapters, BASE}


def test_two_runs_and_strangers_share_an_engine(path, engine, server, folder, tmp_path):
    """A clone has the same adapters, under names of its own."""
    s3t.Run.clone(path, tmp_path / "clone").close()
    open_to_all = {"open_scopes": ("predict", "delete", "operate", "audit"), "repair": False}
    with serving(path, tmp_path / "clone", engine=server.url, engine_adapters=folder, **open_to_all) as client:
        until(lambda: ready(client) and ready(client, run="/runs/clone"))
        stranger = next(folder.glob("*/shard-001*"))
        assert engine.load("another-tenant", str(stranger)).status_code == 200
        before = {*engine.adapters}
        delete(client, "r0")
        until_erased(client)
        assert len(before - {*engine.adapters}) == 1
        assert len(before) == len(engine.adapters) == 5
        assert client.post("/runs/clone/v1/predict", json={"inputs": TEXTS}).json()["generation"] == 0
    assert [*engine.adapters] == ["another-tenant"]
