"""Runs of language models: the oracles, and what a user gets."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import s3t
from s3t.core import Secret, place_of
from s3t.recipe import recipe_from
from testing import tiny
from testing.language import chat_table, language_recipe, make_language_model, prompt_table
from tests.run.test_counterfactual import (
    IN_INTEGRATION,
    ONE_ORDER,
    SLOW_OK,
    TWO_HARDEST,
    assert_any_schedule_is_exact,
    assert_hard_deletions_are_exact,
)
from tests.run.worlds import SMALL, artifacts_after, assert_deletions_are_exact, trained_run


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return make_language_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def trained(llama, tmp_path_factory):
    """A small trained run, for tests that change nothing."""
    with trained_run(
        tmp_path_factory.mktemp("language") / "run", language_recipe(llama, **SMALL), prompt_table()
    ) as run:
        yield run


@pytest.mark.parametrize(("names", "size"), [(TWO_HARDEST, ONE_ORDER), pytest.param(None, {}, marks=IN_INTEGRATION)])
def test_hard_deletions_are_exact(names, size, llama, tmp_path):
    """The longest completion is cut, and some prompts leave nothing to learn."""
    recipe = language_recipe(llama, language={"max_length": 8}, **size)
    assert_hard_deletions_are_exact(recipe, prompt_table(), tmp_path, names=names)


CHATS = {"columns": {"messages": "messages", "prompt": None, "completion": None, "subject": "person"}}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {"training": {"precision": "bfloat16", "micro_batch": 2}}),
        ("llama", {"training": {"checkpointing": True, "shortcuts": []}, "language": {"loss": "all"}}),
        ("llama", {"training": {"precision": "bfloat16"}, "adapter": {"use_dora": True}}),
        ("llama", {"training": {"trunk_cache": False}}),
        ("llama", {"method": {"name": "sisa", "trainable": "all"}, "sequences": {"budget": 1}}),
        ("llama", {"adapter": {"use_dora": True, "dropout": 0.2}}),
        *((kind, {}) for kind in ("gpt2", "llama-tied", "mixtral", "gemma3", "falcon", "phi")),
    ],
    ids=str,
)
def test_every_way_of_training_every_kind_of_decoder_is_exact(kind, changes, tmp_path):
    recipe = language_recipe(make_language_model(tmp_path / "model", kind=kind), **SMALL | changes)
    assert_deletions_are_exact(tmp_path, recipe, prompt_table(), [["r5"], ["r23"]])


@pytest.mark.parametrize(
    "kind", ["qwen2", "mistral", *(pytest.param(kind, marks=IN_INTEGRATION) for kind in ("gpt-neox", "olmo2"))]
)
def test_gradients_of_two_records_at_a_time_are_exact_in_float32(kind, tmp_path):
    """Texts of all of these share rows."""
    model = make_language_model(tmp_path / "model", kind=kind, layers=2)
    training = {"epochs": 1, "micro_batch": 2, "shortcuts": ["packing"], "precision": "float32"}
    size = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}, "training": training}
    assert_deletions_are_exact(tmp_path, language_recipe(model, **size), prompt_table(), [["r5", "r23"]])


@pytest.mark.integration
def test_a_deletion_of_the_only_author_of_a_slice_is_exact(llama, tmp_path):
    recipe, table = (
        language_recipe(llama, columns={"subject": "person"}, training={"epochs": 1}, **SMALL),
        prompt_table(),
    )
    secret = Secret(salt=recipe["partition"]["salt"])
    places = [place_of("", person, secret=secret, shards=1, slices=3) for person in table.person]
    author, alone = table.person[0], places[0]
    table = table[[place != alone or person == author for place, person in zip(places, table.person, strict=True)]]

    def delete(run):
        report = run.delete(subjects=[author])
        assert (report.deleted, report.slices) == (3, (alone,))
        assert run.inventory().records[alone] == 0

    never_knew = artifacts_after(tmp_path / "never-knew", recipe, table[table.person != author])
    assert artifacts_after(tmp_path / "forgot", recipe, table, delete) == never_knew


@pytest.mark.integration
@SLOW_OK
@given(data=st.data())
def test_any_schedule_of_deletions_is_exact(llama, data):
    assert_any_schedule_is_exact(data, language_recipe(llama), prompt_table)


@pytest.mark.integration
def test_all_chats_of_a_person_leave_together_and_exactly(llama, tmp_path):
    def delete(run):
        assert run.delete(subjects=["p2"]).deleted == 3

    table, recipe = chat_table(), language_recipe(llama, **CHATS)
    never_knew = artifacts_after(tmp_path / "never-knew", recipe, table[table.person != "p2"])
    assert artifacts_after(tmp_path / "forgot", recipe, table, delete) == never_knew


@pytest.mark.integration
def test_checkpoints_change_neither_keys_nor_bytes(llama, trained, tmp_path):
    recipe = language_recipe(llama, training={"checkpointing": True}, **SMALL)
    with trained_run(tmp_path / "run", recipe, prompt_table()) as run:
        assert tiny.artifacts(run.path) == tiny.artifacts(trained.path)


def test_nothing_but_adapters_is_stored(trained):
    from s3t.models.adapters import deserialize

    for name, content in tiny.artifacts(trained.path).items():
        if name.endswith(".safetensors"):
            assert deserialize(content).head == {}


@pytest.mark.integration
def test_scores_are_of_the_mean_of_the_members_probabilities(llama, tmp_path):
    with trained_run(tmp_path / "run", language_recipe(llama), prompt_table()) as run:
        scores = run.score(prompt_table(seed=3))
        assert len(scores.members) == 2
        mean = np.log(np.exp(scores.logits[:, :, 0]).mean(axis=0))
        assert np.allclose(np.concatenate(scores.log_probabilities), mean)
        rows = scores.rows()
        assert rows[0]["tokens"] == len(scores.log_probabilities[0])
        assert rows[0]["log_likelihood"] == pytest.approx(sum(scores.log_probabilities[0]))
        evaluation = run.evaluate(prompt_table(seed=3))
        assert evaluation.metrics["perplexity"] == pytest.approx(scores.perplexity) == np.exp(-mean.mean())
        assert [row["depth"] for row in evaluation.per_depth] == [1, 2, 3]


def test_a_language_model_gives_no_labels_and_others_no_likelihoods(trained, text_model, tmp_path):
    with pytest.raises(s3t.InputError, match="ask `generate` or `score`"):
        trained.predict(prompt_table())
    with (
        s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model, **SMALL), data=tiny.text_table()) as run,
        pytest.raises(s3t.InputError, match="ask `predict`"),
    ):
        run.score(tiny.text_table())


def problems_of(recipe, table, tmp_path):
    with pytest.raises(s3t.InputError) as error:
        s3t.Run.create(tmp_path / "refused", recipe=recipe, data=table)
    assert not (tmp_path / "refused").exists()
    return "\n".join(error.value.problems)


NO_CHATS = [
    ([{"role": "user", "content": "w1"}], "column 'messages' has no turn of an assistant"),
    ([], "is no list of messages"),
    ([{"role": "user", "content": "\ud800"}], "content with half a surrogate pair"),
    ("{", "is not JSON"),
    ([{"role": "user"}], "message 1: has no content"),
    ([{"role": "user", "content": "w1", "tool_calls": [{"secret": 1}]}], "message 1: has 1 more fields"),
    ([{"says": "human", "value": "w1"}], "message 1: has no role"),
]


def test_chats_that_are_none_are_named_by_their_line(llama, tmp_path):
    wrong = [{"id": f"x{number}", "person": "p", "messages": chat} for number, (chat, _) in enumerate(NO_CHATS)]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in [*wrong, *chat_table().to_dict("records")]))
    told = problems_of(language_recipe(llama, **CHATS), path, tmp_path).splitlines()
    for number, (_, problem) in enumerate(NO_CHATS, start=1):
        assert any(f"line {number}:" in line and problem in line for line in told)
    assert "secret" not in "".join(told)


def test_every_chat_that_the_template_refuses_is_named(llama, tmp_path):
    model, refuses = shutil.copytree(llama, tmp_path / "model"), "{{ raise_exception(messages[0]['content']) }}"
    template = model / "chat_template.jinja"
    template.write_text(f"{{% if messages[0]['role'] == 'system' %}}{refuses}{{% endif %}}" + template.read_text())
    table = chat_table()
    for number in (4, 15):
        table.at[number, "messages"] = [{"role": "system", "content": "w39"}, *table.messages[number]]
    told = problems_of(language_recipe(model, **CHATS), table, tmp_path)
    assert re.findall(r"record (\w+): the base model's chat template refuses", told) in (["r4", "r15"], ["r15", "r4"])
    assert "w39" not in told


def slice_files(folder, recipe, data):
    """Names of the slices' files, which have digests of what they hold."""
    s3t.Run.create(folder, recipe=recipe, data=data).close()
    return sorted(path.name for path in (folder / "slices").rglob("*.parquet"))


