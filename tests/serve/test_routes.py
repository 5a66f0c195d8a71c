"""What the server answers: the run's own answers, deletions that hold when they are acknowledged, and its state."""

import base64
import io
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

import s3t
from s3t_server.answering import GENERATION_HEADER
from s3t_server.batching import Batcher
from testing import tiny
from testing.served import bearer, serving

ABANDONED = 1000
TEXTS = ["w1 w2", "w30", "w22 w3 w4"]


def test_answers_are_the_run_s_and_name_their_generation(client, path):
    answer = client.post("/v1/predict", json={"inputs": TEXTS})
    assert answer.status_code == 200
    with s3t.Run.open(path) as run:
        wanted = run.predict(TEXTS)
    assert answer.headers[GENERATION_HEADER] == "0"
    found = answer.json()
    assert (found["run"], found["generation"]) == ("run", 0)
    assert [row["label"] for row in found["predictions"]] == list(wanted.predicted)
    assert [row["probabilities"] for row in found["predictions"]] == [row["probabilities"] for row in wanted.rows()]
    assert found["members"] == wanted.to_json()["members"]
    assert found["cut"] == 0


def test_texts_that_are_cut_are_counted_of_each_request_alone(client):
    long = " ".join(["w1"] * 30)
    with ThreadPoolExecutor(3) as pool:
        asked = [{"inputs": [long, "w2", long]}, {"inputs": ["w2"]}, {"inputs": long}]
        answers = [answer.json() for answer in pool.map(lambda body: client.post("/v1/predict", json=body), asked)]
    assert [answer["cut"] for answer in answers] == [2, 0, 1]


@pytest.mark.parametrize("inputs", ["w1 w2", {"text": "w1 w2"}, [{"text": "w1 w2"}], ["w1 w2"]])
def test_one_input_or_a_list_of_texts_or_rows(client, inputs):
    (row,) = client.post("/v1/predict", json={"inputs": inputs}).json()["predictions"]
    (wanted,) = client.post("/v1/predict", json={"inputs": ["w1 w2"]}).json()["predictions"]
    assert row == wanted


def test_no_inputs_have_no_answers(client):
    assert client.post("/v1/predict", json={"inputs": []}).json()["predictions"] == []


def test_the_likeliest_labels_alone(client):
    (row,) = client.post("/v1/predict", json={"inputs": "w1", "top": 2}).json()["predictions"]
    assert len(row["probabilities"]) == 2
    assert next(iter(row["probabilities"])) == row["label"]


@pytest.mark.integration
def test_labels_alone_where_the_run_says_so(text_model, tmp_path):
    recipe = tiny.recipe(text_model, prediction={"answers": "labels"})
    with s3t.Run.create(tmp_path / "quiet", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    with serving(tmp_path / "quiet", open_scopes=("predict",)) as client:
        (row,) = client.post("/v1/predict", json={"inputs": "w1", "top": 2}).json()["predictions"]
    assert set(row) == {"row", "label"}


@pytest.mark.integration
def test_images(image_model, tmp_path):
    recipe = tiny.recipe(image_model, kind="image")
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.image_table()) as run:
        run.train()
        images = list(tiny.image_table().image[:2])
        wanted = list(run.predict(images).predicted)
    coded = [base64.b64encode(image).decode() for image in images]
    with serving(tmp_path / "run", open_scopes=("predict",), max_pixels=1000) as client:
        for inputs in (coded, [f"data:image/png;base64,{each}" for each in coded]):
            found = client.post("/v1/predict", json={"inputs": inputs}).json()
            assert [row["label"] for row in found["predictions"]] == wanted
        for bomb in ([encoded("png", 2000)], [encoded("webp", 20)] * 3):
            refused = client.post("/v1/predict", json={"inputs": bomb})
            assert (refused.status_code, "more than 1000 pixels" in refused.json()["detail"]) == (413, True)
        no_image = base64.b64encode(b"no image").decode()
        for wrong in ("not base64!", no_image, {"image": "x"}, {"image": __file__}, 3, encoded("ico", 16)):
            refused = client.post("/v1/predict", json={"inputs": [wrong]})
            assert refused.status_code == 422
            assert refused.json()["problems"][0].startswith("inputs.0: ")


