"""A ledger's URL: what may be written down of it, and that nothing repeats a password."""

import pytest

from s3t.errors import RecipeError
from s3t.ledger.engines import PostgresAddress, parsed, without_password
from s3t.recipe import recipe_from
from testing import tiny

WITH_PASSWORD = [
    "postgresql://me:geheim@db/runs",
    "postgresql+psycopg://me@db/runs?password=geheim",
    "postgresql://me:geheim@db:5433/runs?sslmode=require",
    "postgresql://me@/runs?host=one&host=two&sslpassword=geheim",
]
WRONG = [
    "postgresql://me:geheim",
    "postgresql://me:ge@heim@db/runs",
    "postgresql://db:geheim/runs",
    "mysql://me:geheim@db/runs",
    "me:geheim@db",
]


@pytest.mark.parametrize("url", WITH_PASSWORD)
def test_a_password_is_used_and_neither_shown_nor_written_down(url):
    address = PostgresAddress.of(url, run="1")
    assert "geheim" in (address.url.password or "") + "".join(map(str, address.url.query.values()))
    assert "geheim" not in str(address)
    assert "geheim" not in without_password(url)
    rest = parsed(without_password(url))
    assert (rest.host, rest.port, rest.database) == (address.url.host, address.url.port, "runs")


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_refused_without_repeating_it(url):
    with pytest.raises(ValueError, match="write") as caught:
        parsed(url)
    assert not any(part in str(caught.value) for part in ("geheim", "heim"))


@pytest.mark.parametrize("url", [*WITH_PASSWORD, *WRONG])
def test_a_recipe_takes_no_url_with_a_password_and_does_not_repeat_it(url):
    with pytest.raises(RecipeError, match="ledger") as caught:
        recipe_from(tiny.recipe("model", ledger=url))
    assert not any(part in str(caught.value) for part in ("geheim", "heim"))