@pytest.mark.integration
def test_chats_as_json_text_and_as_lists_are_the_same_records(llama, tmp_path):
    recipe = language_recipe(llama, **CHATS)
    lists, texts = chat_table(), chat_table()
    texts["messages"] = [json.dumps(chat) for chat in texts.messages]
    lists.to_json(tmp_path / "chats.jsonl", orient="records", lines=True)
    texts.to_csv(tmp_path / "chats.csv", index=False)
    given = {"lists": tmp_path / "chats.jsonl", "texts": tmp_path / "chats.csv", "frame": lists}
    lists, texts, frame = (slice_files(tmp_path / name, recipe, data) for name, data in given.items())
    assert lists == texts == frame


@pytest.mark.integration
def test_longer_records_are_cut_with_a_notice_or_refused(llama, tmp_path):
    recipe = language_recipe(llama, language={"max_length": 4})
    with s3t.Run.create(tmp_path / "cut", recipe=recipe, data=prompt_table()) as run:
        cut, unlearned = run.notices
    assert "have more than 4 tokens and are cut there; raise language.max_length" in cut
    assert "have no token that is learned within 4" in unlearned
    recipe["language"]["longer"] = "refuse"
    assert "which language.longer refuses" in problems_of(recipe, prompt_table(), tmp_path)


