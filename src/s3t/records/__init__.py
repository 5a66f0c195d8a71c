"""Records: read from what users have, checked against the recipe, kept as one file a slice."""

from s3t.records.ingest import Records, ingest, ingest_inputs, record_ids
from s3t.records.inputs import Inputs
from s3t.records.reading import Data, Table, read_data
from s3t.records.requests import read_requests, requested, requested_names
from s3t.records.slices import (
    SliceContent,
    count_rows,
    read_slice,
    slice_digest,
    slice_path,
    split_into_slices,
    without_records,
    write_slice,
)

__all__ = [
    "Data",
    "Inputs",
    "Records",
    "SliceContent",
    "Table",
    "count_rows",
    "ingest",
    "ingest_inputs",
    "read_data",
    "read_requests",
    "read_slice",
    "record_ids",
    "requested",
    "requested_names",
    "slice_digest",
    "slice_path",
    "split_into_slices",
    "without_records",
    "write_slice",
]
