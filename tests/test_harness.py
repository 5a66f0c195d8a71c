"""The lm-evaluation-harness on a live run: the scores are those of its own model of Hugging Face."""

import datetime
import json
import subprocess
import sys

import lm_eval
import numpy as np
import pytest
import yaml
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoTokenizer

import s3t
from s3t.core import Place, Stage
from s3t.harness import S3TModel
from s3t.models.adapters import deserialize
from testing import tiny
from testing.language import language_recipe, make_language_model, prompt_table
from testing.plain import copy_with
from testing.roles import roles
from tests.cli.typed import document
from tests.run.worlds import SMALL, trained_run
from tests.slice_files import read_slice

pytestmark = pytest.mark.filterwarnings("ignore")  # the harness's, and those of what it imports


@pytest.fixture(scope="module")
def made(state_of_all, tmp_path_factory):
    """The folder of a run, to be copied."""
    folder = tmp_path_factory.mktemp("harness")
    recipe = language_recipe(make_language_model(folder / "model"), **SMALL)
    trained_run(folder / "run", recipe, prompt_table()).close()
    return folder / "run"


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    with s3t.Run.open(tiny.copy_run(made, tmp_path_factory.mktemp("copy") / "run")) as opened:
        yield opened


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder with a task of choices, one of texts to write, and one of perplexity."""
    folder = tmp_path_factory.mktemp("tasks")
    rows = [
        {"question": row.prompt, "choices": [row.completion, "w1 w2", "w3"], "answer": 0, "text": row.completion}
        for row in prompt_table(3).itertuples()
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}}}
    shared = data | {"test_split": "test", "doc_to_text": "{{question}}", "doc_to_target": "{{text}}"}
    writing = {"until": ["w9"], "max_gen_toks": 6, "do_sample": False}
    kinds = {
        "choice": ("multiple_choice", "acc", {"doc_to_choice": "{{choices}}", "doc_to_target": "{{answer}}"}),
        "text": ("generate_until", "exact_match", {"generation_kwargs": writing}),
        "rolling": ("loglikelihood_rolling", "word_perplexity", {"doc_to_text": ""}),
    }
    for name, (kind, metric, more) in kinds.items():
        task = {"task": f"tiny_{name}", "output_type": kind, "metric_list": [{"metric": metric}]}
        (folder / f"tiny_{name}.yaml").write_text(yaml.safe_dump(shared | task | more))
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The harness reads data through datasets, which keeps copies."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


NAMES = ["tiny_choice", "tiny_text", "tiny_rolling"]


def options(folder):
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return {"task_manager": manager, "bootstrap_iters": 0, "log_samples": True}


def measured(model, folder):
    return lm_eval.simple_evaluate(model=model, tasks=NAMES, **options(folder))


def plain_model(run):
    """The one member with PEFT's modules, as the harness's own model takes it."""
    workshop, now = roles(run).loaded.get(), roles(run).ledger.snapshot()
    (member,) = run.score(prompt_table()).members
    blocks = {
        depth: deserialize(tiny.artifacts(run.path)[f"shard-000/{now.stages[stage]}.safetensors"])
        for depth, stage in enumerate(Stage(member.shard, member.prefix).chain, start=1)
    }
    tokenizer = AutoTokenizer.from_pretrained(run.recipe.base_model)
    return HFLM(pretrained=copy_with(workshop.model, blocks), tokenizer=tokenizer, batch_size=4)


@pytest.mark.integration
def test_scores_and_answers_are_those_of_the_harness_with_peft(run, tasks):
    ours, theirs = measured(S3TModel(run), tasks), measured(plain_model(run), tasks)
    for name in NAMES:
        for a, b in zip(ours["samples"][name], theirs["samples"][name], strict=True):
            assert a["doc_hash"] == b["doc_hash"]
            if name == "tiny_text":
                assert a["resps"] == b["resps"]
                continue
            for one, other in zip(a["resps"], b["resps"], strict=True):
                ((likely, *is_greedy), (likely_too, *is_greedy_too)) = (np.ravel(each) for each in (one, other))
                assert likely == pytest.approx(likely_too, abs=1e-4)
                assert is_greedy == is_greedy_too
    assert ours["results"]["tiny_choice"]["acc,none"] == theirs["results"]["tiny_choice"]["acc,none"]


@pytest.mark.integration
def test_the_command_gives_the_same_measures(run, tasks):
    found = document("harness", run.path, "--task", "tiny_choice", "--include", tasks)
    expected = measured(S3TModel(run), tasks)["results"]["tiny_choice"]["acc,none"]
    assert found["generation"] == 0
    assert found["results"][0]["task"] == "tiny_choice"
    assert found["results"][0]["acc"] == expected


def test_texts_longer_than_the_model_are_scored_in_windows(run):
    text = " ".join(f"w{number * number % 37}" for number in range(120))  # a period would confuse the harness's cache
    request = Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=0)
    (ours,), (theirs,) = (model.loglikelihood_rolling([request]) for model in (S3TModel(run), plain_model(run)))
    assert ours == pytest.approx(theirs, rel=1e-4)


def test_a_continuation_keeps_what_the_model_takes_of_its_context_and_is_refused_if_it_is_longer_itself(run):
    lm = S3TModel(run)
    before, tokens = [1] * 4, [2] * (lm.max_length - 1)
    ((cut, _),) = lm._loglikelihood_tokens([("", before, tokens)])
    assert cut == lm._loglikelihood_tokens([("", before[-2:], tokens)])[0][0]
    with pytest.raises(s3t.InputError, match=f"has {lm.max_length + 1} tokens, and the model takes {lm.max_length}"):
        lm._loglikelihood_tokens([("", before, [2] * (lm.max_length + 1))])


def test_an_evaluation_that_a_deletion_overtakes_is_begun_anew(made, tasks, tmp_path, monkeypatch):
    """The harness holds the likelihoods of choices while texts are written."""
    path = tiny.copy_run(made, tmp_path / "run")
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)  # what it asks before it ends is all that notices
    with s3t.Run.open(path) as own, s3t.Run.open(path) as other:
        roles(other).deleter.patience = 0.0

        def asked(lm):
            generation, found = lm.evaluated(tasks=["tiny_choice", "tiny_text"], **options(tasks))
            return generation, [sample["resps"] for samples in found["samples"].values() for sample in samples]

        lm = S3TModel(own)
        before = asked(lm)
        write, deleted = lm.generate_until, []

        def after_a_deletion(requests):
            if not deleted:
                deleted.append(other.delete(records=[now_serving(other)]))
            return write(requests)

        monkeypatch.setattr(lm, "generate_until", after_a_deletion)
        after = asked(lm)
        assert (before[0], after[0]) == (0, 1)
        assert after == asked(S3TModel(other))
        assert after[1] != before[1]


def now_serving(run):
    """A record of the slice that the serving stage has learned last."""
    (member,) = run.score(prompt_table(2)).members
    rows = read_slice(run.path / "slices", Place(0, member.prefix[-1]), roles(run).secret).rows
    return rows["record"].to_pylist()[0]


def test_chats_asked_of_a_run_of_prompts_have_the_date_of_the_run(tmp_path):
    """Which is the day of init, unless the recipe has one."""
    model = make_language_model(tmp_path / "model")
    template = model / "chat_template.jinja"
    template.write_text("{{ strftime_now('%Y-%m-%d') }} " + template.read_text())
    recipe, today = language_recipe(model, **SMALL), datetime.date.today()
    with s3t.Run.create(tmp_path / "today", recipe=recipe, data=prompt_table()) as run:
        assert run.recipe.language.date in (today, datetime.date.today())
    recipe["language"]["date"] = "2001-02-03"
    chat = [{"role": "user", "content": "w1"}]
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=prompt_table()) as run:
        assert S3TModel(run).apply_chat_template(chat).startswith("2001-02-03 ")
        language = run.recipe.language.model_dump(mode="json")
    tiny.change_recipe(tmp_path / "run", language=language | {"date": None})
    with s3t.Run.open(tmp_path / "run") as run, pytest.raises(s3t.InputError, match="the run, of an earlier version"):
        S3TModel(run).apply_chat_template(chat)


@pytest.mark.integration
def test_the_harness_keeps_its_own_models_beside_ours():
    """In a process that has imported none of them before."""
    program = "import s3t.harness; from lm_eval.api.registry import get_model; print(get_model('dummy').__name__)"
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert ended.stdout.strip() == "DummyLM", ended.stderr


def test_another_task_is_refused(trained):
    with pytest.raises(s3t.InputError, match="does not generate; ask `predict`"):
        S3TModel(trained)
