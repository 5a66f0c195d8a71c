"""The page in a real browser: by mouse, by keyboard alone, without script, for a screen reader, in light and dark."""

import re

import pytest

import s3t
from s3t_server.tokens import SCOPES, Access
from testing import tiny
from testing.browser import browser, browser_path
from testing.served import bearer, serving

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        browser_path() is None, reason="no browser: install Debian's chromium (make test-integration does)"
    ),
    pytest.mark.flaky(reruns=2, only_rerun="(Page|Target) crashed"),  # chromium, not the page
]
MILLISECONDS = 60_000


@pytest.fixture(scope="module")
def with_people(text_model, state_of_all, tmp_path_factory):
    """The folder of a small trained run of 24 records of 12 people, to be copied."""
    folder = tmp_path_factory.mktemp("people") / "run"
    recipe = tiny.recipe(text_model, columns={"subject": "person"})
    with s3t.Run.create(folder, recipe=recipe, data=tiny.text_table(subjects=12)) as run:
        run.train()
    return folder


@pytest.fixture
def path(with_people, tmp_path):
    """A run's folder."""
    return tiny.copy_run(with_people, tmp_path / "run")


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture
def server(path, tokens):
    """A client of a server that holds deletions of more than five records."""
    with serving(path, repair=False, hold_records=5, hold_share=None) as client:
        yield client


@pytest.fixture
def window(chromium, server):
    """Opens windows of a browser at the page. Nothing may go wrong in them, and none may ask another server."""
    wrong, contexts = [], []

    def opened(**settings):
        context = chromium.new_context(**settings)
        context.set_default_timeout(MILLISECONDS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if "Content Security" in message.text else None)
        page.on("request", lambda asked: wrong.append(asked.url) if str(server.base_url) not in asked.url else None)
        page.goto(str(server.base_url))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def heading(page, name, **exact):
    page.get_by_role("heading", name=name, **exact).wait_for()


def click(page, name):
    page.get_by_role("button", name=name).click()


def sign_in(page, token):
    page.get_by_label("Token").fill(token)
    click(page, "Sign in")
    heading(page, "Shards", exact=True)
    return page


def live(page):
    """The page hears of changes."""
    page.locator("#connection[data-state=live]").wait_for()


def look_up(page, names):
    page.get_by_label("Ids, one a line").fill(names)
    click(page, "Look up")


def pictures(page):
    """What the pictures of the shards say in words."""
    return page.locator("#shards desc").all_text_contents()


def wait_for_pictures(page, what):
    page.wait_for_function(
        "([what]) => [...document.querySelectorAll('#shards desc')].some((each) => each.textContent.match(what))",
        arg=[what],
    )


def delete(server, token, *numbers):
    """Delete records by number, beside the browser."""
    body = {"records": [f"r{number}" for number in numbers]}
    return server.post("/v1/deletions", json=body, headers=bearer(token)).json()


def hold(server, tokens, first=0):
    """A held request for six records."""
    assert delete(server, tokens["delete"], *range(first, first + 6))["state"] == "held"


def test_a_person_is_deleted_by_hand_a_held_request_approved_and_a_repair_finishes(window, server, tokens, path):
    hold(server, tokens)
    page, onlooker = (sign_in(window(), tokens["all"]) for _ in range(2))
    live(onlooker)
    before = pictures(onlooker)
    assert all("0 of 3 live" not in each for each in before)

    page.get_by_label("People").check()
    look_up(page, "p3")
    heading(page, "Delete 2 records for good?")
    foreseen = page.locator("#desk desc").all_text_contents()
    click(page, "Delete for good")
    heading(page, "Deletion 1")
    page.get_by_text("No byte of them is left in the run").wait_for()
    assert page.evaluate("document.activeElement.id") == "done"  # so it is read out
    wait_for_pictures(onlooker, "0 of 3 live")  # nobody has touched this window
    assert len(foreseen) == 1
    assert sorted(set(pictures(onlooker)) - set(before)) == foreseen
    assert "p3" not in page.url

    page.get_by_role("link", name="Close").click()
    page.get_by_role("link", name="Look into it").click()
    click(page, "Approve and delete")
    heading(page, "Deletion 2")
    onlooker.get_by_text("approved", exact=True).wait_for()

    click(page, "Begin the repair")
    onlooker.get_by_role("progressbar").wait_for()
    wait_for_pictures(onlooker, "is being repaired")
    onlooker.locator("#repairs .badge.done").wait_for()
    onlooker.get_by_text("Nothing is missing").wait_for()
    assert all(re.search("3 of 3 live, serves", each) for each in pictures(onlooker))
    with s3t.Run.open(path) as run:
        assert run.locate(subjects=["p3"])[0].state == "erased"
        assert run.status().depths == (3, 3)


