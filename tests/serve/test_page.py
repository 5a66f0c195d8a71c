"""The page: who sees what, what its forms do and refuse, and what is in no address, log or script."""

import html
import json
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

import s3t
from s3t.ledger.rows import Rows
from s3t.results.serving import Visit
from s3t.run.approvals import Approvals
from s3t_server.app import create_app
from s3t_server.page.board import ANY_SCOPE, Board, Forecasts
from s3t_server.page.board import SCOPES as SECTIONS
from s3t_server.page.routes import ROUTER, STATIC
from s3t_server.repairs import Repairs
from s3t_server.settings import Settings
from s3t_server.tokens import SCOPES, VISIT_SECONDS, Access
from testing import tiny
from testing.roles import roles
from testing.served import serving, together, wait_for

ORIGIN, FORM = "http://testserver", "application/x-www-form-urlencoded"
ROUTES = {
    ("GET", "/"): set(ANY_SCOPE),
    ("GET", "/changes"): set(ANY_SCOPE),
    **{("GET", f"/sections/{name}"): set(scopes) for name, scopes in SECTIONS.items()},
    ("POST", "/look-up"): {"operate", "delete"},
    ("POST", "/delete"): {"delete"},
    ("POST", "/repair"): {"operate"},
    ("POST", "/approve"): {"operate"},
    ("POST", "/refuse"): {"operate"},
    ("POST", "/refuse-all"): {"operate"},
}
OPEN = {("POST", "/sign-in"), ("POST", "/sign-out"), ("GET", "/static/{name}")}
NAMES = {"names": "r0", "kind": "records"}


class Elements(HTMLParser):
    """Elements of a page, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def of(self, tag, **wanted):
        return [given for name, given in self.found if name == tag and wanted.items() <= given.items()]


@pytest.fixture(autouse=True)
def short_streams(monkeypatch):
    monkeypatch.setattr("s3t_server.routes.STREAM_SECONDS", 0.1)


@pytest.fixture
def hold_records():
    """Records that a caller may delete within an hour."""
    return 3


@pytest.fixture
def visit(path, tokens, hold_records):
    """Browsers: a function of a token's name, or None for one that is not signed in."""
    settings = Settings(runs=(path,), repair=False, hold_records=hold_records, hold_share=None)
    with TestClient(create_app(settings)) as client:

        def sign_in(scope):
            client.cookies.clear()
            if scope is not None:
                answer = post(client, "/sign-in", token=tokens[scope])
                assert (answer.status_code, answer.headers["location"]) == (303, "./"), answer.text
            return client

        yield sign_in


def post(client, route, *, headers=None, **fields):
    sent = {"Origin": ORIGIN, "Content-Type": FORM} if headers is None else headers
    return client.post(route, content=urlencode(fields), headers=sent, follow_redirects=False)


def generation(path):
    with s3t.Run.open(path) as run:
        return run.status().generation


def test_every_route_of_the_page_is_tried():
    found = {(method, route.path) for route in (*ROUTER.routes, *STATIC.routes) for method in route.methods}
    listed = {(method, "/sections/{name}" if "/sections/" in route else route) for method, route in ROUTES}
    assert found == listed | OPEN


def test_each_scope_opens_its_part_of_the_page_alone(visit, path):
    for scope in SCOPES:
        if scope in ("predict", "add"):  # they open no part of it
            continue
        client = visit(scope)
        for (method, route), scopes in ROUTES.items():
            answer = client.get(route) if method == "GET" else post(client, route)
            assert (answer.status_code == 403) == (scope not in scopes), (scope, route, answer.status_code)
            assert answer.status_code not in (401, 500), (scope, route)
        shown = {given["id"] for given in Elements(client.get("/").text).of("section")}
        allowed = {name for name, scopes in SECTIONS.items() if scope in scopes and name != "done"}
        assert shown - {"desk"} == allowed, scope
        assert ("desk" in shown) == (scope in ("operate", "delete"))
    assert generation(path) == 0


