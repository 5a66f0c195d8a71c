"""Entities in tags, and how many of them are found: as CoNLL counts (conlleval; Tjong Kim Sang and De Meulder 2003).

The rules are those of seqeval's default mode, which the field reports: any of IOB1, IOB2, IOE and IOBES is read, and an
I- that continues nothing begins an entity. An entity is right if its type, its first and its last word are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

Tags: TypeAlias = Sequence[str | None]
"""Tags of one record's words; None counts as O."""


def name_entities(labels: Sequence[str]) -> bool:
    """True if the tags mark entities: O, and others that begin with B-, I-, E- or S-.

    >>> name_entities(["O", "B-person", "I-person"]), name_entities(["NOUN", "VERB"])
    (True, False)
    """
    return all(re.fullmatch(r"O|[BIES]-.+", label) for label in labels)


def entities(tags: Tags) -> Iterator[tuple[str, int, int]]:
    """Type, first and last word of each entity.

    >>> list(entities(["B-a", "I-a", "I-b", "O", "I-a", "B-a"]))
    [('a', 0, 1), ('b', 2, 2), ('a', 4, 4), ('a', 5, 5)]
    """
    before, kind_before, first = "O", "", 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, kind = (tag or "O").partition("-")
        parted = before in "ES" or prefix in "BS" or kind != kind_before
        if before != "O" and (parted or prefix == "O"):
            yield kind_before, first, place - 1
        if prefix != "O" and (parted or before == "O"):
            first = place
        before, kind_before = prefix, kind


def entity_metrics(predicted: Sequence[Tags], expected: Sequence[Tags]) -> dict[str, float]:
    """F1, precision and recall over all entities; 0 where there are none.

    >>> entity_metrics([["B-a", "O"], ["B-b", "O"]], [["B-a", "O"], ["B-b", "I-b"]])["f1"]
    0.5
    """
    measured = _measured(_all(predicted), _all(expected))
    return {name: measured[name] for name in ("f1", "precision", "recall")}


def entity_report(predicted: Sequence[Tags], expected: Sequence[Tags]) -> tuple[dict[str, Any], ...]:
    """Precision, recall, F1 and support of each type that either side has, by name."""
    given, right = _all(predicted), _all(expected)
    kinds = sorted({entity[1] for entity in given | right})
    return tuple(
        {"label": kind, **_measured(*({entity for entity in side if entity[1] == kind} for side in (given, right)))}
        for kind in kinds
    )


_Entities: TypeAlias = "set[tuple[int, str, int, int]]"


def _all(records: Sequence[Tags]) -> _Entities:
    return {(number, *entity) for number, tags in enumerate(records) for entity in entities(tags)}


def _measured(given: _Entities, right: _Entities) -> dict[str, Any]:
    both = len(given & right)
    return {
        "precision": both / len(given) if given else 0.0,
        "recall": both / len(right) if right else 0.0,
        "f1": 2 * both / (len(given) + len(right)) if given or right else 0.0,
        "support": len(right),
    }
