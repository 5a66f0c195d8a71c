"""Commands of language models: `generate`, `score`, and `evaluate --write`, as somebody types them."""

import sys

import pytest
import yaml

import s3t
from s3t.run.answerer import Answerer
from testing.language import chat_table, language_recipe, make_language_model, prompt_table
from tests.cli.typed import document, invoke, problems
from tests.run.worlds import trained_run

LITTLE = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}, "training": {"epochs": 1}}
CHATS = {"columns": {"messages": "messages", "prompt": None, "completion": None}}
DRAWN = {"max_new_tokens": 4, "temperature": 1.3, "top_p": 0.9, "stop": ["w3"], "seed": 5}
TYPED = ("--max-new-tokens", 4, "--temperature", 1.3, "--top-p", 0.9, "--stop", "w3", "--seed", 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records and new ones as files, a base model, and two trained runs: `run`, `chats`."""
    folder = tmp_path_factory.mktemp("language")
    model = make_language_model(folder / "model")
    prompt_table().to_csv(folder / "records.csv", index=False)
    prompt_table(4, seed=5).to_csv(folder / "new.csv", index=False)
    recipe = language_recipe(model, **LITTLE)
    trained_run(folder / "run", recipe, prompt_table()).close()
    trained_run(folder / "chats", language_recipe(model, **CHATS, **LITTLE), chat_table()).close()
    return folder


@pytest.fixture(scope="module")
def run(folder):
    with s3t.Run.open(folder / "run") as opened:
        yield opened


def test_texts_after_typed_prompts_are_those_of_python(folder, run):
    typed = ("generate", folder / "run", "--prompt", "w1 w2", "--prompt", "w4", *TYPED)
    wanted = run.generate(["w1 w2", "w4"], **DRAWN)
    assert document(*typed) == wanted.to_json()
    shown = invoke(*typed).stdout
    assert all(text.strip() in shown for text in wanted.texts)
    assert shown.endswith("2 texts (generation 0)\n")


@pytest.mark.parametrize("option", ["max_new_tokens", "temperature", "top_p", "stop", "seed"])
def test_every_setting_is_the_one_that_was_typed(option, folder, run):
    """Without any one of them the text is another, as it is in Python."""
    place = list(DRAWN).index(option)
    left_out = {name: value for name, value in DRAWN.items() if name != option}
    typed = [*TYPED[: 2 * place], *TYPED[2 * place + 2 :]]
    prompts = [f"w{number}" for number in range(8)]
    asked = [part for prompt in prompts for part in ("--prompt", prompt)]
    found = document("generate", folder / "run", *asked, *typed)
    if option != "seed":  # without one there is another each time
        assert found == run.generate(prompts, **left_out).to_json()
    assert found != run.generate(prompts, **DRAWN).to_json()


def test_prompts_of_a_file_keep_their_ids_and_need_no_completion_and_may_have_several_texts(folder, run, tmp_path):
    table = prompt_table(4, seed=5)[["id", "prompt"]]
    table.to_json(tmp_path / "prompts.jsonl", orient="records", lines=True)
    found = document("generate", folder / "run", "--input", tmp_path / "prompts.jsonl", *TYPED, "--n", 2)
    assert found == run.generate(table, **DRAWN, n=2).to_json()
    assert [(row["id"], row["choice"]) for row in found["texts"]] == [(id, n) for id in table.id for n in (0, 1)]


def test_a_prompt_of_a_chat_is_the_users_question_and_a_stream_prints_the_text_alone(folder):
    with s3t.Run.open(folder / "chats") as run:
        wanted = run.generate([[{"role": "user", "content": "w1 w2"}]], **DRAWN)
    assert document("generate", folder / "chats", "--prompt", "w1 w2", *TYPED) == wanted.to_json()
    streamed = invoke("generate", folder / "chats", "--prompt", "w1 w2", "--stream", *TYPED)
    assert (streamed.exit_code, streamed.stdout) == (0, f"{wanted.texts[0]}\n")


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ((), "give the prompts as --input FILE or as --prompt TEXT, one of them"),
        (("--prompt", "w1", "--input", "new.csv"), "give the prompts as --input FILE or as --prompt TEXT"),
        (("--prompt", "w1", "--prompt", "w2", "--stream"), "--stream is of one text after one --prompt"),
        (("--prompt", "w1", "--n", 2, "--stream"), "--stream is of one text after one --prompt"),
        (("--prompt", "w1", "--n", 0), "n: 0; give at least 1"),
        (("--prompt", "w1", "--stream"), "--stream prints text; leave out --json"),
        (("--prompt", " ".join(["w1"] * 50)), "prompt 0 has 50 tokens; give 1 to 47"),
    ],
)
def test_what_cannot_be_written_after_is_refused(typed, problem, folder):
    result = invoke("generate", folder / "run", *typed, "--json")
    assert result.exit_code == 2
    assert problem in result.stderr


def test_labelled_data_are_neither_written_after_nor_scored(folder, made):
    new, labels = folder / "new.csv", made / "run"
    assert "does not generate; ask `predict`" in problems("generate", labels, "--prompt", "w1")[0]
    assert "does not score; ask `predict`" in problems("score", labels, "--input", new)[0]
    assert "does not generate; ask `predict`" in problems("evaluate", labels, "--data", new, "--write", 2)[0]
    assert "ask `generate` or `score`" in problems("predict", folder / "run", "--input", new)[0]


def test_a_base_model_without_a_chat_template_takes_no_chats(folder, tmp_path):
    model = make_language_model(tmp_path / "model", chat=False)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(language_recipe(model, **CHATS, **LITTLE)))
    chat_table().to_json(tmp_path / "chats.jsonl", orient="records", lines=True)
    data, recipe = tmp_path / "chats.jsonl", tmp_path / "recipe.yaml"
    (problem,) = problems("init", tmp_path / "run", "--data", data, "--recipe", recipe)
    assert "the base model's tokenizer has no chat template" in problem
    assert not (tmp_path / "run").exists()


def test_scores_are_those_of_python(folder, run):
    wanted = run.score(prompt_table(4, seed=5))
    assert document("score", folder / "run", "--input", folder / "new.csv") == wanted.to_json()
    shown = invoke("score", folder / "run", "--input", folder / "new.csv").stdout
    assert shown.endswith(f"perplexity {wanted.perplexity:.4f} on 4 records (generation 0)\n")
    without = prompt_table(4, seed=5).drop(columns="completion")
    without.to_csv(folder / "prompts.csv", index=False)
    assert "completion" in problems("score", folder / "run", "--input", folder / "prompts.csv")[0]


def test_texts_are_compared_with_as_many_completions_as_was_asked_for(folder, run):
    typed = ("evaluate", folder / "run", "--data", folder / "new.csv", "--no-depths")
    plain, compared = document(*typed), document(*typed, "--write", 2)
    wanted = run.evaluate(prompt_table(4, seed=5), per_depth=False, write=2).metrics
    assert {name: compared[name] for name in wanted} == wanted
    assert {"exact_match", "rouge_l", "rouge_l_recall"} == {*compared} - {*plain}
    assert f"rouge_l {wanted['rouge_l']:.4f}" in invoke(*typed, "--write", 2).stdout


def test_without_the_library_of_measures_it_is_said_what_to_install_before_anything_is_computed(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    monkeypatch.setattr(Answerer, "evaluate", lambda *asked, **named: 1 / 0)
    typed = ("evaluate", folder / "run", "--data", folder / "new.csv", "--write", 2)
    assert 'pip install "rouge-score' in problems(*typed)[0]
