"""Each transaction of a deletion and of an approval is refused once: the error says whether records are out of use."""

import itertools
from contextlib import contextmanager

import pytest

import s3t
from s3t.deletion.holding import Limits
from s3t.errors import StorageError
from s3t.ledger.ledger import Ledger
from testing import tiny

SAID = {True: ("out of use already", "approved already"), False: ("nothing was changed", "approved already")}


@pytest.fixture(scope="module")
def made(text_model, tmp_path_factory):
    """A run without stages, with a request that waits for approval."""
    path = tmp_path_factory.mktemp("made") / "run"
    with s3t.Run.create(path, recipe=tiny.recipe(text_model), data=tiny.text_table()) as run:
        limits = Limits(records=0, share=None)
        run.approvals.admit(records=["r3"], subjects=[], key=None, strict=False, caller="app", limits=limits)
    return path


def deletes(run, held):
    run.delete(records=["r3"])


def approves(run, held):
    run.approvals.approve(held.id, by="ops")


@contextmanager
def refusing(number):
    """The ledger refuses one transaction; whether it came to that. As in PostgreSQL, every state is read anew."""
    counter, transaction = itertools.count(), Ledger._transaction

    @contextmanager
    def counted(self, **options):
        if next(counter) == number:
            raise StorageError("the ledger refused (the connection is lost)", remedy="see that the database answers")
        with transaction(self, **options) as connection:
            yield connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("s3t.ledger.presence.POLL_SECONDS", 3600.0)
        patch.setattr(Ledger, "version", lambda self: None)
        patch.setattr(Ledger, "_transaction", counted)
        yield lambda: next(counter) > number


@pytest.mark.parametrize("verb", [deletes, approves])
def test_a_refusal_at_any_transaction_says_what_is_so(made, tmp_path, verb, monkeypatch):
    for number in itertools.count():
        monkeypatch.setenv("S3T_STATE", str(tmp_path / f"state-{number}"))
        folder = tiny.copy_run(made, tmp_path / f"run-{number}")
        told = ""
        with s3t.Run.open(folder) as run:
            (held,) = run.approvals.waiting()
            with refusing(number) as reached:
                try:
                    verb(run, held)
                except StorageError as error:
                    told = str(error)
                came = reached()
            accepted = any(entry.records for entry in run.log())
        assert accepted or told
        if told:
            assert any(said in told for said in SAID[accepted]), (number, told)
        elif not came:
            break
    assert number > 10