def test_without_a_token_there_is_the_form_to_sign_in_and_nothing_else(visit, tokens, path):
    with s3t.Run.open(path) as run:
        _, old = Access(run).create("old", scopes=["operate"], days=1e-9)
        Access(run).revoke("operate")
    wrong, hostile = "s3t_" + "x" * 43, "<script>alert(1)</script>"
    client = visit(None)
    said = {wrong: "not one of this run", hostile: "not one of", old: "expired", tokens["operate"]: "revoked"}
    for secret, words in said.items():
        answer = post(client, "/sign-in", token=secret)
        assert answer.status_code == 401
        assert words in answer.text
        assert secret not in answer.text
        assert "set-cookie" not in answer.headers
    for method, route in ROUTES:
        answer = client.get(route) if method == "GET" else post(client, route)
        assert answer.status_code == 401, route
        assert Elements(answer.text).of("form") == [{"method": "post", "action": "sign-in", "class": "stack"}]
    assert "You are not signed in" not in client.get("/").text  # nobody has tried yet
    assert post(client, "/sign-in", token=tokens["predict"]).status_code == 403


def test_a_token_that_is_revoked_is_out_at_the_next_request(visit, path):
    client = visit("operate")
    assert client.get("/").status_code == 200
    with s3t.Run.open(path) as run:
        Access(run).revoke("operate")
    for route in ("/", "/sections/shards", "/changes"):
        assert client.get(route).status_code == 401
    assert "was revoked" in client.get("/").text


def test_the_cookie_is_kept_from_scripts_and_from_other_sites_and_ends_with_the_session(visit, tokens):
    client = visit(None)
    plain = post(client, "/sign-in", token=tokens["all"]).headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= set(plain.split("; "))
    assert not {"secure", "max-age", "expires"} & {part.partition("=")[0] for part in plain.split("; ")}
    sent = {"Origin": ORIGIN, "Content-Type": FORM, "X-Forwarded-Proto": "https"}
    by_tls = post(client, "/sign-in", headers=sent, token=tokens["all"]).headers["set-cookie"].lower()
    assert "secure" in by_tls
    assert by_tls.startswith("__host-")


def test_a_cookie_is_of_a_visit_and_no_token(visit, tokens, path, monkeypatch):
    client = visit("all")
    ((name, value),) = client.cookies.items()
    assert value != tokens["all"]
    client.cookies.clear()
    assert client.get("/v1/status", headers={"Authorization": f"Bearer {value}"}).status_code == 401

    def copied():
        return client.get("/", headers={"Cookie": f"{name}={value}"}).status_code

    assert (copied(), client.get("/", headers={"Cookie": f"{name}={tokens['all']}"}).status_code) == (200, 401)
    client.cookies.set(name, value)
    assert post(client, "/sign-out").status_code == 303
    assert client.get("/").status_code == 401
    client.cookies.clear()
    assert copied() == 401
    visit("all")
    ((name, value),) = client.cookies.items()
    assert copied() == 200
    now = Rows.now
    monkeypatch.setattr(Rows, "now", lambda rows: now(rows) + VISIT_SECONDS)
    assert copied() == 401
    visit("operate")
    monkeypatch.undo()
    with s3t.Run.open(path) as run, run.parts.ledger.reading() as transaction:
        assert [each.token for each in transaction.rows.all(Visit)] == ["operate"]


