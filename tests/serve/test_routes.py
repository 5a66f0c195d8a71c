"""What the server answers: the run's own answers, deletions that hold when they are acknowledged, and its state."""

import base64
import io
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

import s3t
from s3t_server.answering import GENERATION_HEADER
from s3t_server.batching import Batcher
from testing import tiny
from testing.served import bearer, posting, serving, together, wait_for

ABANDONED = 200
TEXTS = ["w1 w2", "w30", "w22 w3 w4"]


def test_answers_are_the_run_s_and_name_their_generation(reader, unchanged):
    answer = reader.post("/v1/predict", json={"inputs": TEXTS})
    with s3t.Run.open(unchanged) as run:
        wanted = run.predict(TEXTS)
    assert (answer.status_code, answer.headers[GENERATION_HEADER]) == (200, "0")
    found = answer.json()
    assert (found["run"], found["generation"], found["cut"]) == ("run", 0, 0)
    assert [row["label"] for row in found["predictions"]] == list(wanted.predicted)
    assert [row["probabilities"] for row in found["predictions"]] == [row["probabilities"] for row in wanted.rows()]
    assert found["members"] == wanted.to_json()["members"]


def test_texts_that_are_cut_are_counted_of_each_request_alone(reader):
    long = " ".join(["w1"] * 30)
    with ThreadPoolExecutor(3) as pool:
        asked = [{"inputs": [long, "w2", long]}, {"inputs": ["w2"]}, {"inputs": long}]
        answers = [answer.json() for answer in pool.map(lambda body: reader.post("/v1/predict", json=body), asked)]
    assert [answer["cut"] for answer in answers] == [2, 0, 1]


def test_one_input_or_a_list_of_texts_or_rows_and_the_likeliest_labels_alone(reader):
    def rows(inputs, **more):
        return reader.post("/v1/predict", json={"inputs": inputs} | more).json()["predictions"]

    wanted = rows(["w1 w2"])
    assert rows("w1 w2") == rows({"text": "w1 w2"}) == rows([{"text": "w1 w2"}]) == wanted
    assert rows([]) == []
    (row,) = rows("w1", top=2)
    assert len(row["probabilities"]) == 2
    assert next(iter(row["probabilities"])) == row["label"]


def test_labels_alone_where_the_run_says_so_and_no_routes_that_tell_more(path):
    tiny.change_recipe(path, prediction={"answers": "labels"})
    with serving(path, open_scopes=("predict",)) as client:
        (row,) = client.post("/v1/predict", json={"inputs": "w1", "top": 2}).json()["predictions"]
        assert set(row) == {"row", "label"}
        assert client.post("/classify", json={"input": "w1"}).status_code == 404
        assert client.post("/predict", json={"inputs": "w1"}).status_code == 404
        assert client.get("/v1/models").status_code == 200


@pytest.mark.integration
def test_images_as_base64_and_by_the_client_as_bytes_files_or_of_pillow(image_model, tmp_path):
    path, recipe, images = tmp_path / "run", tiny.recipe(image_model, kind="image"), tiny.image_table().image[:2]
    with s3t.Run.create(path, recipe=recipe, data=tiny.image_table()) as run:
        run.train()
        wanted = list(run.predict(list(images)).predicted)
    coded = [base64.b64encode(image).decode() for image in images]
    (tmp_path / "one.png").write_bytes(images[0])
    with serving(path, open_scopes=("predict",), max_pixels=1000) as client:

        def ask(*inputs):
            return client.post("/v1/predict", json={"inputs": inputs})

        for inputs in (coded, [f"data:image/png;base64,{each}" for each in coded]):
            assert [row["label"] for row in ask(*inputs).json()["predictions"]] == wanted
        with s3t.Client(str(client.base_url)) as asking:
            for form in (images[0], tmp_path / "one.png", Image.open(io.BytesIO(images[0]))):
                assert [row["label"] for row in asking.predict(form)["predictions"]] == wanted[:1]
        for bomb in ([encoded("png", 2000)], [encoded("webp", 20)] * 3):
            refused = ask(*bomb)
            assert (refused.status_code, "more than 1000 pixels" in refused.json()["detail"]) == (413, True)
        no_image = base64.b64encode(b"no image").decode()
        for wrong in ("not base64!", no_image, {"image": "x"}, {"image": __file__}, 3, encoded("ico", 16)):
            assert ask(wrong).status_code == 422
            assert ask(wrong).json()["problems"][0].startswith("inputs.0: ")


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


