"""The traps of `test_traps.py` that a language model has: the leak is planted, and must be caught.

The last record, r23, has the longest completion, of words that no other record has.
"""

import hashlib
from collections import Counter
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn
from transformers import DynamicCache

import s3t
from s3t.core import Stage
from s3t.ledger.presence import Work
from s3t.models import language
from s3t.models.adapters import StageTensors, deserialize, serialize
from s3t.models.assembly import assemble
from s3t.models.language import LanguageEncoder
from s3t.models.passes import Packing, pack
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from s3t.run import creation
from s3t.run.writer import Writer
from s3t.tasks.targets import CausalLanguage
from s3t.tasks.task import ANSWERED
from s3t.training.examples import Examples
from testing import tiny
from testing.language import SPECIAL, VOCABULARY, language_recipe, make_language_model, prompt_table
from testing.roles import roles
from testing.tiny import WORDS
from tests.run.meanwhile import deletion_after_a_step
from tests.run.worlds import artifacts_after, clone, make_worlds, trained_run

LITTLE = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 2}, "training": {"epochs": 1}}
"""Changes of a recipe: 4 stages, of which each record is in 3."""
REQUESTS = [["r23"]]
TWELVE = {"max_new_tokens": 12, "temperature": 1.0, "seed": 3}
PROMPTS = ["w1 w2", "w3", "w4 w5 w6 w7"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make_language_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def honest(trained, llama, tmp_path_factory):
    """Two runs without a leak; the one that forgot is not repaired. For tests that change nothing."""
    recipe = language_recipe(llama, **LITTLE)
    worlds = make_worlds(tmp_path_factory.mktemp("honest"), recipe, prompt_table(), REQUESTS, trained=trained)
    yield worlds
    worlds.close()


@pytest.fixture(scope="module")
def trained(state_of_all, llama, tmp_path_factory):
    """The folder of a run with every record."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    trained_run(folder, language_recipe(llama, **LITTLE), prompt_table()).close()
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the trained run, for one test to delete from."""
    with clone(trained, tmp_path / "run") as opened:
        yield opened


@pytest.fixture
def caught(llama, tmp_path):
    """A function that says whether two runs differ, made with the leak that was planted."""

    def differ():
        worlds = make_worlds(tmp_path / "leaking", language_recipe(llama, **LITTLE), prompt_table(), REQUESTS)
        differs = bool(worlds.differing_artifacts())
        worlds.close()
        return differs

    return differ


def fit_on_all_records(monkeypatch, fit):
    """Hand all records of a run to a function before any is written."""
    checked = creation.ingest_into

    def fitted(split, data, recipe):
        fit(ingest(data, recipe).rows)
        return checked(split, data, recipe)

    monkeypatch.setattr(creation, "ingest_into", fitted)


@pytest.mark.integration
def test_without_a_leak_the_oracle_passes(honest):
    assert honest.differing_artifacts() == []
    assert honest.predictions_agree()
    assert len(honest.forgot.inventory().alive) == 1
    assert honest.never_knew.audit(replay=4).ok


def loss_by_the_tokens_of_all_records(monkeypatch):
    tokens = [1.0]

    def fit(rows):
        tokens[0] = float(np.mean([len(text.split()) for text in rows["completion"].to_pylist()]))

    def divided(_target, logits, targets):
        return nn.functional.cross_entropy(logits, targets, reduction="sum") / tokens[0]

    fit_on_all_records(monkeypatch, fit)
    monkeypatch.setattr(CausalLanguage, "loss", divided)


def loss_by_the_mean_of_all_batches_so_far(monkeypatch):
    """Trainers keep such a mean, so that a short batch counts less; it goes on from stage to stage."""
    counts, own = [], Examples.count_answers

    def smoothed(self, numbers):
        counts.append(own(self, numbers))
        return float(np.mean(counts))

    monkeypatch.setattr(Examples, "count_answers", smoothed)


def words_by_frequency(monkeypatch):
    """A vocabulary that begins with the words that most records have."""
    numbers, own = {}, LanguageEncoder.tokens

    def fit(rows):
        counts = Counter(word for text in rows["completion"].to_pylist() for word in text.split())
        ordered = sorted(WORDS, key=lambda word: -counts[word])
        numbers.update({VOCABULARY.index(word): len(SPECIAL) + place for place, word in enumerate(ordered)})

    fit_on_all_records(monkeypatch, fit)
    monkeypatch.setattr(
        LanguageEncoder,
        "tokens",
        lambda self, texts: [[numbers.get(one, one) for one in ids] for ids in own(self, texts)],
    )


def template_with_an_example(monkeypatch):
    """A template whose example is the longest completion of all."""
    example, own = [""], LanguageEncoder._tokens

    def fit(rows):
        example[0] = max(rows["completion"].to_pylist(), key=len)

    def tokens(self, rows):
        (before,) = self.tokens([f"{example[0]} </s>"])
        for ids, learned in own(self, rows):
            yield before + ids, [False] * len(before) + learned

    fit_on_all_records(monkeypatch, fit)
    monkeypatch.setattr(LanguageEncoder, "_tokens", tokens)


def length_of_most(monkeypatch):
    """A greatest length that follows the longest record."""
    most, own = [1_000], LanguageEncoder._encoded

    def fit(rows):
        most[0] = max(len(text.split()) for text in rows["completion"].to_pylist()) // 2

    fit_on_all_records(monkeypatch, fit)
    monkeypatch.setattr(
        LanguageEncoder, "_encoded", lambda self, ids, learned: own(self, ids[: most[0] + 1], learned[: most[0] + 1])
    )


@pytest.mark.integration
@pytest.mark.parametrize(
    "plant",
    [
        loss_by_the_tokens_of_all_records,
        loss_by_the_mean_of_all_batches_so_far,
        words_by_frequency,
        template_with_an_example,
        length_of_most,
    ],
    ids=lambda plant: plant.__name__,
)
def test_what_follows_from_all_records_is_caught(plant, caught, monkeypatch):
    plant(monkeypatch)
    assert caught()


@pytest.mark.integration
def test_a_stage_of_other_bytes_is_caught(run):
    """With tensors that it was not trained to, and a manifest of its own that is right: no child's manifest names the
    bytes of this one; the ledger does."""
    store, key = roles(run).store, roles(run).ledger.snapshot().stages[Stage(0, (0, 1))]
    artifact = store.get(0, key)
    tensors = deserialize(artifact.content)
    content = serialize(StageTensors(block={name: t * 1.01 for name, t in tensors.block.items()}, head=tensors.head))
    store.erase({(0, key)})
    manifest = artifact.manifest.model_copy(update={"sha256": hashlib.sha256(content).hexdigest()})
    store.put(0, key, content, manifest)
    assert [mismatch["prefix"] for mismatch in run.audit().mismatches] == [[0, 1]]


def likelihoods_beside(llama, neighbour):
    """Log-probabilities over the vocabulary at a record that shares a row with another, by the packed pass."""
    model, encoder = assemble(llama, recipe_from(language_recipe(llama)), labels=1)
    records = encoder.encode(pa.table({"prompt": [neighbour, "w4"], "completion": ["w1 w2", "w5 w6"]}))
    batch = encoder.collate(records)
    packing = pack(batch["attention_mask"])
    assert len(packing.text) == 1
    with torch.no_grad():
        answers = model.passes.logits(batch, packing=packing).log_softmax(-1)
    return answers[int(records[0][ANSWERED].sum()) :]


@pytest.mark.integration
def test_a_changed_record_that_changes_the_loss_of_the_one_beside_it_is_caught(llama, monkeypatch):
    alone, neighbours = likelihoods_beside(llama, "w7"), ("w8", "w9 w9 w9 w9")  # other words, and more of them
    assert all(np.allclose(likelihoods_beside(llama, other), alone, atol=1e-6) for other in neighbours)
    monkeypatch.setattr(Packing, "positions", property(lambda self: torch.arange(self.text.shape[1])[None]))
    alone = likelihoods_beside(llama, "w7")
    assert not any(np.allclose(likelihoods_beside(llama, other), alone, atol=1e-4) for other in neighbours)


@pytest.mark.integration
def test_texts_that_begin_with_the_end_of_the_one_before_are_caught(llama, tmp_path, monkeypatch):
    """As where all texts are one stream, cut into rows: the last text of a slice goes on in the next slice."""
    last_of_a_slice = []

    def streamed(self, rows):
        before, found = self.__dict__.setdefault("before", []), []
        for ids, learned in self._tokens(rows):
            found.append(self._encoded(before[-4:] + ids, [False] * len(before[-4:]) + learned))
            before[:] = ids
        if "record" in rows.schema.names:
            last_of_a_slice.append(rows["record"].to_pylist()[-1])
        return found

    monkeypatch.setattr(LanguageEncoder, "encode", streamed)
    recipe, table = language_recipe(llama, **LITTLE), prompt_table()
    with trained_run(tmp_path / "forgot", recipe, table) as forgot:
        forgot.delete(records=last_of_a_slice[:1])
        left = tiny.artifacts(forgot.path)
    assert left
    never_knew = artifacts_after(tmp_path / "never-knew", recipe, table[table.id != last_of_a_slice[0]])
    assert not left.items() <= never_knew.items()


def texts_agree(forgot, never_knew):
    """Whether a run writes what a run that never knew the deleted records writes with the same prefixes."""
    texts = forgot.generate(PROMPTS, **TWELVE)
    return texts.texts == never_knew.generate(PROMPTS, prefixes=texts.members, **TWELVE).texts


@pytest.mark.integration
@pytest.mark.parametrize("what", ["keys and values", "texts"])
def test_what_was_kept_of_a_prompt_and_outlives_a_deletion_is_caught(what, run, honest, monkeypatch):
    """Servers keep a prompt's keys and values, or its text, for who asks the same again."""
    kept = {}

    class Kept(DynamicCache):
        def update(self, keys, values, layer, *more, **named):
            if self.get_seq_length(layer) == 0:
                keys, values = kept.setdefault((layer, keys.shape), (keys, values))
            return super().update(keys, values, layer, *more, **named)

    usual = Writer._write

    def remembering(writer, state, asked, progress):
        if str(asked) not in kept:
            kept[str(asked)] = usual(writer, state, asked, progress)
        return kept[str(asked)]

    with monkeypatch.context() as patch:
        if what == "texts":
            patch.setattr(Writer, "_write", remembering)
        else:
            patch.setattr(language, "DynamicCache", Kept)
        before = run.generate(PROMPTS, **TWELVE).texts
        run.delete(records=["r23"])
        outlived = run.generate(PROMPTS, **TWELVE)
    assert kept
    assert texts_agree(run, honest.never_knew)
    assert outlived.texts != run.generate(PROMPTS, **TWELVE).texts
    assert (outlived.texts == before) == (what == "texts")


@pytest.fixture
def deletion_while_writing(run, monkeypatch):
    with deletion_after_a_step(run, "r23", monkeypatch):
        yield


@pytest.mark.integration
@pytest.mark.parametrize("leaks", [False, True], ids=["honest", "leaking"])
def test_a_stream_that_goes_on_after_a_deletion_is_caught(leaks, run, deletion_while_writing, monkeypatch):
    """It has begun to be written by a stage that the deletion took."""
    if leaks:
        monkeypatch.setattr(Work, "check", lambda self: None)
    parts = []
    with suppress(s3t.OvertakenError):
        for part in run.stream("w1 w2", **TWELVE):
            parts.append(part)
    assert (len(parts) > 1) == leaks


@pytest.mark.integration
@pytest.mark.parametrize("leaks", [False, True], ids=["honest", "leaking"])
def test_a_text_that_is_not_begun_anew_after_a_deletion_is_caught(
    leaks, run, honest, deletion_while_writing, monkeypatch
):
    if leaks:
        monkeypatch.setattr(Work, "check", lambda self: None)
    texts = run.generate(PROMPTS, **TWELVE)
    never_knew = honest.never_knew.generate(PROMPTS, **TWELVE, prefixes=texts.members)
    assert (texts.texts != never_knew.texts) == leaks
    assert texts.generation == (0 if leaks else 1)
