"""protosisa (Yan et al. 2022): sisa, and beside it class means of the base model's features."""

from __future__ import annotations

from s3t.methods.method import Method, Options
from s3t.methods.one_block import OneBlock, check_options


def protosisa(options: Options) -> Method:
    """The method.

    Raises:
        ValueError: an option is not its own.
    """
    check_options("protosisa", options)
    return Method(name="protosisa", options=options, blocks=OneBlock(), one_order=True, has_prototypes=True)
