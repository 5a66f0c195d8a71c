"""Members that answer, the deepest stage of every member's prefix; and answers and metrics of their logits, as the task
defines them. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s3t.core import BASE_MODEL, Inventory, Kind, Order, Stage, by_kind, head_of
from s3t.errors import InputError, NoLiveShardError
from s3t.recipe import Prediction
from s3t.results.answers import Member
from s3t.tasks import Target
from s3t.tasks.aggregate import Scores, shares
from s3t.wording import counted

Prefixes: TypeAlias = "Mapping[int, Order] | Sequence[Member | tuple[int, Order]]"
"""Prefixes that shall answer: one for each shard, or (shard, prefix) pairs, perhaps several of a shard."""


def choose_members(inventory: Inventory, prefixes: Prefixes | None, *, settings: Prediction, run: str) -> list[Stage]:
    """The deepest stage of every answering prefix, and heads of slices beside them, in the order of the shards. Without
    prefixes, those that serve by the settings; the base model where none does, and it has a head.
    """
    if prefixes is not None:
        pairs = prefixes.items() if isinstance(prefixes, Mapping) else prefixes
        members = sorted({_stage(inventory, *pair) for pair in pairs}, key=_place)
        if not members:
            raise InputError("prefixes", "names no shard; leave it out to have all answer that can")
        usable = {BASE_MODEL} if inventory.answering_by_base() else set[Stage]()
        dead = [
            stage
            for stage in members
            if stage not in usable and (not stage.prefix or any(link not in inventory.alive for link in stage.chain))
        ]
        if dead:
            what = [f"{stage} is not alive" if stage.prefix else f"no slice of shard {stage.shard}" for stage in dead]
            raise InputError("prefixes", what)
    else:
        members = _serving(inventory, settings) or [BASE_MODEL] * bool(inventory.answering_by_base())
    if members:
        return members
    remedy = "the run holds no records"
    if sum(inventory.records.values()):
        remedy = f"run `s3t {inventory.training_command} {run}`"
    raise NoLiveShardError(f"no shard of {run} has a live prefix that holds a record, so nothing can answer; {remedy}")


def parts_within(members: Sequence[Stage], *, sisa_weight: float) -> list[float] | None:
    """Weight of each member within its shard; None for equal weights."""
    _, heads = by_kind(members)
    return [1 - sisa_weight if stage in heads else sisa_weight for stage in members] if heads else None


def _serving(inventory: Inventory, settings: Prediction) -> list[Stage]:
    if settings.ensemble == "sequences":
        members = [stage for stages in inventory.serving_all for stage in stages]
    else:
        members = list(inventory.members().values())
    answering = {stage.shard for stage in members}
    beside = [head for shard, head in inventory.heads().items() if shard in answering or inventory.alone]
    return sorted(members + beside, key=_place)


def _place(stage: Stage) -> tuple[int, Kind, Order]:
    """Sort key: by shard, heads after the model of their shard."""
    return stage.shard, stage.kind, stage.prefix


def _stage(
    inventory: Inventory, shard: int, prefix: Order, _key: str = "", kind: Kind | None = None, seen: int | None = None
) -> Stage:
    """The stage of a member; without `seen`, the newest live one of the prefix."""
    first = "model" if inventory.trains or inventory.of_slices is None else inventory.of_slices
    kind, prefix = kind or first, tuple(prefix)
    if kind != "model":
        return _head(inventory, shard, prefix, kind)
    if seen is None:
        named = (stage.seen for stage in inventory.alive if stage[:3] == (shard, prefix, kind))
        seen = max(named, default=inventory.learned if prefix else 0)
    return Stage(shard, prefix, seen=seen)


def _head(inventory: Inventory, shard: int, slices: Order, kind: Kind) -> Stage:
    """The head of what is alive of some slices; of a slice without, one that is not alive."""
    alive = inventory.heads().get(shard)
    parts = [] if alive is None else [place for place in alive.places if place.slice in slices]
    if not parts or {place.slice for place in parts} != {*slices}:
        return Stage(shard, tuple(sorted(set(slices))), kind)
    return head_of(parts, kind)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Settings with which a run's ensemble answers.

    Its methods take the logits of every member, N x C, with the member's shard and its part within the shard (None:
    equal parts), and perhaps the number of answers to each input, which become one tuple (None: one answer each).
    """

    target: Target
    labels: tuple[str, ...]
    """The label set in the head's order; empty where the target has none."""
    settings: Prediction = field(default_factory=Prediction)

    def answer(
        self,
        logits_MNC: Scores,
        shards: Sequence[int],
        parts: Sequence[float] | None = None,
        counts: Sequence[int] | None = None,
    ) -> tuple[tuple[Any, ...], Scores | None]:
        """The answer to every input, and its probabilities, N x C; N is words where each is answered.

        None in the place of probabilities where the target has none, and where answers do not tell them.
        """
        one_each = len(set(shards)) == len(shards)  # then the plain mean is taken
        weights = None if one_each else shares(shards, parts)
        answers, probabilities = self.target.answers(
            logits_MNC, weights, self.labels, aggregation=self.settings.aggregation, threshold=self.settings.threshold
        )
        each = iter(answers)
        grouped = answers if counts is None else [tuple(itertools.islice(each, count)) for count in counts]
        return tuple(grouped), probabilities if self.settings.answers == "probabilities" else None

    def score(self, logits_NC: Scores, expected: Sequence[Any], counts: Sequence[int] | None = None) -> float:
        """Score of one member; higher is better."""
        return self._score(self.answer(logits_NC[None], [0], counts=counts)[0], expected)

    def _score(self, answers: Sequence[Any], expected: Sequence[Any]) -> float:
        return self.target.score(self.target.metrics(answers, expected, self.labels))

    def doubts(
        self, members: Sequence[Stage], answered: Mapping[Stage, Sequence[Any]], expected: Sequence[Any]
    ) -> tuple[str, ...]:
        """A sentence for each member that scores no better than a guess, or that is wrong more often, by more than two
        standard errors, than with fewer of its slices.

        `answered` has answers of the members, and perhaps of what they are cut to.
        """

        def distances(given: Sequence[Any]) -> NDArray[np.float64]:
            pairs = zip(given, expected, strict=True)
            if self.target.has_labels:
                return np.array([tuple(answer) != tuple(right) for answer, right in pairs], dtype=np.float64)
            return np.abs([answer - right for answer, right in pairs])

        varied = any(right != expected[0] for right in expected)
        guesses = self.target.guesses(expected) if varied else []
        guess = max((self._score(each, expected) for each in guesses), default=-math.inf)
        found = []
        for stage in members:
            own = self._score(answered[stage], expected)
            if own <= guess:
                found.append(f"shard {stage.shard} scores {own:.4g}, the same answer to every input {guess:.4g}")
            for link in (link for link in stage.chain[:-1] if link in answered):
                more = distances(answered[stage]) - distances(answered[link])
                if len(more) > 1 and more.mean() > 2 * more.std(ddof=1) / math.sqrt(len(more)):
                    less = self._score(answered[link], expected)
                    fewer = f"with {link.depth} of its {counted(stage.depth, 'slice')} {less:.4g}"
                    found.append(f"shard {stage.shard} scores {own:.4g}, {fewer}")
                    break
        remedy = "in a new run take another method, fewer shards or slices, or more epochs; `s3t compare` measures some"
        return tuple(f"{what}: {remedy}" for what in found)
