"""Records: read from what users have, checked against the recipe, kept as one file a slice."""

from s3t.records.ingest import Records, ingest, ingest_inputs, record_ids
from s3t.records.inputs import Inputs
from s3t.records.reading import Data, read_data
from s3t.records.requests import read_requests, requested, requested_names
from s3t.records.slices import Slices, count_copies, slice_digest, split_into_slices, version_name, without_records

__all__ = [
    "Data",
    "Inputs",
    "Records",
    "Slices",
    "count_copies",
    "ingest",
    "ingest_inputs",
    "read_data",
    "read_requests",
    "record_ids",
    "requested",
    "requested_names",
    "slice_digest",
    "split_into_slices",
    "version_name",
    "without_records",
]