OTHERS = [
    {},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://testserver:9999"},
    {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"},
    {"Origin": ORIGIN, "Sec-Fetch-Site": "same-site"},
]


def test_a_form_that_another_site_sends_does_nothing(visit, path, tokens):
    client = visit("all")
    for headers in OTHERS:
        sent = {"Content-Type": FORM} | headers
        for route in [*(route for method, route in ROUTES if method == "POST"), "/sign-in", "/sign-out"]:
            answer = post(client, route, headers=sent, **NAMES, confirmed="yes", token=tokens["all"])
            assert answer.status_code == 403, (route, headers)
            assert "set-cookie" not in answer.headers
    assert generation(path) == 0


def test_what_is_no_form_is_refused(visit):
    client = visit("all")
    sent = {"Origin": ORIGIN, "Content-Type": "text/plain"}
    assert post(client, "/delete", headers=sent, **NAMES, confirmed="yes").status_code == 415
    sent["Content-Type"] = FORM
    for wrong in (b"names=%ff%fe", b"names=\xff", b"&".join(b"a%d=1" % number for number in range(50))):
        answer = client.post("/look-up", content=wrong, headers=sent)
        assert (answer.status_code, "the form was not understood" in answer.text) == (422, True)
    assert client.post("/look-up", content=b"a" * 2**21, headers=sent).status_code == 413


def test_nothing_of_it_is_kept_and_no_script_or_style_stands_in_it(visit):
    client = visit("all")
    pages = [client.get(route) for route in ("/", "/sections/shards", "/sections/nothing")]
    pages += [post(client, "/look-up", **NAMES), post(client, "/delete"), visit(None).get("/")]
    for answer in pages:
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; ")
        assert "unsafe" not in policy
        for tag, given in Elements(answer.text).found:
            assert tag != "style"
            assert not [name for name in given if name == "style" or name.startswith("on")]
            assert (tag != "script") or given["src"].startswith("/static/")
            assert not any(str(value).startswith(("http:", "https:", "//")) for value in given.values())


def test_script_and_style_are_kept_by_their_version(visit):
    client = visit("all")
    elements = Elements(client.get("/").text)
    for address in (elements.of("script")[0]["src"], elements.of("link", rel="stylesheet")[0]["href"]):
        answer = client.get(address)
        assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True)
        for other in (address.partition("?")[0], address + "0"):  # a page of a newer release asks an old replica
            answer = client.get(other)
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert client.get("/static/..%2fboard.py").status_code == 404


def look_up(client, names="r0"):
    return post(client, "/look-up", names=names, kind="records")


def delete(client, *names, **fields):
    """Delete records without looking at what that does."""
    return post(client, "/delete", names="\n".join(names), kind="records", confirmed="yes", **fields)


def confirmation(answer):
    """The fields of the form that confirms a deletion."""
    return {given["name"]: given["value"] for given in Elements(answer.text).of("input", type="hidden")}


def test_a_record_is_looked_up_and_deleted_once_it_is_confirmed(visit, path):
    client = visit("all")
    answer = look_up(client, "r0\r\nr1\r\n\r\nnobody\r\n")
    assert answer.status_code == 200
    assert "Delete 2 records for good?" in answer.text
    assert "the run has never held it" in answer.text
    assert re.search(r"1 record in slice \d of shard \d", answer.text)
    fields = confirmation(answer)
    unconfirmed = post(client, "/delete", **{**fields, "confirmed": ""})
    assert (unconfirmed.status_code, "the form was not understood" in unconfirmed.text) == (422, True)
    assert generation(path) == 0
    done = [post(client, "/delete", **fields) for _ in range(2)]  # somebody has pressed it twice
    assert {(each.status_code, each.headers["location"]) for each in done} == {(303, "./?done=1&unknown=1#done")}
    assert generation(path) == 1
    told = client.get("/?done=1&unknown=1").text
    assert "1 name unknown: nothing was deleted for it." in told
    assert 'data-query="done=1&amp;unknown=1"' in told
    assert "2 records out of use" in client.get("/?done=1").text
    assert "unknown" not in client.get("/?done=1").text
    # A server answers when a deletion is effective, and erases it afterwards.
    wait_for(lambda: "No byte of them is left" in client.get("/?done=1").text)
    assert "deleted before, by deletion 1 (erased)" in look_up(client).text


def chains(text, prefix):
    """What pictures say in words, by shard."""
    return dict(re.findall(rf'<desc id="{prefix}-(\d+)-text">(.*?)</desc>', text))


