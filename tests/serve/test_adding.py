"""Records that a server takes in."""

import time

import pytest

import s3t
from s3t.client import Client
from s3t.recipe.schema import Retention
from testing import tiny
from testing.served import serving, wait_for
from tests.run.worlds import SMALL

SCOPES = ("predict", "add", "delete", "operate")
ROWS = [{"id": f"n{number}", "text": f"w{number} w2", "label": "ab"[number % 2]} for number in range(5)]


def test_they_are_taken_in_all_or_none_and_may_be_deleted_at_once(path):
    with serving(path, open_scopes=SCOPES, max_records=4) as client:

        def add(records, **more):
            return client.post("/v1/records", json={"records": records} | more)

        before = client.post("/v1/predict", json={"inputs": "w1"}).json()
        made = add(ROWS[:2])
        assert (made.status_code, made.json()["addition"], made.json()["records"]) == (201, 1, 2)
        again = add(ROWS[1:3])
        assert (again.status_code, "row 0: its id is in the run already" in again.text) == (422, True)
        assert add(ROWS).status_code == 413
        for wrong in (client.post("/v1/records", json={}), add([]), add(["n0"]), add(ROWS[2:3], train=True)):
            assert wrong.status_code == 422
        assert client.post("/v1/predict", json={"inputs": "w1"}).json() == before
        status = client.get("/v1/status").json()
        assert (status["records"], status["to_learn"]) == (26, 2)
        assert 's3t_records_to_learn{run="run"} 2' in client.get("/metrics").text
        assert "2 added records (7.7 % of all) not learned yet." in client.get("/sections/repairs").text
        done = client.post("/v1/deletions", json={"records": ["n0"]}).json()
        assert (done["deleted"], done["stages_lost"]) == (1, 0)
        with s3t.Run.open(path) as run, Client(str(client.base_url)) as asking:
            told = [each.to_json() for each in asking.additions()]
            assert told == [each.to_json() for each in run.additions()] != []


def test_an_image_is_its_bytes_and_no_path_on_the_server(image_model, tmp_path):
    table, picture = tiny.image_table(), tmp_path / "picture.png"
    s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(image_model, kind="image"), data=table).close()
    picture.write_bytes(table.image[0])
    with serving(tmp_path / "run", open_scopes=SCOPES, repair=False) as client:
        row = {"id": "n0", "image": str(picture), "label": "a"}
        refused = client.post("/v1/records", json={"records": [row]})
        assert (refused.status_code, "records.0: is no image" in refused.text) == (422, True)
        assert client.get("/v1/status").json()["records"] == len(table)


@pytest.mark.integration
@pytest.mark.parametrize("by", ["recipe", "operator"])
def test_they_are_learned_beside_the_server_by_policy_or_on_demand(by, path):
    tiny.change_recipe(path, additions={"learn_every": 1 if by == "recipe" else None})
    with serving(path, open_scopes=SCOPES) as client:
        made = client.post("/v1/records", json={"records": ROWS}).json()
        assert (made["due"], made["training"]) == (by == "recipe", None)
        if by == "operator":
            time.sleep(2.5)
            assert client.get("/v1/status").json()["to_learn"] == 5
            assert client.post("/v1/repairs", json={"learn": True}).status_code == 202
        wait_for(lambda: client.get("/v1/status").json()["to_learn"] == 0)
        wait_for(lambda: client.get("/v1/repairs").json()["repairs"][0]["state"] == "done")
        assert client.get("/v1/status").json()["missing"] == 0
    with s3t.Run.open(path) as run:
        assert {stage.seen for stage in run.inventory().alive} == {1}
        assert run.audit(replay=1).ok


def test_what_changes_or_comes_back_is_for_operators(path):
    """Their client may repeat a request of which it does not know whether it arrived."""
    with serving(path, open_scopes=("add",)) as client:
        for asked in ({"replace": True}, {"readmit": True}, {"new_labels": ["x"]}):
            refused = client.post("/v1/records", json={"records": ROWS[:1]} | asked)
            assert (refused.status_code, "operate" in refused.text) == (403, True)
    with serving(path, open_scopes=SCOPES) as served, Client(str(served.base_url)) as client:
        assert client.add(ROWS[:2], replace=True).addition == 1
        again = client.add([ROWS[0] | {"text": "w9"}, ROWS[1]], replace=True)
        assert (again.replaced, again.unchanged, again.deletion.deleted) == (1, 1, 1)
        client.delete(records=["n1"])
        with pytest.raises(s3t.InputError, match="the record was deleted"):
            client.add(ROWS[1:2])
        assert client.add(ROWS[1:2], readmit=True).readmitted == 1


def test_a_server_lets_records_go_when_their_time_is_over(text_model, tmp_path, monkeypatch):
    recipe = tiny.recipe(text_model, retention={"column": "created", "days": 300}, **SMALL)
    table = tiny.text_table().assign(created=["2026-01-31", *["2026-11-01"] * 23])
    monkeypatch.setattr(Retention, "oldest", lambda _retention: "2026-01-31")
    s3t.Run.create(tmp_path / "run", recipe=recipe, data=table).close()
    monkeypatch.setattr(Retention, "oldest", lambda _retention: "2026-02-01")
    monkeypatch.setattr("s3t_server.repairs._EXPIRE_SECONDS", 0.0)
    monkeypatch.setattr("s3t_server.repairs._LOOK_SECONDS", 0.1)
    with serving(tmp_path / "run", open_scopes=SCOPES, repair=False) as client:
        wait_for(lambda: client.get("/v1/status").json()["records"] == 23)
        assert len(client.get("/v1/deletions").json()["deletions"]) == 2  # it is done once


def test_labels_may_come_with_them(text_model, tmp_path):
    recipe = tiny.recipe(text_model, **SMALL, method="ridge")
    del recipe["sequences"]
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    with serving(tmp_path / "run", open_scopes=SCOPES, repair=False) as served, Client(str(served.base_url)) as client:
        rows = [row | {"label": "ax"[number % 2]} for number, row in enumerate(ROWS)]
        with pytest.raises(s3t.InputError, match="--new-labels"):
            client.add(rows)
        assert client.add(rows, new_labels=["x"]).addition == 1
        (answer,) = client.predict(["w1"])["predictions"]
        assert set(answer["probabilities"]) == {"a", "b", "c", "x"}
