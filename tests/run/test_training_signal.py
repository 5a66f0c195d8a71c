"""What training tells: losses by stage and epoch; the same bytes with a listener as without; no loss in any file."""

import math
import struct

import numpy as np
import pytest

import s3t
from s3t.run.workshop import Workshop
from testing import tiny
from tests.run.meanwhile import Meanwhile
from tests.run.worlds import records_by_slice

RATE_OF_NOTHING = 1e-30


def small(model, *, budget=2, training=(), **changes):
    """A recipe of one shard of three slices in two orders: six stages."""
    training = {"epochs": 3, "threads": 1} | dict(training)
    sequences = {"budget": budget}
    return tiny.recipe(model, partition={"shards": 1}, sequences=sequences, training=training, **changes)


@pytest.fixture(scope="module")
def listened(text_model, tmp_path_factory, state_of_all):
    """A run that was trained with a listener, the listener, and the report."""
    ear = Meanwhile()
    folder = tmp_path_factory.mktemp("listened") / "run"
    with s3t.Run.create(folder, recipe=small(text_model), data=tiny.text_table()) as run:
        yield run, ear, run.train(progress=ear)


def test_every_stage_tells_its_start_its_epochs_and_its_end(listened):
    _, ear, report = listened
    assert (type(ear.events[0]), ear.events[-1]) == (s3t.WorkStart, s3t.WorkEnd())
    assert ear.events[1] == s3t.TrainingStart(stages=6)
    told = {}
    for event in ear.heard(s3t.StageStart, s3t.EpochEnd, s3t.StageEnd):
        told.setdefault(event.stage, []).append(event)
    assert tuple(told) == report.stages
    for first, *epochs, last in told.values():
        assert (type(first), type(last)) == (s3t.StageStart, s3t.StageEnd)
        assert [(event.epoch, event.epochs) for event in epochs] == [(1, 3), (2, 3), (3, 3)]
        assert {event.records for event in epochs} == {first.records}
        assert last.losses == tuple(event.loss for event in epochs)
        assert last.steps == 3 * math.ceil(first.records / 4)
        assert 0 < sum(event.seconds for event in epochs) <= last.seconds
    assert sum(event.count for event in ear.heard(s3t.WorkStep)) == sum(
        event.records for event in ear.heard(s3t.EpochEnd)
    )


def test_the_report_has_the_end_of_every_stage_and_so_has_its_document(listened):
    _, ear, report = listened
    ends = ear.heard(s3t.StageEnd)
    assert report.stages == tuple(end.stage for end in ends)
    assert [(one.losses, one.steps) for one in report.summaries] == [(end.losses, end.steps) for end in ends]
    first, told = report.summaries[0], report.to_json()["summaries"][0]
    assert (told["prefix"], told["steps"]) == (list(first.stage.prefix), first.steps)
    assert told["losses"] == list(first.losses)
    assert told["losses"][-1] < told["losses"][0]  # it learns


def test_a_listener_changes_no_byte_of_any_artifact(listened, text_model, tmp_path):
    run, _, _ = listened
    with s3t.Run.create(tmp_path / "run", recipe=small(text_model), data=tiny.text_table()) as silent:
        silent.train()
    assert tiny.artifacts(run.path) == tiny.artifacts(silent.path)


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_the_loss_is_the_mean_over_records_whatever_batches_they_were_in(text_model, tmp_path, task):
    """Where nothing is learnt, every epoch has the loss of the model as it answers; the last batch is short."""
    table = tiny.text_table()
    training = {"learning_rate": RATE_OF_NOTHING, "batch_size": 5, "epochs": 2}
    recipe = small(text_model, budget=1, training=training)
    if task == "numbers":
        table["label"] = np.arange(len(table)) / 7
        recipe = recipe | {"task": "text-regression", "labels": None}
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        summaries = run.train().summaries
        slices = records_by_slice(recipe, table)
        assert any(len(records) > 5 and len(records) % 5 for records in slices.values())
        for end in summaries[:2]:
            records = table[table.id.isin([record for index in end.stage.prefix for record in slices[0, index]])]
            answers = run.predict(records.drop(columns="label"), prefixes=[(0, end.stage.prefix)])
            if task == "numbers":
                expected = np.mean((np.array(answers.predicted) - records.label.to_numpy()) ** 2)
            else:
                right = [run.labels.index(label) for label in records.label]
                expected = -np.mean(np.log(answers.probabilities[np.arange(len(right)), right]))
            assert end.losses == pytest.approx([expected] * 2, rel=1e-4)