def test_a_key_of_another_deletion_is_refused_and_a_dry_run_changes_nothing_and_is_for_operators(client, tokens):
    def delete(token="all", **more):
        return client.post("/v1/deletions", json={"records": ["r0"]} | more, headers=bearer(tokens[token]) | key)

    key = {"Idempotency-Key": "k"}
    dry = delete(dry_run=True).json()
    assert (dry["id"], dry["dry_run"], dry["deleted"]) == (None, True, 1)
    assert delete("delete", dry_run=True).status_code == 403
    assert client.get("/v1/status").json()["generation"] == 0
    assert [delete().json()["repeated"] for _ in range(2)] == [False, True]
    assert delete(records=["r2"]).status_code == 422


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
    for name, value in {"inputs_total": 3, "deleted_records_total": 1, "generation": 1, "records": 23}.items():
        assert f's3t_{name}{{run="run"}} {value}.0' in page
    assert 's3t_depth{run="run",shard="1"}' in page


@pytest.mark.integration
def test_several_runs_are_served_under_their_names(path, trained_once, tmp_path):
    other = tiny.copy_run(trained_once, tmp_path / "other")
    runs = ("", "/runs/run", "/runs/other")
    with serving(path, other, open_scopes=("predict", "delete", "operate"), hold_share=None) as client:
        client.post("/runs/other/v1/deletions", json={"records": ["r0"]})
        assert [client.get(f"{at}/v1/status").json()["generation"] for at in runs] == [0, 0, 1]
        client.post("/runs/other/v1/deletions", json={"records": list(tiny.text_table().id)})
        answered = [client.get(f"{at}/v1/readyz").status_code for at in runs]
        assert (client.get("/readyz").status_code, answered) == (200, [200, 200, 503])
        client.post("/runs/other/v1/locate", json={"records": ["r0"]})
        assert 'route="/runs/other/v1/locate"' in client.get("/metrics").text


def test_what_clients_have_left_is_not_computed(unchanged, monkeypatch, caplog):
    computed, began, go_on, usual = [], threading.Event(), threading.Event(), Batcher._answer

    def answer(batcher, batch):
        computed.append(len(batch))
        began.set()
        go_on.wait(30.0)
        usual(batcher, batch)

    def left():
        return sum('"status": 499' in record.getMessage() for record in caplog.records)

    monkeypatch.setattr(Batcher, "_answer", answer)
    with serving(unchanged, open_scopes=("predict",), exact=True) as client, caplog.at_level(logging.INFO):
        with together(lambda: client.post("/v1/predict", json={"inputs": "w2"})):
            assert began.wait(30.0)
            for _ in range(ABANDONED):
                with posting(client, "/v1/predict", {"inputs": "w1"}):
                    pass
            wait_for(lambda: left() == ABANDONED)
            go_on.set()
        assert client.post("/v1/predict", json={"inputs": "w3"}).status_code == 200
    assert (left(), computed) == (ABANDONED, [1, 1])


def test_requests_that_come_together_are_answered_as_each_alone(unchanged):
    with serving(unchanged, open_scopes=("predict",), wait=0.2) as client, ThreadPoolExecutor(len(TEXTS)) as pool:

        def ask(text):
            return client.post("/v1/predict", json={"inputs": text}).json()["predictions"][0]

        for alone, beside in zip(map(ask, TEXTS), pool.map(ask, TEXTS), strict=True):
            assert beside["label"] == alone["label"]
            assert beside["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-6)
