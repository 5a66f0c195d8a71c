"""TOFU's measures are those computed by hand; unlearning has its losses; deletions leave equal stages."""

import math

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from transformers import AutoModelForCausalLM

from experiments.runner import results, run
from experiments.tofu import measures
from experiments.tofu.approximate import METHODS, Unlearning, losses_of, unlearn
from experiments.tofu.attacker import AFTER, BEFORE, guided
from experiments.tofu.ensemble import Reader, Tokens, told, written
from experiments.tofu.experiment import OURS
from experiments.tofu.measures import Told
from experiments.tofu.records import SETS, prompts, records
from experiments.tofu.systems import adapters, loaded, policy_of
from s3t.recipe import BelowDepth
from testing.language import language_recipe, make_language_model, prompt_table
from tests.run.worlds import trained_run

HALF, QUARTER = math.log(0.5), math.log(0.25)
SETTINGS = Unlearning(epochs=4, batch_size=2, learning_rate=0.05, alpha=1.0, beta=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_language_model(tmp_path_factory.mktemp("models") / "llama", chat=False)


@pytest.fixture
def model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()


@pytest.fixture
def texts(folder):
    table = prompt_table(8)
    return Reader(folder, 48).tokens(table["prompt"].tolist(), table["completion"].tolist())


def with_adapter(model):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return inject_adapter_in_model(LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"]), model)


def direct(model, text):
    """Log-probabilities of an answer's tokens, each from a pass of its own."""
    found = []
    for place, token in enumerate(text.answer):
        logits = model(input_ids=torch.tensor([[*text.prompt, *text.answer[:place]]])).logits[0, -1]
        found.append(logits.log_softmax(0)[token])
    return torch.stack(found)


def test_measures_are_those_computed_by_hand():
    one = Told([HALF, QUARTER, HALF], [True, False, True])
    assert measures.probability(one) == pytest.approx(0.5 ** (4 / 3))
    assert measures.exact_memorisation(one) == 0.5  # the end of text does not count
    assert measures.extraction_strength(one) == 0.0  # the last token is not the likeliest
    assert measures.extraction_strength(Told([], [False, True, True, True, False])) == 0.75
    assert measures.extraction_strength(Told([], [True, True, True])) == 1.0
    perplexity = measures.perplexity([Told([HALF] * 3, []), Told([QUARTER], [])])
    assert perplexity == pytest.approx(2 ** (5 / 4))  # over tokens, not over texts
    right, wrong = Told([HALF, HALF], []), [Told([QUARTER], []), Told([math.log(1 / 16)] * 3, [])]
    assert measures.truth_ratio(right, wrong) == pytest.approx(0.125 / 0.5)  # low where the right answer is likelier
    assert measures.truth_ratio(wrong[0], [right]) == pytest.approx(2.0)
    assert measures.forget_quality([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 1.0
    assert measures.forget_quality([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) == pytest.approx(2 / math.comb(6, 3))
    assert measures.model_utility([0.2, 0.6]) == pytest.approx(2 / (5 + 5 / 3))
    assert measures.model_utility([0.0, 0.6]) == 0.0


def test_probabilities_are_those_of_a_pass_for_each_token_and_an_ensembles_their_mean(model, texts, folder):
    other = with_adapter(AutoModelForCausalLM.from_pretrained(folder, dtype="float32")).eval()
    for name, parameter in other.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(parameter, 0.3)
    alone, both = told([[model]], texts, batch_size=3), told([[model, other]], texts)
    for one, two, text in zip(alone, both, texts, strict=True):
        own, mean = direct(model, text), (direct(model, text).exp() + direct(other, text).exp()) / 2
        assert one.log_probabilities == pytest.approx(own.tolist(), abs=1e-5)
        assert two.log_probabilities == pytest.approx(mean.log().tolist(), abs=1e-5)
        assert one != two


def test_texts_written_together_are_those_written_alone(model, texts):
    asked = [text.prompt for text in texts]
    together = written([[model]], asked, most=6, end=3)
    assert together == [written([[model]], [prompt], most=6, end=3)[0] for prompt in asked]
    for prompt, text in zip(asked, together, strict=True):
        for place, token in enumerate(text):
            logits = model(input_ids=torch.tensor([[*prompt, *text[:place]]])).logits[0, -1]
            assert int(logits.argmax()) == token != 3


def test_extraction_strength_is_what_greedy_writing_gives_of_the_answer(model, texts):
    """By its definition: the least k after which writing gives the rest."""
    for text in texts[:3]:
        own = written([[model]], [text.prompt], most=5, end=3)[0]
        for answer in filter(None, (own[:4], [7, *own[:2]], text.answer[:-1])):
            count = len(answer)
            rests = [written([[model]], [[*text.prompt, *answer[:k]]], most=count - k, end=3)[0] for k in range(count)]
            least = next((k for k, rest in enumerate(rests) if rest == answer[k:]), count)
            (found,) = told([[model]], [Tokens(text.prompt, [*answer, 3])])
            assert measures.extraction_strength(found) == pytest.approx(1 - least / count)


def test_an_attacker_goes_on_in_the_direction_of_what_the_deletion_took_among_plausible_tokens():
    after, before = torch.tensor([[0.6, 0.399, 0.001]]).log(), torch.tensor([[0.55, 0.44, 0.01]]).log()
    assert guided(AFTER, plausible=0.5)([after, before]) is after
    assert guided(BEFORE, plausible=0.5)([after, before]) is before
    assert int(guided(4.0, plausible=0.0)([after, before]).argmax()) == 2  # ten times as likely before, still unlikely
    scores = guided(4.0, plausible=0.1)([after, before])
    assert int(scores.argmax()) == 1
    assert torch.allclose(scores[0, :2], after[0, :2] + 4 * (before - after)[0, :2])


def test_losses_of_unlearning_are_their_formulas(model, texts):
    batch = texts[:3]
    with torch.no_grad():
        losses, tokens = losses_of(model, batch)
        logs = [direct(model, text) for text in batch]
        assert losses.tolist() == pytest.approx([-float(own.sum()) for own in logs], rel=1e-4)
        assert tokens.tolist() == [len(text.answer) for text in batch]
        every = torch.cat(logs)
        ascent = METHODS["gradient difference"](losses, tokens, losses + 1, 0.1)
        assert float(ascent) == pytest.approx(float(every.mean()), rel=1e-4)
        before = losses - torch.tensor([0.0, 2.0, -3.0])  # losses before: p / p before = exp(before - losses)
        ratios = [0.0, -2.0, 3.0]
        expected = sum(-2 / 0.1 * math.log(1 / (1 + math.exp(0.1 * ratio))) for ratio in ratios) / 3
        assert float(METHODS["NPO"](losses, tokens, before, 0.1)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_unlearning_makes_answers_less_likely_and_changes_the_adapter_alone(model, texts, method):
    adapted = with_adapter(model)
    frozen = {name: own.clone() for name, own in adapted.named_parameters() if not own.requires_grad}
    forget, retain = texts[:4], texts[4:]
    before = measures.perplexity(told([[adapted]], forget))
    assert unlearn(adapted, forget, retain, METHODS[method], SETTINGS, seed=0, bfloat16=False) == 8
    assert measures.perplexity(told([[adapted]], forget)) > 1.1 * before
    assert all(torch.equal(own, frozen[name]) for name, own in adapted.named_parameters() if name in frozen)


def test_each_set_of_authors_holds_the_one_before_and_they_are_deleted_in_that_order(tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path))
    assert (policy_of("below-depth 2"), policy_of("on-exhaustion")) == (BelowDepth(below_depth=2), "on-exhaustion")
    found = records(authors=6, made_up=True)
    assert found.task.train["author"].nunique() == 6
    assert [len(found.forgotten[name]) for name in SETS] == [1, 2, 4]
    assert all(found.gone[: len(found.forgotten[name])] == found.forgotten[name] for name in SETS)
    assert not set(found.without_forgotten().train["author"]) & set(found.gone)
    chosen = found.rows("forget10", most=5, seed=1)
    assert len(chosen) == 5
    assert list(chosen.index) == sorted(chosen.index)
    assert set(found.variants.index) == set(found.rows("forget10")["id"])
    assert prompts(chosen)[0] == f"### Instruction:\n{chosen['instruction'].iloc[0]}\n\n### Response:\n"


@pytest.mark.integration
def test_exported_models_say_and_write_what_the_run_does(folder, tmp_path):
    table = prompt_table(12)
    with trained_run(tmp_path / "run", language_recipe(folder, sequences={"budget": 1}), table) as own:
        models = loaded(own)
        assert len(models) == 2
        assert own.status().exports == ()  # nothing that a deletion would wait for
        asked = Reader(folder, 24).tokens(table["prompt"].tolist(), table["completion"].tolist())
        for found, right in zip(told([models], asked), own.score(table).log_probabilities, strict=True):
            assert found.log_probabilities == pytest.approx(right, abs=1e-4)
        texts = written([models], [text.prompt for text in asked], most=5, end=3)
        reader = Reader(folder, 24)
        assert [reader.text(text) for text in texts] == list(own.generate(table, max_new_tokens=5).texts)
        own.delete(records=table["id"].tolist())
        assert loaded(own) == []
        with adapters(own) as paths:
            assert paths == []


@pytest.mark.integration
def test_after_deletions_stages_are_those_of_a_run_that_never_saw_the_authors(tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path / "kept"))
    run("tofu", into=tmp_path, smoke=True)
    found = results("tofu", tmp_path)
    ours = [row for row in found["rows"] if row["system"] == OURS]
    assert all(row["stages"]["different"] == 0 for row in ours)
    repaired = next(row for row in ours if row["policy"] == "below-depth 1")
    assert repaired["stages"]["compared"] > 0
    assert min(min(depths) for depths in repaired["repaired_depths"]) >= 1
    assert all(len(row["depths"]) == len(row["seconds"]["deletion"]) == 4 for row in ours)
    dead = next(row for row in ours if row["policy"] == "manual")
    assert dead["depths"][-1] == [0]
    assert dead["after"]["forget10"] is dead["attack"]["forget10"] is None
    quality = {name: own["forget_quality"] for name, own in found["summary"]["systems"]["reference"].items()}
    assert quality == dict.fromkeys(SETS, 1.0)