def test_the_consequences_are_those_that_come(visit):
    client = visit("all")
    foreseen = chains(look_up(client).text, "after")
    before = chains(client.get("/").text, "chains")
    delete(client, "r0")
    assert len(foreseen) == 1
    assert chains(client.get("/").text, "chains") == before | foreseen != before


@pytest.mark.parametrize("hold_records", [None])
def test_what_leaves_nothing_that_answers_is_said_in_the_words_of_the_status(visit, path):
    client, records = visit("all"), tiny.text_table().id.tolist()
    would, does = "NO SHARD WOULD ANSWER: every prediction would fail until", "NO SHARD ANSWERS: every prediction"
    empty, is_empty = "the run would hold no record, so nothing can answer.", "The run holds no record, so nothing"
    for some, foreseen, told in ((records[:-1], would, does), (records[-1:], empty, is_empty)):
        asked = look_up(client, "\n".join(some)).text
        assert foreseen in asked
        assert "The run goes on answering" not in asked
        delete(client, *some)
        with s3t.Run.open(path) as run:
            (warning,) = run.status().outage
        (heading,) = re.findall(r'<h1 class="bad">(.*?)</h1>', client.get("/").text)
        assert heading.lower() == html.escape(warning).lower() + "."
        assert heading.startswith(told)
        assert client.get("/v1/readyz").status_code == 503
    assert "it holds no record" in client.get("/v1/readyz").text


def test_names_that_are_gone_or_unknown_delete_nothing(visit, path):
    client = visit("all")
    answer = look_up(client, "nobody")
    assert "the run has never held it" in answer.text
    assert confirmation(answer) == {}
    assert "Nothing was deleted: 0 names deleted before, 1 name unknown." in delete(client, "nobody").text
    for names in ("", " r0"):
        assert look_up(client, names).status_code == 422, names
    names = [f"r{number}" for number in range(2_000)]
    for answer in (look_up(client, "\n".join(names)), delete(client, *names)):
        assert (answer.status_code, "2000 names; give 1 to 1,000" in answer.text) == (422, True)
    assert generation(path) == 0


def test_whoever_may_only_delete_learns_nothing_of_where_records_are(visit, path):
    client = visit("delete")
    known, unknown = look_up(client, "r0"), look_up(client, "nobody")
    keys = [confirmation(each).pop("key") for each in (known, unknown)]  # at random: a name may stand in one
    shown, other = known.text.replace(keys[0], ""), unknown.text.replace(keys[1], "")
    assert shown.replace("r0", "X") == other.replace("nobody", "X")
    assert "Only operators see what a deletion costs" in known.text
    assert post(client, "/delete", **confirmation(known)).headers["location"] == "./?done=1#done"
    shown = client.get("/?done=1").text
    assert "1 record out of use" in shown
    assert "chains" not in shown
    assert generation(path) == 1


def test_whoever_may_only_operate_looks_up_and_deletes_nothing(visit, path):
    client = visit("operate")
    answer = look_up(client)
    assert "1 record in slice" in answer.text
    assert confirmation(answer) == {}
    assert delete(client, "r0").status_code == 403
    assert generation(path) == 0


HOSTILE = "<script>alert('x')</script>\"'&"


def test_hostile_names_are_shown_as_text(trained_once, tmp_path):
    path = tiny.copy_run(trained_once, tmp_path / "<i>&run")
    with s3t.Run.open(path) as run:
        _, secret = Access(run).create(HOSTILE, scopes=list(SCOPES))
        _, other = Access(run).create("other", scopes=list(SCOPES))
    with TestClient(create_app(Settings(runs=(path,), repair=False, hold_records=0))) as client:
        post(client, "/sign-in", token=secret)
        pages = [client.get("/"), look_up(client, HOSTILE), post(client, "/repair", hours=HOSTILE)]
        assert delete(client, "r0").headers["location"].startswith("./?held=")
        post(client, "/sign-in", token=other)
        pages.append(client.get("/"))
        held = held_id(pages[-1])
        post(client, "/refuse", id=held, reason=HOSTILE)
        pages += [client.get("/"), client.get(f"/sections/held?held={HOSTILE}"), client.get(f"/?done={HOSTILE}")]
    assert sum("&lt;script&gt;alert" in page.text for page in pages) >= 4
    for page in pages:
        assert "<script>alert" not in page.text
        assert "<i>" not in page.text
        assert len(Elements(page.text).of("script")) <= 1