@pytest.mark.parametrize("method", ["protosisa", "full"])
def test_what_has_no_loss_has_no_epochs_and_what_is_trained_has(text_model, tmp_path, method):
    one = {"slices": 1} if method == "full" else {"slices": 2}
    recipe = small(text_model, method=method) | {"partition": {"shards": 1, "salt": tiny.SALT, **one}, "sequences": {}}
    ear = Meanwhile()
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        report = run.train(progress=ear)
    kinds = [stage.kind for stage in report.stages]
    assert kinds.count("prototypes") == (2 if method == "protosisa" else 0)
    for start, end in zip(ear.heard(s3t.StageStart), report.summaries, strict=True):
        epochs = 0 if end.stage.kind == "prototypes" else 3
        assert (start.epochs, len(end.losses), end.steps > 0) == (epochs, epochs, epochs > 0)
        assert start.records > 0


def test_a_prefix_without_records_has_no_loss_and_its_children_have(text_model, tmp_path):
    recipe = small(text_model)
    table = tiny.text_table()
    alone = records_by_slice(recipe, table)[0, 1]
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table[table.id.isin(alone)]) as run:
        losses = {end.stage.prefix: end.losses for end in run.train().summaries}
    for prefix, told in losses.items():
        assert len(told) == (3 if 1 in prefix else 0)
        assert all(map(math.isfinite, told))


def test_a_loss_that_is_no_number_is_null_in_the_document(listened):
    _, _, report = listened
    end = report.summaries[0].model_copy(update={"losses": (math.inf, 0.5)})
    assert report.model_copy(update={"summaries": (end,)}).to_json()["summaries"][0]["losses"] == [None, 0.5]


def files_with_a_loss(run, state, losses):
    """Files of the run, and of what is remembered outside of it, in which a loss is found as text or as a number."""
    packed = [struct.pack(form, loss) for loss in losses for form in ("<d", ">d")]
    wanted = [*packed, *(f"{loss:.7f}"[:7].encode() for loss in losses)]
    files = [path for folder in (run.path, state) for path in folder.rglob("*") if path.is_file()]
    assert run.path / "run.json" in files
    return {path for path in files if any(form in path.read_bytes() for form in wanted)}


def test_no_file_keeps_a_loss(listened, state):
    run, ear, _ = listened
    losses = [event.loss for event in ear.heard(s3t.EpochEnd)]
    assert len(set(losses)) == 18
    assert files_with_a_loss(run, state, losses) == set()
    assert not [path for path in run.path.rglob("*") if "log" in path.suffix]


@pytest.mark.integration
@pytest.mark.parametrize("where", ["manifest", "log"])
def test_a_loss_that_somebody_keeps_is_found(text_model, tmp_path, state, monkeypatch, where):
    """The mistakes: a manifest that says how well training went; a log beside the artifacts."""
    train = Workshop.train

    def noting(self, stage, snapshot, progress, *further):
        losses = []

        def hear(event):
            if isinstance(event, s3t.WorkStep) and event.loss is not None:
                losses.append(event.loss)
            progress(event)

        key, content, manifest = train(self, stage, snapshot, hear, *further)
        if where == "manifest":
            noted = manifest.environment | {"loss": str(losses)}
            return key, content, manifest.model_copy(update={"environment": noted})
        with (tmp_path / "run" / "curve.csv").open("a") as file:
            file.write(f"{losses}\n")
        return key, content, manifest

    monkeypatch.setattr(Workshop, "train", noting)
    ear = Meanwhile()
    with s3t.Run.create(tmp_path / "run", recipe=small(text_model), data=tiny.text_table()) as run:
        run.train(progress=ear)
        found = files_with_a_loss(run, state, [event.loss for event in ear.heard(s3t.EpochEnd)])
    assert {path.suffix for path in found} == {".json" if where == "manifest" else ".csv"}