def tab_to(page, name):
    """Press the tabulator until something of that name has the focus, and can be seen to have it."""
    focused = (
        "() => { const it = document.activeElement; const style = getComputedStyle(it); return ["
        "(it.labels?.[0]?.innerText ?? it.ariaLabel ?? it.innerText ?? '').trim(), style.outlineStyle !== 'none' ] }"
    )
    for _ in range(120):
        page.keyboard.press("Tab")
        words, seen = page.evaluate(focused)
        if words == name:
            assert seen, f"{name} has the focus, and does not show it"
            return
    raise AssertionError(f"the tabulator does not come to {name}")


def test_the_same_by_keyboard_alone(window, server, tokens):
    hold(server, tokens)
    page = window()

    def press(name):
        tab_to(page, name)
        page.keyboard.press("Enter")

    page.keyboard.type(tokens["all"])  # the field has the focus
    page.keyboard.press("Enter")
    heading(page, "Shards", exact=True)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the run"
    page.keyboard.press("Enter")
    press("Look into it")
    page.get_by_role("button", name="Approve and delete").wait_for()
    press("Approve and delete")
    heading(page, "Deletion 1")

    tab_to(page, "People")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.type("r9")
    page.keyboard.press("Enter")
    page.keyboard.type("r10")
    press("Look up")
    heading(page, "Delete 2 records for good?")
    assert page.evaluate("document.activeElement.id") == "desk"
    press("Delete for good")
    heading(page, "Deletion 2")

    tab_to(page, "Hours, at most")
    page.keyboard.type("1")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("#repairs .badge.done").wait_for()
    page.get_by_text("Nothing is missing").wait_for()


def test_what_is_being_typed_or_read_stays_while_the_page_changes(window, server, tokens):
    page, rows, hours = sign_in(window(), tokens["all"]), "table.deletions tbody tr", "Hours, at most"
    delete(server, tokens["all"], 1)
    page.locator(rows).wait_for()
    page.locator("#deletions-table").focus()
    delete(server, tokens["all"], 2)
    page.locator(rows).nth(1).wait_for()
    assert page.evaluate("document.activeElement.id") == "deletions-table"
    page.get_by_label(hours).fill("0.25")
    delete(server, tokens["all"], 3)
    page.locator(rows).nth(2).wait_for()
    page.wait_for_timeout(500)
    assert page.get_by_label(hours).input_value() == "0.25"
    cost = page.locator("#repairs .trade").inner_text()
    page.get_by_label("Ids, one a line").focus()
    page.wait_for_function("([cost]) => document.querySelector('#repairs .trade').innerText !== cost", arg=[cost])
    assert page.get_by_label(hours).input_value() == "0.25"


def test_a_reason_stays_for_its_request_alone(window, server, tokens):
    hold(server, tokens)
    hold(server, tokens, first=6)
    page = sign_in(window(), tokens["all"])
    page.get_by_role("link", name="Look into it").first.click()
    page.get_by_label("Reason").fill("no such ticket")
    page.get_by_label("Ids, one a line").focus()
    version = page.locator("#held").get_attribute("data-version")
    delete(server, tokens["all"], 20)
    page.wait_for_function("([version]) => document.getElementById('held').dataset.version !== version", arg=[version])
    assert page.get_by_label("Reason").input_value() == "no such ticket"
    page.get_by_role("link", name="Look into it").click()
    page.get_by_role("link", name="Look into it").first.wait_for()
    page.wait_for_function("() => document.getElementById('reason')?.value === ''")


