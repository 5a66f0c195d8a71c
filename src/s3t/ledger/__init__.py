"""The ledger: the durable log of deletions, and what is alive, in one database."""

from s3t.ledger.ledger import Ledger, Transaction
from s3t.ledger.state import Located, RecordRow, SliceState, Snapshot

__all__ = ["Ledger", "Located", "RecordRow", "SliceState", "Snapshot", "Transaction"]