def test_names_are_in_no_address_and_in_no_log(visit, caplog, tokens):
    with caplog.at_level(logging.INFO):
        client = visit("all")
        answers = [look_up(client), post(client, "/delete", **confirmation(look_up(client)))]
        answers += [delete(client, "r1", "secret-name", key="key-1"), look_up(client, " secret-name")]
    assert any("/look-up" in record.getMessage() for record in caplog.records)
    said = [caplog.text, *(answer.headers.get("location", "") for answer in answers)]
    for secret in ("r0", "r1", "secret-name", "key-1", *tokens.values()):
        assert not any(re.search(rf"\b{secret}\b", text) for text in said), secret
    assert "secret-name" not in re.sub(r"<textarea.*?</textarea>", "", answers[-1].text, flags=re.S)


def held_id(answer):
    return re.search(r'<a [^>]*id="held-([^"]+)"', answer.text)[1]


def test_a_held_deletion_is_decided_by_another_operator(visit, path, monkeypatch):
    asked = delete(visit("all"), *(f"r{number}" for number in range(8)))
    held = asked.headers["location"].removeprefix("./?held=").removesuffix("#held")
    with monkeypatch.context() as patch:  # it is not computed for whoever may not decide
        patch.setattr(Approvals, "impact", None)
        own = visit("all").get(f"/?held={held}").text
    assert "waits for another operator" in own
    assert 'action="approve"' not in own
    for scope in ("all", "delete"):
        assert post(visit(scope), "/approve", id=held).status_code == 403
    for scope in ("delete", "audit"):  # the reason tells which shard is hit
        shown = visit(scope).get(f"/?held={held}").text
        assert "Approve" not in shown
        assert 'class="why"' not in shown
    assert generation(path) == 0
    operator = visit("operate")
    assert "Look into it" in operator.get("/").text
    assert 'class="why"' in operator.get("/").text
    assert "Delete 8 records for good?" in operator.get(f"/sections/held?held={held}").text
    assert post(operator, "/refuse", id=held, reason="  ").status_code == 422
    assert post(operator, "/approve", id=held).headers["location"] == "./?done=1#done"
    assert post(operator, "/refuse", id=held, reason="late").status_code == 409
    assert post(operator, "/approve", id="none").status_code == 404
    delete(visit("all"), *(f"r{number}" for number in range(8, 14)))
    operator = visit("operate")
    post(operator, "/refuse", id=held_id(operator.get("/")), reason="no such ticket")
    assert "no such ticket" in operator.get("/").text
    assert generation(path) == 1


def test_a_repair_is_begun_once(visit, monkeypatch):
    begun = []
    monkeypatch.setattr(Repairs, "_start", lambda _self, repair: begun.append(repair) or repair)
    client = visit("all")
    delete(client, "r0")
    for wrong in ("0", "-1", "inf", "nan", "soon"):
        assert post(client, "/repair", hours=wrong).status_code == 422
    assert "It costs" in client.get("/sections/repairs").text
    assert Elements(client.get("/").text).of("progress") == []
    assert post(client, "/repair", hours="1.5").headers["location"] == "./#repairs"
    assert [(repair.asked_by, repair.hours) for repair in begun] == [("all", 1.5)]
    assert post(client, "/repair", hours="").status_code == 409
    assert Elements(client.get("/").text).of("progress") != []


