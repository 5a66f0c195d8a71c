"""Requests as clients of other servers send them, and the answers that they expect."""

import pytest

import s3t
from s3t.run.pending import Pending
from s3t_server.answering import GENERATION_HEADER
from s3t_server.shapes import ClassifyRequest, TextPredictRequest
from testing import tiny
from testing.served import serving

TEXTS = ["w1 w2", "w30", "w22 w3 w4"]


@pytest.fixture
def wanted(unchanged):
    """The run's own answers."""
    with s3t.Run.open(unchanged) as run:
        return run.predict(TEXTS)


@pytest.mark.parametrize("address", ["/classify", "/v1/classify", "/runs/run/classify", "/runs/run/v1/classify"])
def test_classify_is_vllm_s(reader, wanted, address):
    more = {"user": "u", "priority": 0, "softmax": True, "activation": None, "truncate_prompt_tokens": -1}
    answer = reader.post(address, json={"model": "run", "input": TEXTS} | more)
    assert (answer.status_code, answer.headers[GENERATION_HEADER]) == (200, "0")
    found = answer.json()
    assert (found["object"], found["model"], found["id"][:9]) == ("list", "run", "classify-")
    assert [row["index"] for row in found["data"]] == [0, 1, 2]
    assert [row["label"] for row in found["data"]] == list(wanted.predicted)
    assert [row["probs"] for row in found["data"]] == wanted.probabilities.tolist()
    assert {row["num_classes"] for row in found["data"]} == {len(wanted.classes)}
    (one,) = reader.post(address, json={"input": TEXTS[0]}).json()["data"]
    assert one["label"] == wanted.predicted[0]


@pytest.mark.parametrize("address", ["/predict", "/runs/run/predict"])
def test_predict_is_that_of_text_embeddings_inference(reader, wanted, address):
    by_score = [
        [{"score": value, "label": name} for name, value in row["probabilities"].items()]
        for row in wanted.rows(top=len(wanted.classes))
    ]
    asked = {"truncate": True, "raw_scores": False, "truncation_direction": "Right", "parameters": {}}
    assert reader.post(address, json={"inputs": [[text] for text in TEXTS], **asked}).json() == by_score
    for alone in (TEXTS[0], [TEXTS[0]]):
        assert [row["label"] for row in reader.post(address, json={"inputs": alone}).json()] == [
            row["label"] for row in by_score[0]
        ]


@pytest.mark.integration
def test_pairs(text_model, tmp_path):
    table = tiny.text_table().assign(pair=tiny.text_table().text)
    recipe = tiny.recipe(text_model, columns={"text_pair": "pair"})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train()
        wanted = run.predict([("w1 w2", "w3"), ("w4", "w5")])
    with serving(tmp_path / "run", open_scopes=("predict",)) as client:
        one = client.post("/predict", json={"inputs": ["w1 w2", "w3"]}).json()
        both = client.post("/predict", json={"inputs": [["w1 w2", "w3"], ["w4", "w5"]]}).json()
        assert client.post("/predict", json={"inputs": "w1"}).status_code == 422
    assert one[0]["label"] == both[0][0]["label"] == wanted.predicted[0]
    assert both[1][0]["label"] == wanted.predicted[1]


BODIES = {"/v1/predict": "inputs", "/classify": "input", "/v1/classify": "input", "/predict": "inputs"}


@pytest.mark.parametrize(("address", "field"), BODIES.items())
def test_an_answer_of_any_shape_is_made_again_if_a_deletion_has_overtaken_it(reader, monkeypatch, address, field):
    asked = []
    monkeypatch.setattr(Pending, "may_leave", lambda share: asked.append(share) or len(asked) > 1)
    assert reader.post(address, json={field: "w1"}).status_code == 200
    assert len(asked) == 2


REFUSED = {
    ("/classify", 404): [{"input": "w1", "model": "another"}],
    ("/classify", 413): [{"input": ["w1"] * 300}],
    ("/classify", 422): [
        *({}, {"input": 3}, {"input": [[1, 2]]}, {"input": [{"text": "w1"}]}, {"input": "w1", "messages": []}),
        *({"input": "w1", name: "another"} for name in ClassifyRequest.without_effect),
    ],
    ("/predict", 413): [{"inputs": [["w1"]] * 300}],
    ("/predict", 422): [
        *({"inputs": wrong} for wrong in ([], [[]], [["w1"], ["w1", "w2", "w3"]], ["w1", "w2", "w3"], [["w1"], 3])),
        *({"inputs": "w1", name: "another"} for name in (*TextPredictRequest.without_effect, "unknown")),
    ],
}


@pytest.mark.parametrize(("address", "status"), REFUSED)
def test_what_would_change_the_answer_or_is_no_input_is_refused(reader, address, status):
    for body in REFUSED[address, status]:
        refused = reader.post(address, json=body)
        assert refused.status_code == status, (body, refused.text)
        assert refused.headers["content-type"] == "application/problem+json"
        error = refused.json()["error"]  # as the other server's clients read it
        assert (error["message"] if address == "/classify" else error).startswith(refused.json()["detail"])
        assert "w1" not in refused.text


def test_models_names_the_run(reader):
    (model,) = reader.get("/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("run", "model")
    assert model["created"] > 1_700_000_000
