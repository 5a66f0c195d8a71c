"""sisa (Bourtoule et al. 2021): every stage trains the whole adapter on, or all parameters."""

from __future__ import annotations

from s3t.methods.method import Method, Options
from s3t.methods.one_block import OneBlock, check_options


def sisa(options: Options) -> Method:
    """The method.

    Raises:
        ValueError: an option is not its own.
    """
    check_options("sisa", options)
    return Method(name="sisa", options=options, blocks=OneBlock(), one_order=True)
