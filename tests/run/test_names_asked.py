"""Names typed in another Unicode form are the same person."""

import unicodedata

import pytest

import s3t
from testing import tiny

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


@pytest.mark.integration
@pytest.mark.parametrize("asked", [COMPOSED, DECOMPOSED])
def test_a_name_is_found_in_whatever_form_it_is_asked_for(asked, tmp_path, text_model, table):
    with created(tmp_path / "run", text_model, table) as run:
        (record, subject) = run.locate(records=[asked], subjects=[asked])
        assert (record.records, subject.records) == (1, 8)
        assert run.delete(subjects=[asked], key=COMPOSED).deleted == 8
        assert run.delete(subjects=[COMPOSED], key=DECOMPOSED).repeated
        assert run.delete(records=[asked]).deleted == 1
