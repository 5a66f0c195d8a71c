"""Names in a request, in the form in which the run keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from s3t.records import requested
from s3t.records.names import forms_of
from s3t.run.parts import Parts


def names_asked(
    parts: Parts, *, records: Sequence[str | int], subjects: Sequence[str | int]
) -> dict[Literal["records", "subjects"], list[str]]:
    """Ids and subjects as the run has them, each once.

    A run that was made before names were normalised may have a name in several forms: all that it knows are meant.

    Args:
        parts: of the run.
        records: ids as they were asked for.
        subjects: people as they were asked for.

    Raises:
        InputError: a string, or a name that cannot be one.
    """
    return {"records": _names(parts, "record", records), "subjects": _names(parts, "subject", subjects)}


def _names(parts: Parts, kind: Literal["record", "subject"], names: Sequence[str | int]) -> list[str]:
    normalised = parts.description.names_normalised
    found = requested(f"{kind}s", names, normalised=normalised)
    forms = {} if normalised else {name: all_forms for name in found if len(all_forms := forms_of(name)) > 1}
    if not forms:
        return found
    tokens = {form: parts.secret.token("ledger", kind, form) for all_forms in forms.values() for form in all_forms}
    with parts.ledger.reading() as transaction:
        located = transaction.locate(
            records=list(tokens.values()) if kind == "record" else [],
            subjects=list(tokens.values()) if kind == "subject" else [],
        )
    known = {row.token if kind == "record" else row.subject for row in located.rows} | set(located.gone)
    meant: dict[str, None] = {}
    for name in found:
        meant |= dict.fromkeys([form for form in forms.get(name, ()) if tokens[form] in known] or [name])
    return list(meant)
