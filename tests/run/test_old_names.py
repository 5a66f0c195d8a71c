"""Names typed in another Unicode form are the same person; in runs of before, too."""

import json
import sys
import unicodedata

import pytest

import s3t
from tests import tiny

COMPOSED = "Zoë"
DECOMPOSED = unicodedata.normalize("NFD", COMPOSED)


@pytest.fixture
def table():
    table = tiny.text_table(subjects=6)
    table.loc[table.person == "p1", "person"] = COMPOSED
    table.loc[table.person == "p2", "person"] = DECOMPOSED
    table.loc[3, "id"] = DECOMPOSED
    return table


def created(folder, model, table):
    recipe = tiny.recipe(model, columns={"id": "id", "text": "text", "label": "label", "subject": "person"})
    return s3t.Run.create(folder, recipe=recipe, data=table)


@pytest.mark.parametrize("asked", [COMPOSED, DECOMPOSED])
def test_a_name_is_found_in_whatever_form_it_is_asked_for(asked, tmp_path, text_model, table):
    with created(tmp_path / "run", text_model, table) as run:
        (record, subject) = run.locate(records=[asked], subjects=[asked])
        assert (record.records, subject.records) == (1, 8)
        assert run.delete(subjects=[asked], key=COMPOSED).deleted == 8
        assert run.delete(subjects=[COMPOSED], key=DECOMPOSED).repeated
        assert run.delete(records=[asked]).deleted == 1


@pytest.fixture
def old(tmp_path, text_model, table, monkeypatch):
    """A run that was made before names were normalised."""
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["s3t.records.ingest"], "normal_form", lambda name: name)
        created(tmp_path / "run", text_model, table).close()
    described = tmp_path / "run" / "run.json"
    content = json.loads(described.read_text()) | {"format": 4}
    for later in ("names_normalised", "check", "recipe_check"):
        del content[later]
    described.write_text(json.dumps(content))
    with s3t.Run.open(tmp_path / "run") as run:
        yield run


@pytest.mark.parametrize("asked", [COMPOSED, DECOMPOSED])
def test_an_old_run_finds_every_form_of_a_name(asked, old):
    assert [place.records for place in old.locate(subjects=[asked])] == [4, 4]
    assert [place.state for place in old.locate(records=[asked])] == ["present"]
    report = old.delete(subjects=[asked], records=[asked], key="k")
    assert (report.deleted, report.unknown) == (9, ())
    again = old.delete(subjects=[COMPOSED], records=[COMPOSED], key="k")
    assert again.repeated
    assert set(old.delete(subjects=[DECOMPOSED]).already) == {COMPOSED, DECOMPOSED}
    assert old.delete(subjects=["Zoé"]).unknown == ("Zoé",)
