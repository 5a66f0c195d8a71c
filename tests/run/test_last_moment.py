"""A deletion that comes at the last moment of a computation, whichever: when all is computed, and nothing has left yet.

Nobody looks at the ledger by himself here, so that what a computation asks before it ends is all that can notice.
"""

import threading
from contextlib import ExitStack, suppress

import pytest

import s3t
from s3t.core import Place, Stage
from s3t.errors import OvertakenError
from s3t.prediction.generation import Continuation, Sampling, TextBatch
from s3t.run.workshop import Workshop
from s3t.run.writer import Writer
from testing import tiny
from testing.language import language_recipe, make_language_model, prompt_table
from testing.roles import roles
from tests.run.worlds import trained_run
from tests.slice_files import read_slice

PROMPT = "w1 w2"
HOW = {"max_new_tokens": 5, "temperature": 2.0, "seed": 3}
CHAIN = {
    "partition": {"shards": 1, "slices": 3},
    "sequences": {"budget": 1},
    "training": {"epochs": 1, "batch_size": 60},
}


@pytest.fixture(scope="module")
def folders(state_of_all, text_model, tmp_path_factory):
    """Runs of one chain of three slices: a classifier, with prototypes beside it, and a language model."""
    folder = tmp_path_factory.mktemp("last")
    protosisa = tiny.recipe(text_model, **CHAIN, prediction={"batch_size": 4, "prototypes_alone": True})
    protosisa |= {"method": {"name": "protosisa"}, "sequences": {}}
    trained_run(folder / "classifier", protosisa, tiny.text_table()).close()
    trained_run(
        folder / "language", language_recipe(make_language_model(folder / "model"), **CHAIN), prompt_table()
    ).close()
    return folder


@pytest.fixture
def open_run(folders, tmp_path, monkeypatch):
    """A function that opens a run twice: the second time as another process has it, which waits for nobody."""
    monkeypatch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
    with ExitStack() as opened:

        def open_twice(name):
            path = tiny.copy_run(folders / name, tmp_path / name)
            run, other = (opened.enter_context(s3t.Run.open(path)) for _ in range(2))
            roles(other).deleter.patience = 0.0
            return run, other

        yield open_twice


def record_of(run, index):
    return read_slice(run.path / "slices", Place(0, index), roles(run).secret).rows["record"].to_pylist()[0]


def once_at_the_end(monkeypatch, name, act, *, of=None):
    """Let something happen when a method of the workshop, or a batch's `step`, has computed all, the first time; of one
    stage, if given."""
    place = TextBatch if name in ("step", "likelihoods") else Workshop
    function, done = getattr(place, name), []

    def computing(self, *args, **named):
        found = function(self, *args, **named)
        ended = found and not self.open if name == "step" else of in (None, args[0])
        if ended and not done:
            done.append(True)
            act()
        return found

    monkeypatch.setattr(place, name, computing)
    return done


def of_answer(answer):
    return answer.generation, answer.members, answer.logits.tolist()


def held(run):
    with run.hold([PROMPT]) as pending:
        assert pending.may_leave()
        return of_answer(pending.predictions[0])


def in_turns(run):
    """A text that is written in turns, and begun again as a server does."""
    while True:
        batch, texts = run.parts.writer.hold(run.parts.writer.checked([PROMPT]), Sampling(**HOW))
        with texts, suppress(OvertakenError):
            found, finished = [], False
            while not finished:
                ((_, pieces, finished),) = batch.turn(0)
                found += [piece.added for piece in pieces]
            if texts.may_leave():
                return texts.generation, found


def likelihoods(run):
    return [one.log_probability for one in run.parts.writer.likelihoods([Continuation([5, 6, 7], [8, 9])])]


