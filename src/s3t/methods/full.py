"""full: one stage, on the one slice of the one shard."""

from __future__ import annotations

from s3t.methods.method import Method, Options
from s3t.methods.one_block import OneBlock, check_options


def full(options: Options) -> Method:
    """The method.

    Raises:
        ValueError: an option is not its own.
    """
    check_options("full", options)
    return Method(name="full", options=options, blocks=OneBlock(), one_order=True, one_slice=True)
