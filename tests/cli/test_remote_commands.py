"""`--url`: commands that ask a server, with its documents and the same words as of a folder."""

import json
import time

import pytest

import s3t
from s3t.cli.options import TOKEN
from s3t_server.tokens import Access
from testing import tiny
from testing.served import serving
from tests.cli.typed import document, invoke

TEXTS = ["w1 w2", "w30"]


def called(*arguments, expect=0):
    """What a command printed."""
    result = invoke(*arguments)
    assert result.exit_code == expect, result.stderr
    return result


def wait_until_erased(url):
    """A server answers when a deletion is effective, and erases it afterwards."""
    until = time.monotonic() + 30
    while document("log", "--url", url)["log"][-1]["state"] != "erased":
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def url(trained_once, tmp_path, monkeypatch):
    """Address of a server of tmp_path/run; its token is in the environment."""
    path = tiny.copy_run(trained_once, tmp_path / "run")
    with s3t.Run.open(path) as run:
        _, secret = Access(run).create("all", scopes=["predict", "delete", "operate"])
    monkeypatch.setenv(TOKEN, secret)
    with serving(path) as client:
        yield str(client.base_url)


@pytest.mark.integration
def test_predict_of_texts_and_of_files(url, tmp_path):
    texts, inputs = [argument for text in TEXTS for argument in ("--text", text)], tmp_path / "inputs.csv"
    table = tiny.text_table().drop(columns="label").iloc[:9]
    table.to_csv(inputs, index=False)
    with s3t.Run.open(tmp_path / "run") as run:
        wanted, answers = run.predict(TEXTS).to_json(), run.predict(table).rows(top=1)
    found = document("predict", "--url", url, *texts)
    assert {name: found[name] for name in wanted} == wanted
    asked = ("predict", "--url", url, "--input", inputs, "--top", "1")
    assert document(*asked)["predictions"] == answers
    assert [json.loads(line) for line in called(*asked, "--jsonl").stdout.splitlines()] == answers
    assert wanted["predictions"][0]["label"] in called("predict", "--url", url, *texts).stdout
    written = document("predict", "--url", url, *texts, "--output", tmp_path / "out.jsonl")
    assert (written["count"], len((tmp_path / "out.jsonl").read_text().splitlines())) == (2, 2)


def test_a_deletion_is_asked_for_and_followed(url, tmp_path):
    record = tiny.text_table().id[0]
    located = document("locate", "--url", url, "--record", record)["located"]
    assert located == document("locate", tmp_path / "run", "--record", record)["located"]
    assert "would be deleted" in called("delete", "--url", url, "--record", record, "--dry-run").stdout
    shown = called("delete", "--url", url, "--record", record, "--record", "nobody", "--key", "t1").stdout
    for words in ("1 record deleted", "1 name UNKNOWN, NOTHING WAS deleted for it: nobody", ": received"):
        assert words in shown
    wait_until_erased(url)
    again = document("delete", "--url", url, "--record", record, "--record", "nobody", "--key", "t1")
    assert (again["repeated"], again["deleted"]) == (True, 1)
    assert document("status", "--url", url) == document("status", tmp_path / "run")
    shown = called("status", "--url", url).stdout
    for words in ("generation 1, 23 records", "stages are missing", "the next shard dies after"):
        assert words in shown
    for words in ((), ("--json",)):
        of_server = called("locate", "--url", url, "--record", record, *words).stdout
        assert of_server == called("locate", tmp_path / "run", "--record", record, *words).stdout
        assert called("log", "--url", url, *words).stdout == called("log", tmp_path / "run", *words).stdout


@pytest.mark.parametrize("command", ["predict", "delete", "locate", "status", "log"])
def test_a_folder_or_a_server_and_what_goes_with_it(command, tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN, "s3t_x")
    monkeypatch.setattr("s3t.client.time.sleep", lambda _: None)
    own = {"predict": ("--text", "w1"), "delete": ("--record", "r0"), "locate": ("--record", "r0")}.get(command, ())
    for where in ((), (tmp_path, "--url", "http://127.0.0.1:9")):
        refused = called(command, *where, *own, expect=2)
        assert "one of them" in refused.stderr
    assert "address" in called(command, "--url", "127.0.0.1:9", *own, expect=2).stderr
    gone = called(command, "--url", "http://127.0.0.1:9", *own, expect=1)
    assert "no answer from http://127.0.0.1:9" in gone.stderr
    assert "s3t_x" not in gone.stderr
    if command == "delete":
        assert "--moved" in called(command, "--url", "http://127.0.0.1:9", *own, "--moved", expect=2).stderr


def test_a_refusal_is_told_in_the_server_s_words(url, monkeypatch):
    assert "strict" in called("delete", "--url", url, "--record", "nobody", "--strict", expect=1).stderr
    monkeypatch.delenv(TOKEN)
    refused = called("status", "--url", url, "--json", expect=1)
    assert "Authorization: Bearer" in refused.stderr
    assert json.loads(refused.stdout)["error"]["kind"] == "ServerError"


def test_a_held_deletion_is_not_done(trained_once, tmp_path, monkeypatch):
    path = tiny.copy_run(trained_once, tmp_path / "run")
    with s3t.Run.open(path) as run:
        monkeypatch.setenv(TOKEN, Access(run).create("app", scopes=["delete"])[1])
    asked = ("--record", tiny.text_table().id[0], "--key", "ticket")
    with serving(path, hold_records=0) as client:
        url = str(client.base_url)
        assert "held for approval, nothing deleted yet" in called("delete", "--url", url, *asked, expect=1).stdout
        with s3t.Run.open(path) as run:
            run.approvals.refuse(run.approvals.waiting()[0].id, by="ops", reason="a mistake")
        assert "refused by an operator" in called("delete", "--url", url, *asked, expect=1).stdout