def encoded(kind, side):
    content = io.BytesIO()
    Image.new("L", (side, side)).save(content, kind)
    return base64.b64encode(content.getvalue()).decode()


def test_a_deletion_holds_once_it_is_acknowledged_and_can_be_followed(client, path):
    accepted = client.post("/v1/deletions", json={"records": ["r0", "nobody"]})
    assert accepted.status_code == 202
    found = accepted.json()
    assert (found["id"], found["deleted"], found["unknown"]) == (1, 1, ["nobody"])
    assert found["stages_lost"] > 0
    assert client.post("/v1/predict", json={"inputs": TEXTS}).json()["generation"] == 1
    entry = client.get("/v1/deletions/1").json()
    assert entry["records"] == 1
    assert entry["accepted_at"]
    log = client.get("/v1/deletions").json()["deletions"]
    assert [each["generation"] for each in log] == [0, 1]
    assert client.get("/v1/deletions/2").status_code == 404
    with s3t.Run.open(path) as run:
        assert run.locate(records=["r0"])[0].deleted.generation == 1
        assert run.audit().ok


def test_a_deletion_with_the_same_key_does_nothing_more(client):
    first, second = (
        client.post("/v1/deletions", json={"records": ["r1"]}, headers={"Idempotency-Key": "k"}).json()
        for _ in range(2)
    )
    assert (first["id"], first["repeated"]) == (1, False)
    assert (second["id"], second["repeated"], second["deleted"]) == (1, True, 1)
    other = client.post("/v1/deletions", json={"records": ["r2"]}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 422


def test_a_dry_run_changes_nothing_and_is_for_operators(client, tokens):
    asked = {"records": ["r0"], "dry_run": True}
    dry = client.post("/v1/deletions", json=asked).json()
    assert (dry["id"], dry["dry_run"], dry["deleted"]) == (None, True, 1)
    assert client.get("/v1/status").json()["generation"] == 0
    assert client.post("/v1/deletions", json=asked, headers=bearer(tokens["delete"])).status_code == 403


def test_who_may_delete_alone_does_not_learn_which_slices_were_hit(client, tokens):
    found = client.post("/v1/deletions", json={"records": ["r0"]}, headers=bearer(tokens["delete"])).json()
    assert found["deleted"] == 1
    assert not found.keys() & s3t.Deletion.PLACES


@pytest.mark.parametrize("address", ["/v1/deletions", "/v1/deletions/1"])
def test_operators_alone_learn_which_exports_wait_to_be_withdrawn_for_a_deletion(
    client, tokens, path, tmp_path, address
):
    with s3t.Run.open(path) as run:
        run.export(tmp_path / "adapters")
    client.post("/v1/deletions", json={"records": ["r0"]})
    told = {scope: client.get(address, headers=bearer(tokens[scope])).text for scope in ("operate", "delete", "audit")}
    assert '"to_withdraw":["shard-' in told["operate"]
    for scope in ("delete", "audit"):
        assert '"to_withdraw":null' in told[scope]
        assert "shard-" not in told[scope]


def test_a_strict_deletion_of_an_unknown_name_deletes_nothing(client):
    refused = client.post("/v1/deletions", json={"records": ["r0", "nobody"], "strict": True})
    assert refused.status_code == 404
    assert client.get("/v1/status").json()["records"] == 24


def test_status_and_forecast_are_those_of_the_run(client, path):
    with s3t.Run.open(path) as run:
        status = run.status(full=True).to_json()
    found = client.get("/v1/status").json()
    assert found == status
    assert client.get("/v1/forecast").json()["forecast"] == status["forecast"]


def test_a_run_in_which_nothing_can_answer_is_not_ready_and_says_what_helps(client):
    assert client.get("/v1/readyz").json() == {"status": "ready"}
    client.post("/v1/deletions", json={"records": list(tiny.text_table().id)})
    assert client.get("/v1/readyz").status_code == 503
    for method, path in (("GET", "/health"), ("HEAD", "/healthz"), ("HEAD", "/readyz"), ("GET", "/v1/status")):
        assert client.request(method, path).status_code == 200
    refused = client.post("/v1/predict", json={"inputs": "w1"})
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["title"] == "no shard can answer"
    assert refused.headers["cache-control"] == "no-store"
    assert "/" not in refused.json()["detail"]


def test_metrics_count_requests_and_tell_the_state(client):
    client.post("/v1/predict", json={"inputs": TEXTS})
    client.post("/v1/deletions", json={"records": ["r0"]})
    page = client.get("/metrics").text
    assert 's3t_requests_total{method="POST",route="/v1/predict",status="200"} 1.0' in page
    assert 's3t_inputs_total{run="run"} 3.0' in page
    assert 's3t_deleted_records_total{run="run"} 1.0' in page
    assert 's3t_generation{run="run"} 1.0' in page
    assert 's3t_records{run="run"} 23.0' in page
    assert 's3t_depth{run="run",shard="1"}' in page


@pytest.mark.integration
def test_several_runs_are_served_under_their_names(path, trained_once, tmp_path):
    other = tiny.copy_run(trained_once, tmp_path / "other")
    with serving(path, other, open_scopes=("predict", "delete", "operate"), hold_share=None) as client:
        client.post("/runs/other/v1/deletions", json={"records": ["r0"]})
        assert [client.get(f"{at}/v1/status").json()["generation"] for at in ("", "/runs/run", "/runs/other")] == [
            0,
            0,
            1,
        ]
        client.post("/runs/other/v1/deletions", json={"records": list(tiny.text_table().id)})
        answered = [client.get(f"{at}/v1/readyz").status_code for at in ("", "/runs/run", "/runs/other")]
        assert (client.get("/readyz").status_code, answered) == (200, [200, 200, 503])
        client.post("/runs/other/v1/locate", json={"records": ["r0"]})
        assert 'route="/runs/other/v1/locate"' in client.get("/metrics").text


@pytest.mark.integration
def test_a_run_that_answers_no_more_is_seen_deleted_from_and_repaired_behind_its_probes(path):
    with serving(path, open_scopes=("predict", "delete", "operate"), hold_share=None, repair=False) as client:
        client.post("/v1/deletions", json={"records": list(tiny.text_table().id[:20])})
        assert client.post("/v1/predict", json={"inputs": "w1"}).status_code == 503
        assert {client.get(route).status_code for route in ("/healthz", "/readyz", "/", "/v1/status")} == {200}
        assert client.post("/v1/deletions", json={"records": ["r23"]}).status_code == 202
        assert client.post("/v1/repairs", json={}).status_code == 202
        until = time.monotonic() + 120.0
        while client.post("/v1/predict", json={"inputs": "w1"}).status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_what_clients_have_left_is_not_computed(path, monkeypatch, caplog):
    computed, began, go_on, usual = [], threading.Event(), threading.Event(), Batcher._answer

    def answer(batcher, batch):
        computed.append(len(batch))
        began.set()
        go_on.wait(30.0)
        usual(batcher, batch)

    def left():
        return sum('"status": 499' in record.getMessage() for record in caplog.records)

    monkeypatch.setattr(Batcher, "_answer", answer)
    body = b'{"inputs": "w1"}'
    head = f"POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with serving(path, open_scopes=("predict",), exact=True) as client, caplog.at_level(logging.INFO):
        first = threading.Thread(target=client.post, args=("/v1/predict",), kwargs={"json": {"inputs": "w2"}})
        first.start()
        assert began.wait(30.0)
        for _ in range(ABANDONED):
            with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
                connection.sendall(head.encode() + b"\r\n\r\n" + body)
        until = time.monotonic() + 30.0
        while left() < ABANDONED and time.monotonic() < until:
            time.sleep(0.01)
        go_on.set()
        first.join()
        assert client.post("/v1/predict", json={"inputs": "w3"}).status_code == 200
    assert (left(), computed) == (ABANDONED, [1, 1])


def test_requests_that_come_together_are_answered_as_each_alone(path):
    answers = {}
    with serving(path, open_scopes=("predict",), wait=0.2) as client:
        alone = {text: client.post("/v1/predict", json={"inputs": text}).json()["predictions"] for text in TEXTS}

        def ask(text):
            answers[text] = client.post("/v1/predict", json={"inputs": text}).json()["predictions"]

        threads = [threading.Thread(target=ask, args=(text,)) for text in TEXTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for text in TEXTS:
        assert answers[text][0]["label"] == alone[text][0]["label"]
        assert answers[text][0]["probabilities"] == pytest.approx(alone[text][0]["probabilities"], abs=1e-6)
