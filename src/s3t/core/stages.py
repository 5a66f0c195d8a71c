"""Stages: one for each distinct prefix of a shard's sequences, so sequences share what they begin with; and their keys.

A key is the keyed hash of everything that decides a stage's tensors:

    key = HMAC(stage key of the secret, base model's digest, training part of the recipe with every `auto` resolved,
               shard, prefix, later labels, slice digests, keys of its parents)

What does not change a stage's tensors (budget, selector, device, ensemble, column names) is not in it. Pure.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

from s3t.core.methods import Method
from s3t.core.places import Order, Place, Secret

SliceKind: TypeAlias = Literal["prototypes", "statistics"]
"""Kind of an artifact that is made of one slice, without an order: class means, or what a ridge head is solved from."""
Kind: TypeAlias = Literal["model", "readout"] | SliceKind


class Stage(NamedTuple):
    """The last training step of a prefix: it trains a block of the method's on the slices of `prefix`.

    Or what is made of one slice alone (`SliceKind`); with several slices, the head of them all, which answers and is
    not stored. Or a readout: what one slice leaves for the head that reads a model, the mean of several, or the base
    model (`BASE_MODEL`, the prefix without slices, of no shard).
    """

    shard: int
    prefix: Order
    kind: Kind = "model"
    reads: tuple[Place, ...] = ()
    """Slices of the models that a readout was made with, in the order of training, model after model, each with the
    newest segment that its model has seen; the slice that left the readout, which may be any of the run, is in
    `prefix`. Of a head of several slices the segments that it is made of; where nothing was added these follow from
    the prefix, and are left out."""
    seen: int = 0
    """The newest segment of its slices that it was made from; of a `SliceKind`, the only one."""

    @property
    def depth(self) -> int:
        return len(self.prefix)

    @property
    def own(self) -> tuple[tuple[Place, ...], ...]:
        """The segments through whose records it goes, slice by slice."""
        newest = tuple(Place(self.shard, index, self.seen) for index in self.prefix)
        if self.kind in ("model", "readout"):
            return tuple(map(segments_to, newest))
        return tuple((place,) for place in self.reads or newest)

    @property
    def places(self) -> tuple[Place, ...]:
        """Every segment whose records it was made from, in the order of `slice_digests`; one may come twice."""
        of_models = map(segments_to, self.reads if self.kind == "readout" else ())
        return tuple(place for segments in (*self.own, *of_models) for place in segments)

    @property
    def models(self) -> tuple[Stage, ...]:
        """The models of a readout, one a shard."""
        shards = groupby(self.reads, key=lambda place: place.shard)
        models = ((shard, list(places)) for shard, places in shards)
        return tuple(Stage(shard, tuple(each.slice for each in of), seen=of[0].segment) for shard, of in models)

    @property
    def was_trained_on(self) -> bool:
        """True of a readout if all its models were trained on the slice that left it."""
        return bool(self.models) and all(
            model.shard == self.shard and self.prefix[0] in model.prefix for model in self.models
        )

    @property
    def parents(self) -> tuple[Stage, ...]:
        """The stage one slice shorter, of a readout its models; none of the first, and of what is made of one slice."""
        return self.chain[-2:-1] if self.kind == "model" else self.models

    @property
    def chain(self) -> tuple[Stage, ...]:
        """Stages from the first to this one, parents before children. Of a head, what is made of its slices."""
        if self.kind == "model":
            return tuple(self._replace(prefix=self.prefix[:depth]) for depth in range(1, self.depth + 1))
        if self.kind == "readout":
            return (*(link for model in self.models for link in model.chain), self)
        return tuple(of_slice(place, self.kind) for place in self.places)

    def cut(self, depth: int) -> Stage:
        """The stage of its chain with at most `depth` slices; a head is returned unchanged."""
        return self.chain[min(depth, self.depth) - 1] if self.kind == "model" and self.prefix else self

    def to_json(self) -> dict[str, Any]:
        kind = {} if self.kind == "model" else {"kind": self.kind}
        reads = {"reads": [list(place) for place in self.reads]} if self.reads else {}
        seen = {"seen": self.seen} if self.seen else {}
        return {"shard": self.shard, "prefix": list(self.prefix), **kind, **reads, **seen}

    def __str__(self) -> str:
        if self.kind == "readout":
            by = f"the mean of {len(self.models)} shards" if len(self.models) > 1 else (*self.models, BASE_MODEL)[0]
            return f"readout of slice {self.prefix[0]} of shard {self.shard} by {by}"
        if not self.prefix:
            return "the base model"
        slices = ", ".join(map(str, self.prefix))
        of_slices = f"{self.kind} of {'slice' if self.depth == 1 else 'slices'} {slices}"
        what = f"stage ({slices})" if self.kind == "model" else of_slices
        added = f" as of addition {self.seen}" if self.seen else ""
        return f"{what} of shard {self.shard}{added}"


def segments_to(newest: Place) -> tuple[Place, ...]:
    """All segments of a slice up to one."""
    return tuple(newest._replace(segment=segment) for segment in range(newest.segment + 1))


def of_slice(place: Place, kind: Kind) -> Stage:
    """What is made of one segment alone."""
    return Stage(place.shard, (place.slice,), kind, seen=place.segment)


def head_of(places: Sequence[Place], kind: Kind) -> Stage:
    """The head of what is made of some segments of a shard."""
    slices = tuple(sorted({place.slice for place in places}))
    return Stage(places[0].shard, slices, kind, tuple(places) if any(place.segment for place in places) else ())


BASE_MODEL = Stage(0, ())


def readout(place: Place, models: Iterable[Stage]) -> Stage:
    """The readout that a slice, up to a segment, leaves for the head of these models, at most one of each shard; of
    none: of the base model."""
    reads = (Place(model.shard, index, model.seen) for model in models for index in model.prefix)
    return of_slice(place, "readout")._replace(reads=tuple(reads))


def stages_of(orders: Iterable[Iterable[Order]]) -> tuple[Stage, ...]:
    """Every stage that the orders need, parents before children, shallow ones first so that all shards serve soon.

    >>> [stage.prefix for stage in stages_of([[(0, 1, 2), (0, 2, 1)]])]
    [(0,), (0, 1), (0, 2), (0, 1, 2), (0, 2, 1)]
    """
    stages = {
        Stage(shard, order[:depth])
        for shard, shard_orders in enumerate(orders)
        for order in shard_orders
        for depth in range(1, len(order) + 1)
    }
    return tuple(sorted(stages, key=lambda stage: (stage.depth, stage.shard, stage.prefix)))


def by_kind(stages: Iterable[Stage]) -> tuple[list[Stage], list[Stage]]:
    """(Stages that train a model, those of one slice and their heads), each in the given order."""
    stages = list(stages)
    return [stage for stage in stages if stage.kind == "model"], [stage for stage in stages if stage.kind != "model"]


def model_stages(method: Method, stage: Stage) -> tuple[Stage, ...]:
    """The stages whose artifacts together are the model of a prefix, the first one first."""
    return tuple(stage._replace(prefix=prefix) for prefix in method.links(stage.prefix))


def stage_seed(run_seed: int, stage: Stage, purpose: str) -> int:
    """A seed below 2^63 for one purpose ("head", "block", "dropout", "batches 0", ...) of one stage."""
    text = f"s3t seed {run_seed} shard {stage.shard} prefix {list(stage.prefix)} {purpose}"
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


KEY_FORMAT = 9
"""Raised when the meaning of the inputs or the training procedure changes: old keys then match no new stage."""


@dataclass(frozen=True, kw_only=True)
class KeyInputs:
    """Key inputs that all stages of a run share."""

    secret: Secret
    base_digest: str
    """Digest of the base model's weights, configuration, and tokenizer or image processor."""
    training_part: dict[str, Any]


def stage_key(
    inputs: KeyInputs, stage: Stage, *, slice_digests: Sequence[str], parents: Sequence[str], labels: Sequence[str] = ()
) -> str:
    """The key of a stage, 64 hexadecimal digits, from the digests of its places, the keys of its parents, and the
    labels that were added until then."""
    content = {
        "format": KEY_FORMAT,
        "base": inputs.base_digest,
        "training": inputs.training_part,
        "shard": stage.shard,
        "prefix": list(stage.prefix),
        "slices": list(slice_digests),
        "parent": parents if len(parents) > 1 else next(iter(parents), None),
        "kind": stage.kind,
        **({"reads": stage.reads} if stage.reads else {}),
        **({"seen": stage.seen} if stage.seen else {}),
        **({"labels": [*labels]} if labels else {}),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hmac.new(inputs.secret.key("stage"), text.encode(), sha256).hexdigest()
