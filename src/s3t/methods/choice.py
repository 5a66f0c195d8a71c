"""The methods there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from s3t.methods.full import full
from s3t.methods.method import Method, Options
from s3t.methods.protosisa import protosisa
from s3t.methods.s3t import s3t
from s3t.methods.sisa import sisa

METHODS: Mapping[str, Callable[[Options], Method]] = {"s3t": s3t, "sisa": sisa, "protosisa": protosisa, "full": full}
"""Constructors of methods, by name."""


def method_named(name: str, options: Options = Options()) -> Method:  # noqa: B008 - frozen
    """The method of a name.

    Raises:
        ValueError: an option is not its own.
        KeyError: there is no such method.
    """
    return METHODS[name](options)
