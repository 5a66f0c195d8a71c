"""What the ledger has lost is found in the slices, before a request is answered by it; and is mended from them."""

import shutil

import pytest

import s3t
from s3t.core import Secret
from s3t.deletion import protocol
from s3t.ledger import schema
from testing import tiny
from testing.roles import roles
from tests.deletion.runs import names_left, patient_copy

SECRET = Secret(salt=tiny.SALT)


def token(kind, name):
    return SECRET.token("ledger", kind, name)


@pytest.fixture(scope="module")
def made(text_model, tmp_path_factory):
    """A run without stages; p0 has r0, r8, r16."""
    path = tmp_path_factory.mktemp("made") / "run"
    recipe = tiny.recipe(text_model, columns={"subject": "person"})
    s3t.Run.create(path, recipe=recipe, data=tiny.text_table(subjects=8)).close()
    return path


@pytest.fixture
def run(made, tmp_path):
    tiny.copy_run(made, tmp_path / "run")
    return tmp_path / "run"


def places_of(run, content):
    """Where in the ledger's file the last byte of some bytes is: in the table, and in each index."""
    data, places, start = (run / "ledger.sqlite").read_bytes(), [], 0
    while (start := data.find(content, start)) >= 0:
        places.append(start + len(content) - 1)
        start += 1
    return places


def flip(run, byte):
    """Flip the last bit of a byte of the ledger's file."""
    data = bytearray((run / "ledger.sqlite").read_bytes())
    data[byte] ^= 1
    (run / "ledger.sqlite").write_bytes(data)


def answer(run, **names):
    """What a request is answered, or the message with which it is refused."""
    with s3t.Run.open(run) as opened:
        try:
            return opened.delete(**names)
        except s3t.IntegrityError as error:
            return str(error)


@pytest.mark.parametrize(
    ("content", "asked", "wanted"),
    [
        (token("record", "r0"), {"records": ["r0"]}, {"r0"}),
        (token("record", "r8"), {"subjects": ["p0"]}, {"r0", "r8", "r16"}),
        (token("subject", "p0"), {"subjects": ["p0"]}, {"r0", "r8", "r16"}),
    ],
    ids=["of a record", "of a record of a subject", "of a subject"],
)
def test_a_flipped_bit_in_a_token_leaves_no_deletion_incomplete(content, asked, wanted, made, run, state):
    """Wherever the token stands, in the table or in an index: the request does all, or is refused and changes nothing,
    and `reconcile` mends the ledger, so that it then does all."""
    places, refused = places_of(run, content), 0
    assert len(places) in (2, 6)  # in the table and in one index; a subject's three times each
    for byte in (places[0], places[-1]):
        shutil.rmtree(run)
        tiny.copy_run(made, run)
        for noted in state.iterdir():
            noted.unlink()
        flip(run, byte)
        with s3t.Run.open(run) as opened:
            assert not opened.audit().ok
        before = names_left(run)
        found = answer(run, **asked)
        if isinstance(found, str):
            refused += 1
            assert "s3t reconcile" in found
            assert names_left(run) == before
            s3t.Run.reconcile(run)
            found = answer(run, **asked)
        assert found.deleted == len(wanted)
        assert names_left(run) == before - wanted
    assert refused > 0


def test_a_table_that_has_a_row_twice_is_refused_and_left_alone(run):
    """No index can be made anew from it; "free space", which the database's error was taken for, is no remedy."""
    data, (last, _) = bytearray((run / "ledger.sqlite").read_bytes()), places_of(run, token("record", "r1"))
    data[last - 31 : last + 1] = token("record", "r0")
    (run / "ledger.sqlite").write_bytes(data)
    with pytest.raises(s3t.IntegrityError, match=r"UNIQUE constraint") as refused:
        s3t.Run.reconcile(run)
    assert "nothing was changed. Put the ledger back from a backup" in " ".join(str(refused.value).split())


