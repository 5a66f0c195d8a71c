"""Texts from several columns."""

import pandas as pd
import pytest

import s3t
from s3t.recipe import recipe_from
from s3t.recipe.schema import filled, template_columns
from s3t.records.ingest import ingest, ingest_inputs
from testing import tiny

TABLE = pd.DataFrame(
    {
        "id": ["1", "2"],
        "premise": ["it rained", "it was {dry}"],
        "question": ["effect", "cause"],
        "choice": ["wet", "sun"],
        "label": ["a", "b"],
    }
)


def recipe_of(**columns):
    recipe = tiny.recipe("no model is read")
    return recipe | {"columns": {"id": "id", "label": "label"} | columns}


def test_a_template_is_filled_from_its_columns():
    recipe = recipe_from(recipe_of(text="{premise} {{what}} {question}?", text_pair="{choice} or {question}"))
    rows = ingest(TABLE, recipe).rows
    assert rows["text"].to_pylist() == ["it rained {what} effect?", "it was {dry} {what} cause?"]
    assert rows["text_pair"].to_pylist() == ["wet or effect", "sun or cause"]
    assert template_columns("premise") == ("premise",)  # a name without braces is a column
    assert template_columns("{a}{b} {a}") == ("a", "b")
    assert filled("{a}{{b}}", {"a": "{x}"}) == "{x}{b}"
    inputs, ids, _ = ingest_inputs(TABLE.to_dict("records"), recipe)
    assert (inputs["text"].to_pylist(), ids) == (rows["text"].to_pylist(), ["1", "2"])


@pytest.mark.parametrize("text", ["{", "}", "{}", "{a.b}", "{a[0]}", "{a!r}", "{a:>3}", "{{a}}"])
def test_what_is_no_template_is_refused(text):
    with pytest.raises(s3t.RecipeError, match=r"columns\.text: .* template"):
        recipe_from(recipe_of(text=text))


@pytest.mark.parametrize(
    "columns", [{"text": "{premise} {label}"}, {"text": "premise", "text_pair": "premise"}, {"text": "{id}"}]
)
def test_a_column_has_one_role_but_that_two_texts_may_share_it(columns):
    with pytest.raises(s3t.RecipeError, match="both name the column"):
        recipe_from(recipe_of(**columns))


def test_columns_and_cells_that_are_missing_are_named():
    recipe = recipe_from(recipe_of(text="{premise} {answer}", text_pair="{choice}"))
    with pytest.raises(s3t.DataError, match=r"column 'answer' is missing \(columns\.text\)"):
        ingest(TABLE, recipe)
    table = TABLE.assign(answer=["yes", None])
    with pytest.raises(s3t.DataError, match=r"row 1: column 'answer' is empty"):
        ingest(table, recipe)