def test_the_page_tells_what_a_days_deletions_cost(visit, path):
    client = visit("all")
    assert "24 hours" not in client.get("/sections/repairs").text
    delete(client, "r0")
    delete(client, "r1")
    with s3t.Run.open(path) as run, roles(run).ledger.writing() as transaction:
        for ago in (0, 90_000):  # the second was yesterday
            one = transaction.repairs.begin("ops", hours=None, stages=1)
            transaction.repairs.beat(one.id, process=one.process, trained=1, share=1.0, seconds=9000.0)
            transaction.repairs.end(one.id, process=one.process, error=None)
            transaction.rows.connection.exec_driver_sql(
                f"UPDATE repairs SET seen_at = seen_at - {ago} WHERE id = '{one.id}'"
            )
    told = "The last 24 hours had 2 deletions; repairs worked about 2.5 hours."
    wait_for(lambda: told in client.get("/sections/repairs").text)  # a look is a moment old


def test_deletions_are_paged_the_newest_first(visit, monkeypatch):
    monkeypatch.setattr("s3t_server.page.sections._ROWS", 2)
    client = visit("all")
    for number in range(3):
        delete(client, f"r{number}")
    rows = re.compile(r'<th scope="row" class="number">(\d+)</th>')
    first, second = client.get("/sections/deletions"), client.get("/sections/deletions?until=1")
    assert (rows.findall(first.text), rows.findall(second.text)) == (["3", "2"], ["1"])
    for strange in ("0", "-3", "x", "9" * 30, "7"):
        assert rows.findall(client.get(f"/sections/deletions?until={strange}").text) == ["3", "2"]
        assert 'class="none"' in client.get(f"/sections/done?done={strange}").text  # 0 is the making of the run


def versions(answer):
    sections = (given for given in Elements(answer.text).of("section") if "data-version" in given)
    return ".".join(f"{given['id']}-{given['data-version']}" for given in sections)


def changed(client, seen):
    """Sections that a stream names."""
    lines = client.get("/changes", params={"seen": seen}).text.split("\n")
    return {name for line in lines if line.startswith("data: ") for name in json.loads(line.removeprefix("data: "))}


def test_a_stream_names_what_has_changed_since_the_browser_looked(visit, monkeypatch):
    monkeypatch.setattr("s3t_server.page.board._LOOK_SECONDS", 0.0)
    monkeypatch.setattr("s3t_server.page.board._SHARE", 1.0)
    client = visit("all")
    seen = versions(client.get("/"))
    assert changed(client, seen) == set()
    delete(client, "r0")
    assert changed(client, seen) == {"summary", "held", "shards", "repairs", "depths", "forecast", "deletions", "notes"}
    assert changed(client, seen) != set()  # until the browser shows them
    assert changed(client, versions(client.get("/"))) == set()
    assert changed(client, "nonsense.x-y..shards") == {"shards"}
    assert changed(visit("audit"), "shards-x.deletions-x") == {"deletions"}  # of what they may see alone


def test_a_section_is_newer_than_what_a_stream_of_another_worker_has_found_old(visit, monkeypatch):
    monkeypatch.setattr("s3t_server.page.board._LOOK_SECONDS", 60.0)
    client = visit("all")
    before = client.get("/sections/deletions").text
    delete(client, "r0")
    assert client.get("/sections/deletions").text == before
    (shown,) = Elements(before).of("section")
    assert "Nothing has been deleted yet" not in client.get(f"/sections/deletions?seen={shown['data-version']}").text


def test_a_warning_of_the_process_comes_without_a_change_of_the_run(visit, path, monkeypatch):
    monkeypatch.setattr("s3t_server.page.board._LOOK_SECONDS", 0.0)
    monkeypatch.setattr("s3t_server.page.board._STATUS_SECONDS", 1e-6)
    client = visit("all")
    path.chmod(0o700)
    seen = versions(client.get("/"))
    assert "others may enter" not in client.get("/sections/notes").text
    path.chmod(0o755)
    assert changed(client, seen) == {"notes"}
    assert "others may enter" in client.get("/sections/notes").text


