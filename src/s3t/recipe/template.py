"""Texts that are put together from several columns: `{sentence1} What does {word} mean?`

A text without braces is the name of one column. Braces that belong to the text are doubled.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter


def template_columns(text: str) -> tuple[str, ...]:
    """The columns that a template takes its parts from, or the one that a plain name names.

    >>> template_columns("question"), template_columns("{passage} {question}")
    (('question',), ('passage', 'question'))
    """
    if not is_template(text):
        return (text,)
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is no template ({error}); double a brace that belongs to the text") from None
    names = []
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name.strip() or form or conversion or set(name) & set(".[]"):
            raise ValueError(f"{text!r} is no template: between braces there is the name of a column and nothing else")
        names.append(name)
    if not names:
        raise ValueError(f"{text!r} is a template without a column; name one between braces")
    return tuple(dict.fromkeys(names))


def templates(text: str | list[str] | None) -> tuple[str, ...]:
    """The templates of a field that takes one or several; none where it is left out."""
    return () if text is None else (text,) if isinstance(text, str) else tuple(text)


def is_template(text: str) -> bool:
    """True if a text is a template rather than the name of a column."""
    return "{" in text or "}" in text


def filled(text: str, values: Mapping[str, str]) -> str:
    """A template with its columns' values in place.

    >>> filled("{premise} What was the {question}?", {"premise": "It rained.", "question": "effect"})
    'It rained. What was the effect?'
    """
    return "".join(
        literal + (values[name] if name is not None else "") for literal, name, _, _ in Formatter().parse(text)
    )
