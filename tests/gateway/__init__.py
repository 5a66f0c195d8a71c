"""What the tests of the gateway share."""

from contextlib import contextmanager
from threading import Event

import pytest

import s3t
from testing.served import together, wait_for

TEXTS = ["w1 w2", "w30", "w22 w3 w4 " * 9]  # the last is cut
PEFT_WARNS = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
"""Engine and gateway load adapters in threads of one process, and filters of warnings are the process's."""


def until(done):
    """Wait for something that has to come soon."""
    wait_for(done, seconds=20.0)


def refused(client):
    """The answer of `POST /v1/predict`, whatever it is."""
    return client.post("/v1/predict", json={"inputs": TEXTS})


def predicted(client, texts=TEXTS):
    """The document of `POST /v1/predict`."""
    answer = client.post("/v1/predict", json={"inputs": texts})
    assert answer.status_code == 200, answer.text
    return answer.json()


def answered(client):
    """As `predicted`, once a gateway answers that waits for the engine less long than a busy machine may take."""
    answer = wait_for(lambda: (given := refused(client)).status_code == 200 and given, seconds=20.0)
    return answer.json()


@contextmanager
def asking(client, threads=1):
    """Asks for answers all the while, in some threads: the answers that were refused."""
    stop, failed = Event(), []

    def ask():
        while not stop.is_set():
            answer = refused(client)
            if answer.status_code != 200:
                failed.append(answer.text)

    with together(*[ask] * threads):
        try:
            yield failed
        finally:
            stop.set()


def assert_as_run(found, path, texts=TEXTS):
    """A document has the run's own answers."""
    with s3t.Run.open(path) as run:
        wanted = run.predict(texts)
    assert [row["label"] for row in found["predictions"]] == list(wanted.predicted)
    for row, expected in zip(found["predictions"], wanted.rows(), strict=True):
        assert row["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
    assert found["members"] == wanted.to_json()["members"]
    assert found["generation"] == wanted.generation


def delete(client, *records):
    """The document of an accepted deletion."""
    answer = client.post("/v1/deletions", json={"records": list(records)})
    assert answer.status_code == 202, answer.text
    return answer.json()


def state_of(client, id=1):
    """How far a deletion is."""
    return client.get(f"/v1/deletions/{id}").json()["state"]


def until_erased(client, id=1):
    until(lambda: state_of(client, id) == "erased")


def ready(client, *, run=""):
    """True if the gateway of the first run can answer, or that of another (`/runs/NAME`)."""
    return client.get(f"{run}/v1/readyz").status_code == 200
