"""The ledger: the durable log of deletions, and what is alive, in one database."""

from s3t.ledger.address import Address, PostgresAddress
from s3t.ledger.committing import Trained
from s3t.ledger.held import Held
from s3t.ledger.ledger import Ledger
from s3t.ledger.repairs import Repair
from s3t.ledger.sessions import Session
from s3t.ledger.state import (
    Acceptance,
    Clone,
    ExportRow,
    Located,
    RecordRow,
    SliceState,
    Snapshot,
    ToErase,
)
from s3t.ledger.tokens import Token
from s3t.ledger.transaction import Transaction

__all__ = [
    "Acceptance",
    "Address",
    "Clone",
    "ExportRow",
    "Held",
    "Ledger",
    "Located",
    "PostgresAddress",
    "RecordRow",
    "Repair",
    "Session",
    "SliceState",
    "Snapshot",
    "ToErase",
    "Token",
    "Trained",
    "Transaction",
]