COMPUTATIONS = {
    "a small batch": ("classifier", "logits", lambda run: of_answer(run.predict([PROMPT]))),
    "several batches": ("classifier", "logits", lambda run: of_answer(run.predict([PROMPT] * 9))),
    "an evaluation": ("classifier", "logits", lambda run: run.evaluate(tiny.text_table(6)).to_json()),
    "held answers": ("classifier", "logits", held),
    "texts": ("language", "step", lambda run: run.generate([PROMPT], **HOW).to_json()),
    "texts in turns": ("language", "step", in_turns),
    "continued texts": (
        "language",
        "step",
        lambda run: (
            run.parts.writer.continued([([5, 6], Sampling(**HOW)), ([5, 6], Sampling())]),
            run.status().generation,
        ),
    ),
    "a comparison": ("language", "step", lambda run: run.evaluate(prompt_table(4), write=2).to_json()),
    "scores of texts": ("language", "logits", lambda run: of_answer(run.score(prompt_table(4)))),
    "likelihoods": ("language", "likelihoods", likelihoods),
}


@pytest.mark.parametrize("computation", COMPUTATIONS)
def test_what_is_computed_is_computed_again(open_run, computation, monkeypatch):
    name, method, ask = COMPUTATIONS[computation]
    run, other = open_run(name)
    before = ask(run)
    record = record_of(run, 2)
    done = once_at_the_end(monkeypatch, method, lambda: other.delete(records=[record]))
    after = ask(run)
    assert done
    assert after == ask(other) != before


def test_texts_of_several_settings_are_all_of_one_state(open_run, monkeypatch):
    settings = [Sampling(max_new_tokens=20, temperature=1.5, seed=seed) for seed in (1, 2)]

    def ask(run):
        return run.parts.writer.continued([([5, 6], each) for each in settings])

    run, other = open_run("language")
    before = ask(run)
    record = record_of(run, 2)
    usual, deleted = Writer._write, []

    def writing(writer, state, asked, progress):
        written = usual(writer, state, asked, progress)
        if settings[1] in asked and not deleted:
            deleted.append(other.delete(records=[record]))
        return written

    monkeypatch.setattr(Writer, "_write", writing)
    after = ask(run)
    assert after == ask(other)
    assert after[0] != before[0]


def test_prototypes_that_answer_alone_are_asked_again(open_run, monkeypatch):
    """Of several slices: their classifier is no stage of the ledger, and its slices' prototypes are."""
    run, other = open_run("classifier")
    other.delete(records=[record_of(run, 0)])
    before = of_answer(run.predict([PROMPT] * 9))
    record = record_of(run, 2)
    once_at_the_end(monkeypatch, "logits", lambda: other.delete(records=[record]))
    after = run.predict([PROMPT] * 9)
    assert [member.kind for member in after.members] == ["prototypes"]
    assert of_answer(after) == of_answer(other.predict([PROMPT] * 9)) != before


STAGES = pytest.mark.parametrize("stage", [Stage(0, (0, 1, 2)), Stage(0, (2,), "prototypes")], ids=str)


@STAGES
def test_what_is_trained_is_thrown_away(open_run, stage, monkeypatch):
    run, other = open_run("classifier")
    other.delete(records=[record_of(run, 2)])
    record = record_of(run, 2)
    once_at_the_end(monkeypatch, "train", lambda: other.delete(records=[record]), of=stage)
    report = run.train()
    assert report.discarded == 1
    assert stage in report.stages  # trained once more
    assert run.audit().ok


@STAGES
def test_what_an_audit_trains_again_is_not_reported(open_run, stage, monkeypatch):
    run, other = open_run("classifier")
    record = record_of(run, 2)
    once_at_the_end(monkeypatch, "train", lambda: other.delete(records=[record]), of=stage)
    report = run.audit(replay=100)
    assert report.mismatches == ()
    assert stage not in report.replayed
    assert Stage(0, (0,)) in report.replayed


def test_a_part_of_a_text_that_a_slow_reader_has_not_taken_does_not_leave_any_more(open_run, monkeypatch):
    """Another thread has written all of it; the deletion is effective, for nothing computes with what it took."""
    run, other = open_run("language")
    record, written = record_of(run, 2), threading.Event()
    once_at_the_end(monkeypatch, "step", written.set)
    parts = run.stream(PROMPT, **HOW)
    next(parts)
    assert written.wait(30)
    for thread in threading.enumerate():
        if thread.name == "s3t-write":
            thread.join(30)
    other.delete(records=[record])
    roles(run).presence.look()
    assert other.log()[-1].state in ("effective", "erased")
    with pytest.raises(OvertakenError):
        next(parts)
