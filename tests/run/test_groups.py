"""Groups in a whole run: exact, found again by the ledger, needed at init alone, and nowhere in the folder."""

import pytest

import s3t
from testing import tiny
from tests.run.worlds import SIZES, SMALL, make_worlds, records_by_slice, trained_run

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


def hard_requests(recipe, table):
    places = records_by_slice(recipe, table)
    common, rare = places[0, 0], next(records for (_, index), records in places.items() if index == 2)
    return {
        "the first record": [["r0"]],
        "a slice down to its only record, then that one": [common[1:], common[:1]],
        "a slice of the rare group, record after record": [[record] for record in rare],
        "the whole rare group": [list(SOME_RARE)],
        "everything but the rare group": [[record for record in table.id if record not in SOME_RARE]],
    }


@pytest.mark.integration
def test_hard_deletions_from_groups_are_exact(text_model, tmp_path):
    recipe, table = grouped_recipe(text_model), grouped_table(SOME_RARE)
    for name, requests in hard_requests(recipe, table).items():
        worlds = make_worlds(tmp_path / name.replace(" ", "-"), recipe, table, requests)
        worlds.assert_exact()
        worlds.close()


@SIZES
def test_deleting_the_only_record_of_a_group_is_exact(size, text_model, tmp_path):
    worlds = make_worlds(tmp_path, grouped_recipe(text_model, **size), grouped_table(), [["r5"]])
    assert {state["slices"][2] for state in worlds.forgot.status().to_json()["shards"]} == {0}
    worlds.assert_exact()


@SIZES
def test_labels_as_groups_are_exact(size, text_model, tmp_path):
    by_label = {"column": "label", "slices": {"a": [0], "b": [1], "c": [2]}, "deletion": {"a": 1, "b": 1, "c": 1}}
    recipe = grouped_recipe(text_model, group=by_label, **size)
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r23"], ["r3"]])  # r23 alone has the label c
    worlds.assert_exact()


def test_a_person_is_found_and_leaves_with_all_records_from_the_slice_of_the_group(text_model, tmp_path):
    table = tiny.text_table(subjects=6)
    table["band"] = ["rare" if person in ("p2", "p3") else "common" for person in table.person]
    recipe = grouped_recipe(text_model, columns={"subject": "person"}, **SMALL)
    forgot = trained_run(tmp_path / "forgot", recipe, table)
    report = forgot.delete(subjects=["p2"])
    assert (report.deleted, [place.slice for place in report.slices]) == (4, [2])
    forgot.repair()
    never_knew = trained_run(tmp_path / "never-knew", recipe, table[table.person != "p2"])
    assert tiny.artifacts(forgot.path) == tiny.artifacts(never_knew.path)


@pytest.fixture(scope="module")
def grouped(state_of_all, text_model, tmp_path_factory):
    recipe = grouped_recipe(text_model, training={"epochs": 1})
    with trained_run(tmp_path_factory.mktemp("grouped") / "run", recipe, grouped_table(SOME_RARE)) as run:
        yield run


def test_answers_and_measurements_need_no_group(grouped):
    table = tiny.text_table()
    assert len(grouped.predict(table).predicted) == len(table)
    assert grouped.evaluate(table).n == len(table)


def test_the_column_lies_nowhere_but_in_the_recipe(grouped):
    holding = [name for name, content in tiny.all_files(grouped.path).items() if b"common" in content]
    assert holding == ["recipe.yaml"]


def test_a_run_with_groups_opens_again_with_its_prior(grouped):
    with s3t.Run.open(grouped.path) as reopened:
        assert reopened.recipe.slice_prior == grouped.recipe.slice_prior == pytest.approx((0.125, 0.125, 0.75))
        assert reopened.status().to_json() == grouped.status().to_json()


def test_the_hash_of_content_finds_a_record_in_its_groups_slice(text_model, tmp_path):
    table = grouped_table(SOME_RARE).drop(columns="id")
    recipe = grouped_recipe(text_model)
    del recipe["columns"]["id"]
    run = s3t.Run.create(tmp_path / "run", recipe=recipe, data=table)
    record = s3t.record_ids(table, run.recipe)[5]
    assert [place.slice for place in run.delete(records=[record]).slices] == [2]


def test_wrong_groups_are_told_before_anything_is_written(text_model, tmp_path):
    table = grouped_table()
    table.loc[3, "band"] = "unheard of"
    with pytest.raises(s3t.DataError, match="row 3: the group"):
        s3t.Run.create(tmp_path / "run", recipe=grouped_recipe(text_model), data=table)
    assert list(tmp_path.iterdir()) == []
