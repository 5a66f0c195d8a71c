"""`s3t.Client`: the verbs of a run over HTTP, and what it does when a server is busy, away, or another one."""

import http.server
import io
import json
import threading
from contextlib import contextmanager

import pytest
from PIL import Image

import s3t
from s3t.client import Client
from testing import tiny
from testing.served import serving, wait_for

TEXTS = ["w1 w2", "w30", "w22 w3 w4"]


@pytest.fixture
def served(client, tokens):
    """Of a server of `path`, with all scopes."""
    with Client(str(client.base_url), tokens["all"]) as own:
        yield own


def test_every_verb_gives_the_document_of_the_run_s(served, path):
    with s3t.Run.open(path) as run:
        found = served.predict(TEXTS)
        assert [row["label"] for row in found["predictions"]] == list(run.predict(TEXTS).predicted)
        assert len(served.predict("w1 w2", top=1)["predictions"][0]["probabilities"]) == 1
        assert served.predict({"text": "w1 w2"})["predictions"] == served.predict(["w1 w2"])["predictions"]
        assert served.status().to_json() == run.status(full=True).to_json()
        assert served.forecast().to_json() == run.forecast().to_json()
        planned = served.delete(records=["r0"], dry_run=True)
        assert (planned.dry_run, planned.deleted, planned.state) == (True, 1, None)
        done, again = (served.delete(records=["r0", "nobody"], key="ticket-1") for _ in range(2))
        assert (done.deleted, done.unknown, done.repeated, again.repeated) == (1, ("nobody",), False, True)
        wait_for(lambda: served.deletion(done.id).state == "erased")  # in the background: times change until then
        assert served.deletion(done.id) == served.log()[-1]
        assert [entry.to_json() for entry in served.log()] == [entry.to_json() for entry in run.log()]
        located = served.locate(records=["r0", "r1", "nobody"])
        wanted = run.locate(records=["r0", "r1", "nobody"])
        assert [each.to_json() for each in located] == [each.to_json() for each in wanted]
        assert [each.state == "erased" for each in located] == [True, False, False]


@pytest.mark.integration
def test_repairs_begin_and_are_followed_to_their_end(served, path):
    served.delete(records=["r0"])
    begun = served.repair(hours=1.0)
    told = list(served.follow(begun.id))
    assert (told[-1].state, told[-1].trained) == ("done", told[-1].stages)
    assert served.repairs()[0] == told[-1]
    assert served.status().missing == 0


@pytest.mark.integration
def test_images_are_bytes_files_or_of_pillow(image_model, tmp_path):
    table = tiny.image_table()
    with s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(image_model, kind="image"), data=table) as run:
        run.train()
    content = table.image[0]
    (tmp_path / "one.png").write_bytes(content)
    with serving(tmp_path / "run", open_scopes=("predict",)) as http, Client(str(http.base_url)) as client:
        alone = [client.predict(form) for form in (content, tmp_path / "one.png", Image.open(io.BytesIO(content)))]
        both = client.predict([content, tmp_path / "one.png"])
    assert len({str(found["predictions"]) for found in alone}) == 1
    assert len({row["label"] for row in both["predictions"]}) == 1


def test_all_problems_of_an_input_and_refusals_in_the_server_s_words(served, client, tokens):
    with pytest.raises(s3t.InputError) as caught:
        served.predict([3, "w1", 4])
    assert len(caught.value.problems) == 2
    for wrong in ({}, {"records": "r0"}):
        for ask in (served.delete, served.locate):
            with pytest.raises(s3t.InputError):
                ask(**wrong)
    with pytest.raises(s3t.InputError, match="JSON"):
        served.predict([{"text": object()}])
    with pytest.raises(s3t.ServerError, match="strict") as unknown:
        served.delete(records=["nobody"], strict=True)
    assert (unknown.value.status, served.status().generation) == (404, 0)
    with Client(str(client.base_url), tokens["predict"]) as other:
        with pytest.raises(s3t.ServerError, match="scope operate") as refused:
            other.status()
        with pytest.raises(s3t.ServerError):
            list(other.follow("none"))
        assert tokens["predict"] not in repr(other)
    assert refused.value.status == 403


def test_an_address_or_a_token_that_is_none():
    for url in ("", "localhost:8080", "ftp://localhost", "http://", "http://h:x"):
        with pytest.raises(s3t.InputError, match="address"):
            Client(url)
    with pytest.raises(s3t.InputError, match="ASCII"):
        Client("http://localhost", "s3t_ä")


class _Answering(http.server.BaseHTTPRequestHandler):
    """Answers each request with the next of its server's answers, and notes the requests' keys."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.keys.append(self.headers["Idempotency-Key"])
        status, headers, content = self.server.answers.pop(0)
        if status is None:
            self.connection.close()
            return
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextmanager
def answering(*answers):
    """An HTTP server that gives answers as they are listed; of a status None it drops the connection."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answering) as server:
        server.answers, server.keys = list(answers), []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


DELETED = {"id": 1, "generation": 1, "deleted": 1, "already": [], "unknown": [], "state": "erased"}
DONE = (200, {}, json.dumps(DELETED).encode())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("before", [(None, {}, b""), (503, {"Retry-After": "1"}, b"{}"), (429, {}, b"{}")])
def test_a_request_that_was_lost_or_came_too_early_is_made_again_with_its_key(before, monkeypatch):
    pauses = []
    monkeypatch.setattr("s3t.client.time.sleep", pauses.append)
    with answering(before, before, DONE) as server, Client(server.url) as client:
        assert client.delete(records=["r0"]).deleted == 1
    assert (len(server.keys), len({*server.keys} - {None})) == (3, 1)
    assert pauses == ([1.0, 1.0] if before[0] == 503 else [0.25, 0.5])


def test_after_its_last_attempt_the_refusal_is_told(monkeypatch):
    monkeypatch.setattr("s3t.client.time.sleep", lambda _: None)
    busy = (503, {}, b'{"detail": "9 inputs wait"}')
    with answering(busy, busy) as server, Client(server.url, attempts=2) as client:
        with pytest.raises(s3t.ServerError, match="9 inputs wait") as refused:
            client.predict(["w1"])
        assert refused.value.status == 503
    with Client(server.url, attempts=2) as client, pytest.raises(s3t.ServerError, match="no answer from") as gone:
        client.predict(["w1"])
    assert gone.value.status is None


def test_another_server_is_named_as_such():
    answers = ((200, b"<html>"), (200, b"[]"), (404, b"not here"), (500, b"{}"))
    with answering(*((status, {}, content) for status, content in answers)) as server, Client(server.url) as client:
        for number in range(len(answers)):
            with pytest.raises(s3t.ServerError, match="server of s3t"):
                client.predict(["w1"])
            assert len(server.keys) == number + 1
