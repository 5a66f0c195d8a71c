"""A row that changed outside of s3t is refused where it is read, whichever of its values changed."""

from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import LargeBinary, String, select, update

from s3t.core import Place, Stage
from s3t.errors import IntegrityError
from s3t.ledger import Clone, ExportRow, Ledger, Transaction, schema
from s3t.ledger.rows import CHECKED
from s3t.ledger.state import Checkpoint, NewLabel
from s3t.results.serving import Held, Token, Visit
from tests.ledger.world import PERSON, PLACES, accept, an_export, taking, token

STAGE = Stage(0, (1,))
UNCHECKED = {"sessions", "claims", "durations", "repairs", "depths", "additions"}
"""Open runs, stages in training, times of stages, repairs, depths over time, additions: nothing that is deleted or
answered rests on them."""

READS = {
    "generations": lambda transaction: transaction.history.log(),
    "requests": lambda transaction: transaction.history.request(b"r" * 32),
    "slices": lambda transaction: transaction.snapshot(),
    "labels": lambda transaction: transaction.rows.all(NewLabel),
    "records": lambda transaction: [transaction.records_in(place) for place in PLACES],
    "deleted": lambda transaction: transaction.history.deleted_since(0),
    "erasing_records": lambda transaction: transaction.to_erase(),
    "condemned": lambda transaction: transaction.to_erase(),
    "stages": lambda transaction: transaction.snapshot(),
    "checkpoints": lambda transaction: transaction.rows.all(Checkpoint),
    "clones": lambda transaction: transaction.rows.all(Clone),
    "exports": lambda transaction: transaction.rows.all(ExportRow),
    "withdrawals": lambda transaction: transaction.exports.tainted(),
    "tokens": lambda transaction: transaction.rows.all(Token),
    "visits": lambda transaction: transaction.rows.all(Visit),
    "held": lambda transaction: transaction.rows.all(Held),
    "held_names": lambda transaction: [transaction.held.names_of(held) for held in transaction.rows.all(Held)],
    "admitted": lambda transaction: transaction.held.rates("caller", but=""),
    "notes": lambda transaction: [transaction.rows.note(name) for name in ("changes", "confirmed", "walked")],
}


@pytest.fixture
def full(ledger):
    """A ledger with a row in every table."""
    with ledger.writing() as transaction:
        assert transaction.exports.announce(an_export(), transaction.snapshot())
        transaction.accept([taking(1, 5, request=b"r" * 32)])
        transaction.history.note_request(b"r" * 32, content=b"c" * 32, names=2, deleted=4)
        transaction.touch()
        transaction.note_walked(0)
        transaction.rows.condemn(versions=[(PLACES[0], "2" * 64)])
        transaction.rows.add(Checkpoint(stage=STAGE, stage_key="3" * 64, key="4" * 64, digest="5" * 64, seconds=1.0))
        transaction.rows.add(NewLabel(number=0, label="x", addition=1))
        transaction.rows.insert(schema.clones, [{"path": "/a", "host": "here", "beside": "1 2"}])
        holder = {"name": "caller", "scopes": ("predict",), "per_minute": None}
        transaction.rows.add(Token(digest=b"d" * 32, created_at=0.0, expires_at=60.0, revoked_at=None, **holder))
        transaction.rows.add(Visit(digest=b"v" * 32, token="caller", expires_at=60.0))
        names = {"records": {token(1)}, "subjects": {PERSON}}
        about = {"asked_by": "a", "asked_at": 0.0, "why": "many", "request": b"r" * 32, "content": b"c" * 32}
        transaction.held.add(Held(id="0" * 16, names=2, records=2, **about), **names)
        transaction.held.note_admitted("caller", {0: 3}, mark="m")
    return ledger


def test_every_table_that_decides_something_is_checked():
    assert {table.name for table in CHECKED} == {table.name for table in schema.metadata.sorted_tables} - UNCHECKED
    assert READS.keys() == {table.name for table in CHECKED}
    for table in CHECKED:
        assert list(table.c)[-1].name == "mac"


@pytest.mark.parametrize("table", CHECKED, ids=lambda table: table.name)
def test_a_row_with_another_value_is_refused_where_it_is_read(full, table):
    with full.reading() as transaction:
        READS[table.name](transaction)
        row = transaction.rows.connection.execute(select(table)).all()[-1]
    for column in table.c:
        if (table.name, column.name) in NOT_FOUND:
            continue
        with (
            changed(full, table, row, {column.name: another(column, row._mapping[column.name])}) as transaction,
            pytest.raises(IntegrityError, match=rf"table `{table.name}` changed outside of s3t.*reconcile"),
        ):
            READS[table.name](transaction)


NOT_FOUND = {
    *(("slices", name) for name in Place._fields),  # records name it, which the database sees to
    *(("records", name) for name in Place._fields),
    ("notes", "name"),  # it is not read then, as if it had never been written; the audit finds it
    ("requests", "key"),
}


@contextmanager
def changed(ledger, table, row, values):
    """A transaction that sees a row with other values; it is undone."""
    its = [table.c[key.name] == row._mapping[key.name] for key in table.primary_key]
    with suppress(_UndoneError), ledger.writing() as transaction:
        transaction.rows.connection.execute(update(table).where(*its).values(**values))
        yield Transaction(transaction.rows)
        raise _UndoneError


class _UndoneError(Exception):
    pass


def another(column, value):
    """Another value of a column."""
    if value is None or value == "":
        return b"x" if isinstance(column.type, LargeBinary) else "x" if isinstance(column.type, String) else 1
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    if isinstance(value, str):
        return value[:-1] + chr(ord(value[-1]) ^ 1)
    return 1 - value if column.name == "slice" else value + 1


@pytest.mark.parametrize("column", ["token", "subject"])
def test_a_flipped_bit_in_the_token_of_a_record_or_of_its_subject_is_refused_by_the_request(ledger, column):
    table = schema.records
    asked = {"records": {token(1)}, "subjects": ()} if column == "subject" else {"records": (), "subjects": {PERSON}}
    with ledger.reading() as transaction:
        row = transaction.rows.read(table, table.c.token == token(1))[0]
    with (
        changed(ledger, table, row, {column: another(table.c[column], row._mapping[column])}) as transaction,
        pytest.raises(IntegrityError, match="`records`"),
    ):
        transaction.locate(**asked)


def test_what_is_written_without_the_key_is_refused_unless_the_secret_was_destroyed(ledger, address):
    keyless = Ledger.open(address)
    accept(keyless, taking(3))
    with pytest.raises(IntegrityError, match="changed outside of s3t"):
        ledger.snapshot()
    with keyless.writing() as transaction:
        transaction.history.note_key_destroyed()
    assert ledger.snapshot().generation == 1
    keyless.close()


def test_another_key_makes_other_checks(ledger):
    ledger.check_rows(b"another")
    with pytest.raises(IntegrityError):
        ledger.snapshot(anew=True)
