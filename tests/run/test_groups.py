"""Groups in a whole run: exact, found again by the ledger, needed at init alone, and nowhere in the folder."""

import pytest

import s3t
from testing import tiny
from tests.run.test_counterfactual import assert_hard_deletions_are_exact
from tests.run.worlds import SIZES, SMALL, artifacts_after, make_worlds, trained_run

GROUP = {
    "column": "band",
    "slices": {"common": [0, 1], "rare": [2]},
    "deletion": {"common": 0.05, "rare": 0.3},
}


def grouped_recipe(model, *, group=GROUP, partition=None, **changes):
    return tiny.recipe(model, partition={"group": group} | (partition or {}), **changes)


def grouped_table(rare=("r5",), **options):
    """Records of the group `rare` lie in slice 2 of their shard; all others in slices 0 and 1."""
    table = tiny.text_table(**options)
    table["band"] = ["rare" if record in rare else "common" for record in table.id]
    return table


SOME_RARE = ("r1", "r4", "r5", "r8", "r11", "r23")


@pytest.mark.integration
def test_hard_deletions_from_groups_are_exact(text_model, tmp_path):
    assert_hard_deletions_are_exact(grouped_recipe(text_model), grouped_table(SOME_RARE), tmp_path)


@SIZES
def test_deleting_the_only_record_of_a_group_or_label_that_is_one_is_exact(size, text_model, tmp_path):
    by_label = {"column": "label", "slices": {"a": [0], "b": [1], "c": [2]}, "deletion": {"a": 1, "b": 1, "c": 1}}
    recipe = grouped_recipe(text_model, group=by_label, **size)
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r23"], ["r3"]])  # r23 alone has the label c
    assert {state["slices"][2] for state in worlds.forgot.status().to_json()["shards"]} == {0}
    worlds.assert_exact()
    worlds.close()


def test_a_person_is_found_and_leaves_with_all_records_from_the_slice_of_the_group(text_model, tmp_path):
    def delete(run):
        report = run.delete(subjects=["p2"])
        assert (report.deleted, [place.slice for place in report.slices]) == (4, [2])

    table = tiny.text_table(subjects=6)
    table["band"] = ["rare" if person in ("p2", "p3") else "common" for person in table.person]
    recipe = grouped_recipe(text_model, columns={"subject": "person"}, **SMALL)
    never_knew = artifacts_after(tmp_path / "never-knew", recipe, table[table.person != "p2"])
    assert artifacts_after(tmp_path / "forgot", recipe, table, delete) == never_knew


def test_a_run_with_groups_needs_none_to_answer_has_them_in_its_recipe_alone_and_opens_with_its_prior(
    text_model, tmp_path
):
    recipe, table = grouped_recipe(text_model, training={"epochs": 1}, **SMALL), tiny.text_table()
    with trained_run(tmp_path / "run", recipe, grouped_table(SOME_RARE)) as run:
        assert len(run.predict(table).predicted) == run.evaluate(table).n == len(table)
        holding = [name for name, content in tiny.all_files(run.path).items() if b"common" in content]
        assert holding == ["recipe.yaml"]
        with s3t.Run.open(run.path) as reopened:
            assert reopened.recipe.slice_prior == run.recipe.slice_prior == pytest.approx((0.125, 0.125, 0.75))
            assert reopened.status().to_json() == run.status().to_json()


def test_wrong_groups_are_told_before_anything_is_written(text_model, tmp_path):
    table = grouped_table()
    table.loc[3, "band"] = "unheard of"
    with pytest.raises(s3t.DataError, match="row 3: the group"):
        s3t.Run.create(tmp_path / "run", recipe=grouped_recipe(text_model), data=table)
    assert list(tmp_path.iterdir()) == []
