"""A tag a word: how words are read and encoded, what is learned of them, how they are answered and judged."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import s3t
from s3t.errors import DataError, RecipeError
from s3t.models.assembly import assemble
from s3t.models.encoders import TextEncoder
from s3t.models.passes import ANSWERED
from s3t.prediction.answers import Answers
from s3t.recipe import Prediction, Text, recipe_from
from s3t.records.ingest import ingest
from s3t.tasks.targets import WORDS, TokenClassification, entities
from testing import tiny
from tests.cli.typed import document
from tests.run.worlds import trained_run

TABLE = tiny.tagged_table()


def recipe(model="m", **changes):
    return recipe_from(tiny.tagging_recipe(model, **changes))


def kept(**columns):
    rows = ingest(pd.DataFrame({"id": ["x"], **columns}), recipe()).rows
    return rows["text"].to_pylist(), rows["label"].to_pylist()


def test_words_and_tags_are_lists_or_text_with_a_delimiter(tmp_path):
    assert kept(text=[["EU", "rejects"]], label=[["B-a", "O"]]) == ([["EU", "rejects"]], [["B-a", "O"]])
    path = tmp_path / "data.csv"
    path.write_text("id,text,label\nx,EU rejects,B-a O\n")
    rows = ingest(path, recipe(columns={"delimiter": " "})).rows
    assert (rows["text"].to_pylist(), rows["label"].to_pylist()) == ([["EU", "rejects"]], [["B-a", "O"]])


def test_words_that_are_cut_elsewhere_make_another_record():
    table = pd.DataFrame({"text": [["new", "york"], ["newy", "ork"]], "label": [["O", "O"], ["O", "O"]]})
    assert len(set(ingest(table, recipe(columns={"id": None})).rows["record"].to_pylist())) == 2


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"text": [["EU", "rejects"]], "label": [["O"]]}, "different lengths"),
        ({"text": [["EU"]], "label": [["B-c"]]}, "outside the declared labels"),
        ({"text": [[]], "label": [[]]}, "no list of words"),
        ({"text": [["EU", " "]], "label": [["O", "O"]]}, "no list of words"),
        ({"text": ["EU"], "label": [["O"]]}, "no list of words"),
        ({"text": [["EU"]], "label": [None]}, "a list of tags"),
        ({"text": [7], "label": [["O"]]}, "words are lists"),
    ],
)
def test_rows_without_a_tag_for_every_word_are_refused(columns, reason):
    with pytest.raises(DataError, match=reason):
        kept(**columns)


def test_the_first_sub_word_stands_for_its_word(text_model):
    """The tiny tokenizer cuts at points: w1.w2 are three tokens."""
    with pytest.raises(RecipeError, match="no room for a word"):
        TextEncoder(text_model, Text(max_length=2), in_words=True)
    encoder = TextEncoder(text_model, Text(max_length=7), in_words=True)
    rows = ingest(
        pd.DataFrame({"id": ["x"], "text": [["w1.w2", "w3", "w4", "w5"]], "label": [["O", "B-a", "I-a", "O"]]}),
        recipe(),
    ).rows
    (record,) = encoder.encode(rows)
    assert len(record["input_ids"]) == 7  # [CLS] w1 . w2 w3 w4 [SEP]
    assert record[ANSWERED].tolist() == [False, True, False, False, True, True, False]
    assert record[WORDS] == [0, 1, 2]
    (targets,) = TokenClassification().targets(rows, [record], tiny.TAGS)
    assert [tiny.TAGS[index] for index in targets] == ["O", "B-a", "I-a"]
    assert encoder.cut(rows).longer == [True]


def test_the_loss_is_that_of_the_fields_ignored_labels(text_model):
    """-100 for all tokens but the first of a word, as transformers counts them."""
    made = recipe(text_model)
    model, encoder = assemble(text_model, made, labels=len(tiny.TAGS))
    model.reset_head(seed=0)
    rows = ingest(TABLE, made).rows.slice(0, 5)
    records = encoder.encode(rows)
    targets = TokenClassification().targets(rows, records, tiny.TAGS)
    batch = encoder.collate(records)
    ours = TokenClassification().loss(model.passes.logits(batch), torch.cat(list(targets)))
    labels = torch.full(batch["input_ids"].shape, -100)
    labels[batch[ANSWERED]] = torch.cat(list(targets))
    inputs = {name: tensor for name, tensor in batch.items() if name != ANSWERED}
    assert ours.item() == pytest.approx(model.base.model(**inputs, labels=labels).loss.item(), rel=1e-5)


@pytest.mark.parametrize("labels", [["O", "B-a"], ["O", "NOUN"], ["B-a", "NOUN"]])
def test_a_word_without_a_tag_counts_as_outside(labels):
    """So does F1, and a word whose right tag is another one is wrong."""
    answers, expected = [(labels[1], None), (None, "O")], [(labels[1], "O"), (labels[1], "O")]
    assert TokenClassification().metrics(answers, expected, labels)["accuracy"] == 0.75


def test_a_word_of_which_the_tokenizer_makes_no_token_is_not_seen(tmp_path):
    path = tiny.make_text_model(tmp_path / "model") / "tokenizer.json"
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": bert | {"strip_accents": None}}))
    encoder = TextEncoder(path.parent, Text(max_length=16), in_words=True)
    rows = ingest(pd.DataFrame({"id": ["x"], "text": [["w1", "\u200b", "w2"]], "label": [["O"] * 3]}), recipe()).rows
    (record,) = encoder.encode(rows)
    assert (list(encoder.places(record)), encoder.answers(rows)) == ([0, 2], [3])


def test_words_that_the_model_does_not_see_have_no_tag():
    answers = Answers(target=TokenClassification(), labels=("O", "B-a"), settings=Prediction(aggregation="vote"))
    logits = np.array([[[0.0, 1.0], [np.nan] * 2, [1.0, 0.0]], [[0.0, 1.0], [np.nan] * 2, [3.0, 0.0]]])
    found, probabilities = answers.answer(logits, [0, 1], counts=[2, 1])
    assert found == (("B-a", None), ("O",))
    assert np.isnan(probabilities[1]).all()
    measures = answers.target.metrics(found, [["B-a", "O"], ["O"]], answers.labels)
    assert measures == dict.fromkeys(("f1", "precision", "recall", "accuracy"), 1.0)


def test_entities_are_counted_as_in_the_example_of_seqeval():
    right = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    given = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    labels = ["O", "B-MISC", "I-MISC", "B-PER", "I-PER"]
    measures = {"f1": 0.5, "precision": 0.5, "recall": 0.5, "accuracy": 0.8}
    assert TokenClassification().metrics(given, right, labels) == measures
    assert TokenClassification().report(given, right, labels)[0] == (
        {"label": "MISC", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1},
        {"label": "PER", "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1},
    )


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("I-a I-a", [("a", 0, 1)]),
        ("B-a B-a", [("a", 0, 0), ("a", 1, 1)]),
        ("I-a I-b", [("a", 0, 0), ("b", 1, 1)]),
        ("B-a E-a E-a", [("a", 0, 1), ("a", 2, 2)]),
        ("S-a I-a", [("a", 0, 0), ("a", 1, 1)]),
        ("E-a I-a", [("a", 0, 0), ("a", 1, 1)]),
        ("B-a O I-a", [("a", 0, 0), ("a", 2, 2)]),
        ("B-x-y I-x-y", [("x-y", 0, 1)]),
        ("O", []),
    ],
)
def test_entities_are_read_in_every_scheme(tags, found):
    assert list(entities(tags.split())) == found


def test_tags_that_name_no_entities_are_judged_by_words_alone():
    target = TokenClassification()
    assert target.metrics([("NOUN", "VERB")], [["NOUN", "NOUN"]], ("NOUN", "VERB")) == {"accuracy": 0.5}
    assert target.report([("NOUN",)], [["NOUN"]], ("NOUN", "VERB")) == ((), None)


@pytest.fixture(scope="module")
def run(tmp_path_factory, text_model):
    size = {"sequences": {"budget": 1}, "partition": {"slices": 1}, "training": {"epochs": 8}}
    recipe = tiny.tagging_recipe(text_model, text={"max_length": 12}, **size)
    with trained_run(tmp_path_factory.mktemp("tagged") / "run", recipe, TABLE) as made:
        return made.path


@pytest.mark.integration
def test_every_word_is_answered_in_documents(run, tmp_path):
    TABLE.to_parquet(tmp_path / "data.parquet")
    with s3t.Run.open(run) as opened:
        answers = opened.predict(TABLE)
        assert opened.predict(TABLE.text.to_list()).predicted == answers.predicted
        assert [len(tags) for tags in answers.predicted] == [len(words) for words in TABLE.text]
        assert answers.predicted[-1][10:] == (None,) * 8  # 10 words and two special tokens
        assert None not in answers.predicted[0]
        alone = opened.predict(TABLE[:1])
        np.testing.assert_allclose(alone.logits[:, 0], answers.logits[:, 0], rtol=1e-4, atol=1e-6)
        assert answers.to_pandas()["tags"].tolist() == list(answers.predicted)
        whole = opened.evaluate(TABLE)
        best = answers.logits.mean(axis=0)  # of two members decides each word
    tags = [tag for each in answers.predicted for tag in each]
    for row, tag in zip(best, tags, strict=True):
        assert tag is None if np.isnan(row).any() else tag == tiny.TAGS[int(row.argmax())]
    predictions = document("predict", run, "--input", tmp_path / "data.parquet")["predictions"]
    for row, tags in zip(predictions, answers.predicted, strict=True):
        assert tuple(row["tags"]) == tags
        best = [each and max(each, key=each.get) for each in row["probabilities"]]
        assert best == list(tags)
    for suffix in ("csv", "jsonl", "parquet"):
        document("predict", run, "--input", tmp_path / "data.parquet", "--output", tmp_path / f"out.{suffix}")
    assert [tuple(json.loads(cell)) for cell in pd.read_csv(tmp_path / "out.csv")["tags"]] == list(answers.predicted)
    found = document("evaluate", run, "--data", tmp_path / "data.parquet", "--report")
    by_hand = TokenClassification().metrics(answers.predicted, TABLE.label.to_list(), ["O", "B-a", "B-b"])
    assert found["f1"] == whole.metrics["f1"] == by_hand["f1"]
    assert [row["label"] for row in found["per_class"]] == ["a", "b"]