def test_a_lost_row_is_no_unknown_record(run):
    """As a damaged page would lose it: no check fails, for there is nothing to check."""
    with s3t.Run.open(run) as opened:
        lose(opened, "r0")
        for ask in (opened.delete, opened.locate):
            for names in ({"records": ["r0"]}, {"subjects": ["p0"]}):
                with pytest.raises(s3t.IntegrityError, match=r"lies in a slice's file.*s3t reconcile"):
                    ask(**names)
        assert opened.delete(records=["r1", "no such record"]).unknown == ("no such record",)
        assert any("does not know" in found["problem"] for found in opened.audit().mismatches)
    assert s3t.Run.reconcile(run).rows == 1
    with s3t.Run.open(run) as opened:
        assert opened.audit().ok
        assert opened.delete(subjects=["p0"]).deleted == 3


def lose(opened, *names):
    """Rows of records vanish."""
    table = schema.records
    with roles(opened).ledger.writing() as transaction:
        lost = table.c.token.in_([token("record", name) for name in names])
        transaction.rows.connection.execute(table.delete().where(lost))


def test_a_slice_that_cannot_be_read_is_named_where_a_name_is_unknown(run):
    for path in run.glob("slices/*/*.parquet"):
        path.write_bytes(b"no Parquet")
    with s3t.Run.open(run) as opened:
        (found,) = opened.locate(records=["no such record"])
        assert (found.state, len(found.unreadable)) == ("unknown", 6)
        assert opened.delete(records=["no such record"]).unreadable == found.unreadable
        (found,) = opened.locate(subjects=["nobody"])
        assert len(found.unreadable) == 1  # no other could hold it
        (found,) = opened.locate(records=["r0"])
        assert (found.state, found.unreadable) == ("present", ())


def test_what_waits_in_its_slice_is_deleted_and_not_lost(made, tmp_path):
    with s3t.Run.open(patient_copy(made, tmp_path / "run")) as run:
        run.delete(records=["r0"])
        assert "r0" in names_left(run.path)
        assert run.delete(records=["r0"]).already == ("r0",)
        assert run.delete(subjects=["p0"]).deleted == 2
        assert run.delete(subjects=["p0"]).already == ("p0",)
        assert [found.state for found in run.locate(records=["r0"], subjects=["p0"])] == ["effective"] * 2
        assert run.audit().ok


def test_a_person_and_one_of_their_records_in_one_request(run, monkeypatch):
    monkeypatch.setattr(protocol, "BATCH_NAMES", 1)
    with s3t.Run.open(run) as opened:
        report = opened.delete(records=["r3"], subjects=["p3"])
        assert (report.deleted, report.already, report.unknown) == (3, (), ())
        assert opened.delete(subjects=["p3"]).already == ("p3",)


def test_names_are_looked_for_in_the_slices_that_their_group_may_lie_in(text_model, tmp_path):
    table = tiny.text_table().assign(country=["x", "y"] * 12)
    group = {"column": "country", "slices": {"x": [0], "y": [1, 2]}, "deletion": {"x": 0.5, "y": 0.1}}
    recipe = tiny.recipe(text_model, partition={"group": group})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        lose(run, "r0", "r1")
        for name in ("r0", "r1"):
            with pytest.raises(s3t.IntegrityError, match="lies in a slice's file"):
                run.delete(records=[name])


def test_a_wrong_row_of_a_record_is_written_anew_from_its_slice_and_of_another_table_refused(run):
    with s3t.Run.open(run) as opened, roles(opened).ledger.writing() as transaction:
        changed = schema.records.update().where(schema.records.c.token == token("record", "r0"))
        transaction.rows.connection.execute(changed.values(copies=6, subject=b"x" * 32))
    assert s3t.Run.reconcile(run).rows == 1
    with s3t.Run.open(run) as opened:
        assert opened.delete(records=["r0"]).deleted == 1
        with roles(opened).ledger.writing() as transaction:
            transaction.rows.connection.execute(schema.deleted.update().values(generation=77))
    before = names_left(run)
    with pytest.raises(s3t.IntegrityError, match="table `deleted` are damaged"):
        s3t.Run.reconcile(run)
    assert names_left(run) == before
