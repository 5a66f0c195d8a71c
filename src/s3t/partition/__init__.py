"""Assignment of records to slices: the keyed hash of a subject or record decides its shard and slice. Pure."""

from s3t.partition.assign import Place, place_of
from s3t.partition.secret import Secret

__all__ = ["Place", "Secret", "place_of"]
