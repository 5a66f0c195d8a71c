"""Requests as clients of other servers send them, and the answers that they expect."""

import pytest

import s3t
from s3t.run.pending import Pending
from s3t_server.answering import GENERATION_HEADER
from testing import tiny
from testing.served import serving

TEXTS = ["w1 w2", "w30", "w22 w3 w4"]


@pytest.fixture
def wanted(path):
    """The run's own answers."""
    with s3t.Run.open(path) as run:
        return run.predict(TEXTS)


@pytest.mark.integration
@pytest.mark.parametrize("address", ["/classify", "/v1/classify", "/runs/run/classify", "/runs/run/v1/classify"])
def test_classify_is_vllm_s(client, wanted, address):
    answer = client.post(
        address,
        json={
            "model": "run",
            "input": TEXTS,
            "user": "u",
            "priority": 0,
            "softmax": True,
            "activation": None,
            "truncate_prompt_tokens": -1,
        },
    )
    assert (answer.status_code, answer.headers[GENERATION_HEADER]) == (200, "0")
    found = answer.json()
    assert (found["object"], found["model"], found["id"][:9]) == ("list", "run", "classify-")
    assert [row["index"] for row in found["data"]] == [0, 1, 2]
    assert [row["label"] for row in found["data"]] == list(wanted.predicted)
    assert [row["probs"] for row in found["data"]] == wanted.probabilities.tolist()
    assert {row["num_classes"] for row in found["data"]} == {len(wanted.classes)}
    (one,) = client.post(address, json={"input": TEXTS[0]}).json()["data"]
    assert one["label"] == wanted.predicted[0]


@pytest.mark.integration
@pytest.mark.parametrize("address", ["/predict", "/runs/run/predict"])
def test_predict_is_that_of_text_embeddings_inference(client, wanted, address):
    by_score = [
        [{"score": value, "label": name} for name, value in row["probabilities"].items()]
        for row in wanted.rows(top=len(wanted.classes))
    ]
    asked = {"truncate": True, "raw_scores": False, "truncation_direction": "Right", "parameters": {}}
    assert client.post(address, json={"inputs": [[text] for text in TEXTS], **asked}).json() == by_score
    for alone in (TEXTS[0], [TEXTS[0]]):
        (first, *rest) = client.post(address, json={"inputs": alone}).json()
        assert first["label"] == wanted.predicted[0]
        assert len(rest) == len(wanted.classes) - 1
        assert all(row["score"] <= first["score"] for row in rest)


@pytest.mark.integration
def test_pairs(text_model, tmp_path):
    recipe = tiny.recipe(text_model, columns={"id": "id", "text": "text", "text_pair": "pair", "label": "label"})
    table = tiny.text_table()
    table["pair"] = table.text
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train()
        wanted = run.predict([("w1 w2", "w3"), ("w4", "w5")])
    with serving(tmp_path / "run", open_scopes=("predict",)) as client:
        one = client.post("/predict", json={"inputs": ["w1 w2", "w3"]}).json()
        both = client.post("/predict", json={"inputs": [["w1 w2", "w3"], ["w4", "w5"]]}).json()
        assert client.post("/predict", json={"inputs": "w1"}).status_code == 422
    assert one[0]["label"] == both[0][0]["label"] == wanted.predicted[0]
    assert both[1][0]["label"] == wanted.predicted[1]


def test_a_deletion_is_in_the_next_answer(client, path, wanted):
    record = tiny.text_table().id[0]
    assert client.post("/v1/deletions", json={"records": [record]}).status_code == 202
    found = client.post("/classify", json={"input": TEXTS})
    assert found.headers[GENERATION_HEADER] == "1"
    with s3t.Run.open(path) as run:
        after = run.predict(TEXTS).probabilities.tolist()
    assert [row["probs"] for row in found.json()["data"]] == after != wanted.probabilities.tolist()


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("/v1/predict", {"inputs": "w1"}),
        ("/classify", {"input": "w1"}),
        ("/v1/classify", {"input": "w1"}),
        ("/predict", {"inputs": "w1"}),
    ],
)
def test_an_answer_of_any_shape_is_made_again_if_a_deletion_has_overtaken_it(client, monkeypatch, address, body):
    asked = []

    def may_leave(share):
        asked.append(share)
        return len(asked) > 1

    monkeypatch.setattr(Pending, "may_leave", may_leave)
    assert client.post(address, json=body).status_code == 200
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("address", "body", "status"),
    [
        ("/classify", {}, 422),
        ("/classify", {"input": 3}, 422),
        ("/classify", {"input": [[1, 2]]}, 422),
        ("/classify", {"input": [{"text": "w1"}]}, 422),
        ("/classify", {"input": "w1", "model": "another"}, 404),
        ("/classify", {"input": "w1", "use_activation": False}, 422),
        ("/classify", {"input": "w1", "add_special_tokens": False}, 422),
        *(
            ("/classify", {"input": "w1", **field}, 422)
            for field in (
                {"softmax": False},
                {"activation": False},
                {"truncate_prompt_tokens": 1},
                {"truncation_side": "left"},
                {"priority": 3},
                {"messages": []},
                {"unknown": 1},
            )
        ),
        *(
            ("/predict", {"inputs": "w1", **field}, 422)
            for field in (
                {"truncate": False},
                {"truncation_direction": "Left"},
                {"parameters": {"top_k": 1}},
                {"unknown": 1},
            )
        ),
        ("/classify", {"input": ["w1"] * 300}, 413),
        ("/predict", {"inputs": []}, 422),
        ("/predict", {"inputs": [[]]}, 422),
        ("/predict", {"inputs": [["w1"], ["w1", "w2", "w3"]]}, 422),
        ("/predict", {"inputs": ["w1", "w2", "w3"]}, 422),
        ("/predict", {"inputs": [["w1"], 3]}, 422),
        ("/predict", {"inputs": "w1", "raw_scores": True}, 422),
        ("/predict", {"inputs": [["w1"]] * 300}, 413),
    ],
)
def test_what_would_change_the_answer_or_is_no_input_is_refused(client, address, body, status):
    refused = client.post(address, json=body)
    assert refused.status_code == status, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    error = refused.json()["error"]  # as the other server's clients read it
    assert (error["message"] if address == "/classify" else error).startswith(refused.json()["detail"])
    assert "w1" not in refused.text


def test_models_names_the_run(client):
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("run", "model")
    assert model["created"] > 1_700_000_000


@pytest.mark.integration
def test_a_run_that_answers_otherwise_has_no_such_routes(text_model, tmp_path):
    recipe = tiny.recipe(text_model, prediction={"answers": "labels"})
    with s3t.Run.create(tmp_path / "quiet", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    with serving(tmp_path / "quiet", open_scopes=("predict",)) as client:
        assert client.post("/classify", json={"input": "w1"}).status_code == 404
        assert client.post("/predict", json={"inputs": "w1"}).status_code == 404
        assert client.get("/v1/models").status_code == 200
