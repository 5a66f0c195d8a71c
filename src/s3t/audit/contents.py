"""The ledger's rows against the slices' files and the witness, record by record. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from s3t.ledger.damage import Contents
from s3t.ledger.filling import record_rows
from s3t.partition import Place, Secret


def table_problems(contents: Contents) -> Iterator[str]:
    """Tables with rows that are not as they were written."""
    for table, count in sorted(contents.wrong.items()):
        rows = "a row" if count == 1 else f"{count} rows"
        yield f"the ledger's table `{table}` has {rows} that changed outside of s3t; run `s3t reconcile RUN`"


def record_problems(
    place: Place, rows: Mapping[tuple[str, str | None], int], contents: Contents, secret: Secret
) -> Iterator[str]:
    """Differences between a slice's rows and the ledger's records of that slice."""
    in_file = {row.token: row for row in record_rows(place, rows, secret)}
    present, erasing = contents.records.get(place, {}), contents.erasing.get(place, frozenset())
    if unknown := in_file.keys() - present.keys() - erasing:
        yield f"its file holds {len(unknown)} records that the ledger does not know; run `s3t reconcile RUN`"
    if absent := present.keys() - in_file.keys():
        yield f"the ledger knows {len(absent)} records that its file does not hold"
    both = present.keys() & in_file.keys()
    if other := [token for token in both if in_file[token] != present[token]]:
        yield f"the ledger has {len(other)} records with another subject or number of rows than its file"


def witness_problems(contents: Contents, *, earlier: Collection[bytes], later: Collection[bytes]) -> Iterator[str]:
    """Differences between the ledger and the witness, as it was before and after the ledger was read."""
    if unknown := set(earlier) - contents.deleted:
        yield f"the memory of deletions has {len(unknown)} names that the ledger does not know as deleted"
    if lost := contents.deleted - set(later):
        yield (
            f"the memory of deletions lacks {len(lost)} names that the ledger knows as deleted; run "
            "`s3t reconcile RUN`, which notes them again"
        )
