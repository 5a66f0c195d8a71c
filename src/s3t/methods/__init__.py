"""Methods: what each stage trains, and which stages make up a model. One object each. Pure."""

from collections.abc import Callable, Mapping

from s3t.methods.method import Blocks, Declared, Method, Options, Trainable
from s3t.methods.one_block import of_one_block
from s3t.methods.s3t import s3t

METHODS: Mapping[str, Callable[[Options], Method]] = {
    "s3t": s3t,
    # Bourtoule et al. 2021: every stage trains the whole adapter on, or all parameters.
    "sisa": of_one_block("sisa"),
    # Yan et al. 2022: sisa, and beside it class means of the base model's features.
    "protosisa": of_one_block("protosisa", has_prototypes=True),
    # One stage, on the one slice of the one shard.
    "full": of_one_block("full", one_slice=True),
}
"""Constructors of methods, by name."""


def method_named(name: str, options: Options = Options()) -> Method:  # noqa: B008 - frozen
    return METHODS[name](options)


__all__ = ["METHODS", "Blocks", "Declared", "Method", "Options", "Trainable", "method_named"]
