"""Types of columns: what a column of a type may hold, and the type in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa


def is_text(kind: pa.DataType) -> bool:
    """True if a column of that type holds text, or only nulls."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(test(kind) for test in tests)


def may_be_names(kind: pa.DataType) -> bool:
    """True if a column of that type may hold ids or subjects."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return is_text(kind) or bool(pa.types.is_integer(kind))


def may_be_categories(kind: pa.DataType) -> bool:
    """True if a column of that type may hold labels or groups. These are declared, so 1.0 can only mean 1."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return may_be_names(kind) or bool(pa.types.is_boolean(kind) or pa.types.is_floating(kind))


def may_be_lists(kind: pa.DataType) -> bool:
    """True if a column of that type may hold lists of labels, or text to split into labels."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return may_be_categories(kind.value_type)
    return is_text(kind)


def may_be_chats(kind: pa.DataType) -> bool:
    """True if a column of that type may hold chats: lists of mappings, or their JSON."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return bool(pa.types.is_struct(kind.value_type) or pa.types.is_null(kind.value_type))
    return is_text(kind)


def may_be_numbers(kind: pa.DataType) -> bool:
    """True if a column of that type may hold the numbers of a regression."""
    return may_be_names(kind) or bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


_KINDS: tuple[tuple[Callable[[pa.DataType], Any], str], ...] = (
    (pa.types.is_floating, "floating-point numbers"),
    (pa.types.is_decimal, "decimal numbers"),
    (pa.types.is_integer, "whole numbers"),
    (pa.types.is_boolean, "true and false"),
    (pa.types.is_temporal, "dates or times"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
    (pa.types.is_list, "lists"),
    (pa.types.is_large_list, "lists"),
    (pa.types.is_nested, "mappings"),
)


def type_in_words(kind: pa.DataType) -> str:
    """Content of a column of that type, in words: a mapping's type would name its keys.

    >>> type_in_words(pa.float64()), type_in_words(pa.struct({"key": pa.string()}))
    ('floating-point numbers', 'mappings')
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return next((words for test, words in _KINDS if test(kind)), "values of another kind")
