"""The ledger: the durable log of deletions, and what is alive, in one database."""

from s3t.ledger.engines import Address, PostgresAddress
from s3t.ledger.ledger import Ledger
from s3t.ledger.state import (
    Acceptance,
    Clone,
    DepthChange,
    ExportRow,
    Incoming,
    Located,
    RecordRow,
    Session,
    SliceState,
    Snapshot,
    ToErase,
    Trained,
)
from s3t.ledger.transaction import Transaction
