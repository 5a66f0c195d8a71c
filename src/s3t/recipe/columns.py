"""The columns of the data, by role."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from s3t.recipe.part import Part
from s3t.recipe.template import is_template, template_columns, templates

_TEXTS = ("text", "text_pair", "prompt", "completion")
"""Roles that may be templates."""


class Columns(Part):
    """Columns of the data, by role."""

    label: str = "label"
    """The column of the label: a name of the label set; a list of them (multi-label tasks), one a word (token tasks);
    or a number (regression)."""
    delimiter: str | None = Field(default=None, min_length=1)
    """Separator of labels, words or tags, where columns of multi-label and token tasks hold text, not lists."""
    id: str | None = None
    """The column of the record's id, unique. Without one, the id is the hash of content and subject, and
    identical rows share it and leave together."""
    subject: str | None = None
    """The column of the person whose record it is. All records of a subject lie in one slice."""
    text: str | None = None
    """The column of the text (text tasks, language models), or a template of several: {premise} What was the
    {question}? Token tasks: the column of the lists of words."""
    text_pair: str | None = None
    """Column of the second text, or a template, where the input is a pair (text tasks)."""
    prompt: str | list[str] | None = None
    """Language models: the column of the prompt, or a template of several; or several templates, of which each record
    takes the first whose columns are filled."""
    completion: str | None = None
    """Language models: the column of the completion, or a template of several."""
    messages: str | None = None
    """Language models: the column of the chat: a list of messages, each with role and content, or such a list as
    JSON."""
    image: str | None = None
    """The column of the image: encoded bytes, a Hugging Face image, or a path beside the data file (image tasks)."""

    @field_validator("text", "text_pair", "prompt", "completion")
    @classmethod
    def _is_template(cls, value: str | list[str] | None) -> str | list[str] | None:
        for template in templates(value):
            template_columns(template)
        if value == []:
            raise ValueError("is an empty list; give at least one template")
        return value

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        taken: dict[str, str] = {}
        of_text = {"text", "text_pair"}, {"prompt", "completion"}
        mixed = any(is_template(one) for role in _TEXTS for one in templates(getattr(self, role)))
        for role, columns in self.named().items():
            for column in columns:
                other = taken.setdefault(column, role)
                may_share = mixed and {other, role} in of_text
                if other != role and not may_share:
                    raise ValueError(f"{other} and {role} both name the column {column!r}")
        return self

    def named(self) -> dict[str, tuple[str, ...]]:
        """Role to the columns that it is read from, for the roles that are given."""
        given = {role: value for role, value in self.model_dump(exclude={"delimiter"}).items() if value is not None}
        columns = {role: (value,) for role, value in given.items() if role not in _TEXTS}
        texts = {
            role: tuple(dict.fromkeys(name for one in templates(value) for name in template_columns(one)))
            for role, value in given.items()
            if role in _TEXTS
        }
        return {role: (columns | texts)[role] for role in given}