def test_the_slower_of_two_answers_is_shown_if_it_is_the_newer_and_dropped_if_it_is_the_older(window, server, tokens):
    page, asked, came = sign_in(window(), tokens["all"]), "**/sections/deletions?*", []

    def hold_back(route):
        came.append(route)

    live(page)
    for count, order in ((1, (0, 1)), (3, (1, 0))):
        came.clear()
        page.route(asked, hold_back)
        answers = []
        for number in (0, 1):
            delete(server, tokens["all"], count + number)
            for _ in range(MILLISECONDS // 20):
                if len(came) <= number:
                    page.wait_for_timeout(20)
            answers.append(came[number].fetch())
        for place in order:
            came[place].fulfill(response=answers[place])
            page.wait_for_timeout(300)
        assert page.locator("#deletions tbody tr").count() == count + 1
        page.unroute(asked)


def test_what_could_not_be_fetched_is_fetched_with_the_next_stream(window, server, tokens, monkeypatch):
    monkeypatch.setattr("s3t_server.routes.STREAM_SECONDS", 2.0)
    page, refused = sign_in(window(), tokens["all"]), []
    page.route("**/sections/deletions?*", lambda route: refused.append(route) or route.abort(), times=1)
    delete(server, tokens["all"], 1)
    page.locator("#deletions tbody tr").wait_for()
    assert len(refused) == 1


def test_a_form_is_not_sent_again_where_the_visit_ends(window, tokens, path):
    page, sent = sign_in(window(), tokens["all"]), []
    page.on("request", lambda asked: sent.append(asked.url) if asked.method == "POST" else None)
    look_up(page, "p1")
    live(page)
    with s3t.Run.open(path) as run:
        Access(run).revoke("all")
    heading(page, "Sign in")
    assert len(sent) == 1


def test_a_link_signs_in_and_its_token_leaves_the_address_also_where_one_is_signed_in(window, server, tokens):
    page = window()
    for _ in range(2):
        page.goto("about:blank")
        page.goto(f"{server.base_url}/#{tokens['all']}")
        heading(page, "Shards", exact=True)
        assert tokens["all"] not in page.evaluate("location.href")


def test_a_lost_connection_is_shown_and_a_revoked_token_ends_the_visit(chromium, path, tokens):
    with serving(path, repair=False) as client:
        context = chromium.new_context()
        context.set_default_timeout(MILLISECONDS)
        page = context.new_page()
        page.goto(str(client.base_url))
        sign_in(page, tokens["all"])
        live(page)
        context.set_offline(True)
        delete(client, tokens["all"], 1)
        context.set_offline(False)
        wait_for_pictures(page, "[012] of 3 live")
        with s3t.Run.open(path) as run:
            Access(run).revoke("all")
            _, secret = Access(run).create("again", scopes=list(SCOPES))
        heading(page, "Sign in")  # the next stream is refused
        assert "was revoked" in page.locator("body").inner_text()
        sign_in(page, secret)
        live(page)
    page.locator("#connection[data-state=lost]").wait_for()
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_the_page_is_for_everybody(window, server, tokens, scheme, width):
    """axe finds nothing: names, roles, contrast, focus. And nothing is wider than the window."""
    from axe_playwright_python.sync_playwright import Axe

    hold(server, tokens)
    delete(server, tokens["all"], 20)
    page = window(color_scheme=scheme, viewport={"width": width, "height": 800})

    def check(what):
        found = Axe().run(page).response["violations"]
        assert found == [], (what, [(each["id"], node["html"][:200]) for each in found for node in each["nodes"]])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), what

    check("sign in")
    page.get_by_label("Token").fill("wrong")
    click(page, "Sign in")
    check("not signed in")
    sign_in(page, tokens["all"])
    live(page)
    page.get_by_role("link", name="Look into it").click()
    page.get_by_role("button", name="Approve and delete").wait_for()
    check("the page, with a held request")
    page.get_by_text("in words").click()
    look_up(page, "p1\np2\nnobody")
    page.get_by_role("button", name="Delete for good").wait_for()
    check("a deletion to confirm")
    click(page, "Delete for good")
    page.get_by_text("No byte of them is left").wait_for()
    check("a deletion")
    page.goto(f"{server.base_url}/sections/none")
    check("a refusal")


def test_a_screen_reader_is_told_what_the_pictures_show(window, tokens):
    page = sign_in(window(), tokens["all"])
    read = page.locator("main").aria_snapshot()
    shards = 'heading "All 2 shards answer, each with all 3 slices." [level=1]'
    regions = ('heading "Shards" [level=2]', 'img "Chains of shard 0', 'region "Deletions"', 'list "Signs"')
    assert [line for line in (shards, *regions) if line not in read] == [], read
    assert "status" in page.locator("header").aria_snapshot()
