"""Requests that schemathesis makes up from the OpenAPI document, right and wrong ones: no failure of the server, and no
status or body that the document does not name."""

import hypothesis
import pytest
import schemathesis
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi

import s3t
from s3t_server.tokens import SCOPES, Access
from testing import tiny
from testing.served import bearer, serving
from tests.serve.test_callers import OPEN, ROUTES
from tests.serve.test_completions import CHAT, COMPLETIONS, make_run

pytestmark = pytest.mark.integration
CHECKS = [
    checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_schema_conformance,
]


@pytest.fixture(scope="module")
def server(trained_once, tmp_path_factory):
    """A server, and a token of all scopes."""
    path = tiny.copy_run(trained_once, tmp_path_factory.mktemp("served") / "run")
    with s3t.Run.open(path) as run:
        _, secret = Access(run).create("all", scopes=list(SCOPES))
    with serving(path, repair=False) as client:
        yield str(client.base_url), secret


@pytest.fixture(scope="module")
def described(server):
    """The routes of the document."""
    return schemathesis.openapi.from_url(f"{server[0]}/v1/openapi.json")


RIGHT, WRONG = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
CASES = [
    *((method, route, RIGHT) for method, route in sorted(ROUTES.keys() | OPEN)),
    *((method, route, WRONG) for method, route in sorted(ROUTES)),  # also without the token
]


@pytest.mark.parametrize(("method", "route", "mode"), CASES)
def test_every_answer_is_one_that_the_document_describes(described, server, method, route, mode):
    check(described[route][method], server, mode)


@pytest.mark.parametrize(("kind", "route"), [("prompts", COMPLETIONS), ("chats", CHAT)])
def test_texts_are_as_the_document_describes(state_of_all, tmp_path, kind, route):
    path = make_run(tmp_path, kind)
    with serving(path, repair=False, open_scopes=("predict",)) as client:
        described = schemathesis.openapi.from_url(f"{client.base_url}/v1/openapi.json")
        for mode in (RIGHT, WRONG):
            check(described[route]["POST"], (str(client.base_url), None), mode)


def check(operation, server, mode):
    """Ask a server, with its token, what schemathesis makes up."""

    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def ask(case):
        headers = {} if server[1] is None else bearer(server[1])
        case.call_and_validate(headers=headers, checks=CHECKS, timeout=30)

    ask()