def test_nobody_waits_for_a_forecast_where_there_is_an_old_one(trained, monkeypatch):
    going_on, begun = threading.Event(), threading.Event()

    def slow(board, look):
        begun.set()
        assert going_on.wait(60)
        return Forecasts(None, None, look.changes)

    monkeypatch.setattr("s3t_server.page.board._SHARE", 0.999)
    board = Board(trained)
    first = board.forecasts(board.look())
    monkeypatch.setattr(Board, "_forecasts", slow)
    trained.delete(records=["r0"])
    look = board.look()
    with together(lambda: board.forecasts(look)):
        assert begun.wait(60)
        with together(lambda: board.forecasts(look)) as other:
            wait_for(lambda: other)
        going_on.set()
    assert other == [first]


def test_streams_that_wait_for_a_forecast_leave_the_threads_that_answer(path, tokens, monkeypatch):
    going_on, streams = threading.Event(), 45  # more than anyio has threads

    def slow(_board, look):
        assert going_on.wait(60)
        return Forecasts(None, None, look.changes)

    with serving(path, repair=False, open_scopes=("operate",)) as client, ThreadPoolExecutor(streams) as pool:
        monkeypatch.setattr(Board, "_forecasts", slow)
        looking = [pool.submit(client.get, "/changes") for _ in range(streams)]
        try:
            assert [client.get("/v1/repairs").status_code for _ in range(5)] == [200] * 5
        finally:
            going_on.set()
        assert {each.result().status_code for each in looking} == {200}


def test_a_stream_tells_of_a_deletion_while_it_lasts(path, tokens, monkeypatch):
    monkeypatch.setattr("s3t_server.routes.STREAM_SECONDS", 10.0)
    with serving(path, repair=False) as client:
        sent = {"Origin": str(client.base_url), "Content-Type": FORM}
        assert post(client, "/sign-in", headers=sent, token=tokens["all"]).status_code == 303
        seen = versions(client.get("/"))
        with client.stream("GET", "/changes", params={"seen": seen}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == ": open"
            with together(lambda: delete(client, "r0", headers=sent)):
                assert "shards" in next(line for line in lines if line.startswith("data: "))


def test_each_run_has_its_page_and_its_visitors(path, tokens, tmp_path):
    other = tmp_path / "two"
    with s3t.Run.clone(path, other) as run:
        _, secret = Access(run).create("me", scopes=list(SCOPES))
    with TestClient(create_app(Settings(runs=(path, other), repair=False))) as client:
        assert post(client, "/runs/two/sign-in", token=tokens["all"]).status_code == 401
        post(client, "/sign-in", token=tokens["all"])
        links = [given["href"] for given in Elements(client.get("/").text).of("a") if "/runs/" in given["href"]]
        assert links == ["/runs/run/", "/runs/two/"]
        assert [client.get(link).status_code for link in links] == [200, 401]
        assert client.get("/runs/run", follow_redirects=False).headers["location"] == "./run/"  # behind any proxy
        assert client.get("/v1/status/", follow_redirects=False).status_code == 404
        post(client, "/runs/two/sign-in", token=secret)
        post(client, "/runs/two/delete", **NAMES, confirmed="yes")
        assert client.get("/").status_code == 200
    assert (generation(path), generation(other)) == (0, 1)


def test_a_scope_that_is_open_needs_no_token(path):
    with TestClient(create_app(Settings(runs=(path,), repair=False, open_scopes=("operate",)))) as client:
        assert client.get("/").status_code == 200
        assert delete(client, "r0").status_code == 401


def test_where_a_head_answers_the_page_speaks_of_no_chains(text_model, tmp_path):
    changes = {"method": "ridge", "partition": {"shards": 1}, "sequences": {"budget": 1}}
    s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model, **changes), data=tiny.text_table()).close()
    settings = Settings(runs=(tmp_path / "run",), repair=False, open_scopes=("operate",))
    with TestClient(create_app(settings)) as client:
        shown = client.get("/").text
    assert "The head is solved from the slices that are drawn." in shown
    assert "trained from left to right" not in shown