def test_an_empty_completion_is_named_and_records_that_teach_nothing_at_all_are_refused(llama, tmp_path):
    table = prompt_table()
    table.loc[3, "completion"] = " "
    assert "row 3: column 'completion' is empty or blank" in problems_of(language_recipe(llama), table, tmp_path)
    table = prompt_table().assign(prompt=" ".join(["w1"] * 30))
    assert "no record has one that is learned" in problems_of(language_recipe(llama), table, tmp_path)


@pytest.mark.integration
def test_the_first_template_whose_columns_are_filled_makes_the_prompt(llama, tmp_path):
    table = prompt_table()
    table["more"] = ["w7" if number % 2 else "" for number in range(len(table))]
    templates = ["w0 {prompt} with {more} w1", "w0 {prompt} w1"]
    recipe = language_recipe(llama, columns={"prompt": templates})
    written = table.assign(prompt=[templates[not row["more"]].format(**row) for row in table.to_dict("records")])
    names = [
        slice_files(tmp_path / name, asked, data)
        for name, asked, data in (("templates", recipe, table), ("written", language_recipe(llama), written))
    ]
    assert names[0] == names[1]
    table.loc[5, "prompt"] = ""
    told = problems_of(recipe, table, tmp_path)
    assert "row 5: no template of columns.prompt has all its columns filled" in told


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"prompt": "prompt"}, "needs columns.prompt and columns.completion, or columns.messages, or columns.text"),
        ({"prompt": "p", "completion": "c", "text": "t"}, "needs one of these alone"),
        ({"prompt": "{x", "completion": "c"}, "is no template"),
        ({"prompt": [], "completion": "c"}, "is an empty list"),
        ({"text": "t", "text_pair": "u"}, "columns.text_pair does not apply to task causal-lm"),
    ],
)
def test_columns_that_make_no_record_are_refused(columns, problem):
    recipe = language_recipe("model") | {"columns": columns}
    with pytest.raises(s3t.RecipeError, match=problem.replace("(", r"\(")):
        recipe_from(recipe)


@pytest.mark.integration
def test_a_column_of_texts_is_learned_whole(llama, tmp_path):
    table = pd.DataFrame({"text": prompt_table().completion})
    recipe = language_recipe(llama, **SMALL) | {"columns": {"text": "text"}}
    with trained_run(tmp_path / "run", recipe, table) as run:
        scores = run.score(["w1 w2 w3", "w1"])
    assert [len(each) for each in scores.log_probabilities] == [3, 1]
